package integration_test

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// TestAStoreWithBudgetsIsInOrder has fila check and fila repair read what budgets leave in a store,
// after each end of a broker: settings, entries, ids and the charges of leases.
func TestAStoreWithBudgetsIsInOrder(t *testing.T) {
	t.Parallel()
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t, "--storage.lease_lag_ms", "0")
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 3_600_000) // what is reserved is that of leases
			kit.Do(t, c, "FILA.BUDGET", "SET", "acme", "LOW", 5, "DEBT", 1, "DETAIL")
			kit.Do(t, c, "FILA.BUDGET", "SET", "plan", "REFILL", 30, "EVERY", "@monthly", "TZ", "Europe/Berlin", "MAX", 90)
			kit.Do(t, c, "FILA.BUDGET", "CREDIT", "acme", 100, "ID", "invoice-17", "NOTE", "paid")
			for range 3 {
				kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "BUDGET", "plan", "CHARGE", 10)
			}
			held := lease(t, c, "q", "COUNT", 2)
			kit.Do(t, c, "FILA.ACK", "q", held[0].receipt, "USED", 7)
			kit.Do(t, c, "FILA.BUDGET", "CHARGE", "acme", 3)
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			wantOutput(t, 0, "everything is in order", "check", b.Data())
			wantOutput(t, 0, "nothing was changed", "repair", b.Data())
			kit.Start(t, b)
			for budget, want := range map[string][3]int64{"acme": {100, 10, 10}, "plan": {30, 7, 10}} {
				m := kit.Mapped(t, kit.Do(t, c, "FILA.BUDGET", "GET", budget))
				if got := [3]any{m["credited"], m["spent"], m["reserved"]}; got != [3]any{want[0], want[1], want[2]} {
					t.Errorf("%s: credited, spent and reserved are %v, want %v", budget, got, want)
				}
			}
			kit.Do(t, c, "FILA.BUDGET", "CREDIT", "acme", 100, "ID", "invoice-17") // it was done already
			if m := kit.Mapped(t, kit.Do(t, c, "FILA.BUDGET", "GET", "acme")); m["credited"] != int64(100) {
				t.Errorf("credited %v, want 100", m["credited"])
			}
		})
	}
}

// tenantsByExperience is the script that the pages about signals and budgets describe: a tenant whose
// work keeps failing waits, and costs what its work has cost.
const tenantsByExperience = `function on_enqueue(msg)
  local tenant = msg.headers["tenant"] or "unknown"
  local done, failed = fila.signal(tenant, "acked", "5m"), fila.signal(tenant, "failed", "5m")
  local mean = fila.signal(tenant, "used", "1h") / math.max(1, fila.signal(tenant, "acked", "1h"))
  return { fairness_key = tenant, cost = math.max(1, math.min(1000000, math.ceil(mean))), delay_ms = failed > 20 and failed > done and 30000 or 0 }
end`

// signalsOfHooks has a script read what settlements and failures have recorded.
func signalsOfHooks(s *speaker) {
	s.says("OK", "FILA.QUEUE CREATE sq SIGNALS ON MAXATTEMPTS 0")
	s.says("OK", "FILA.BUDGET SET paid")
	s.do(s.T, "FILA.SCRIPT", "LOAD", "sq", "ON_ENQUEUE", tenantsByExperience)
	const line = "sq x BUDGET paid CHARGE 0 HEADER tenant bolt"
	s.has("cost 1 status ready", "FILA.GET sq "+s.id(line))
	s.says("1", "FILA.ACK sq "+s.out("sq", "x")[0]+" USED 500")
	if got := signalsIn(s.T, s.run("FILA.SIGNAL GET bolt used")); got != "bolt/used=500" {
		s.Errorf("recorded %s", got)
	}
	id := s.id(line)
	if cost, _ := kit.Mapped(s.T, s.run("FILA.GET sq "+id))["cost"].(int64); cost != 500 && cost != 501 { // of quotients that are rounded up
		s.Errorf("after a use of 500 the cost is %d", cost)
	}
	for range 21 {
		s.id("sq x BUDGET paid CHARGE 0 HEADER tenant bolt DELAY 0")
	}
	for failed := 0; failed < 22; {
		ds, err := leased(s.run("FILA.LEASE sq COUNT 10"))
		if err != nil || len(ds) == 0 {
			s.Fatal(failed, err)
		}
		for i := range ds {
			s.has("action retry", "FILA.NACK sq "+ds[i].receipt+" DELAY 3600000")
			failed++
		}
	}
	s.has("status delayed", "FILA.GET sq "+s.id(line))
	s.says("9", "FILA.BUDGET CREDIT paid 509")
	for name, want := range map[string]string{"paid": "9", "none": "nil"} {
		m := kit.Mapped(s.T, plain(s.do(s.T, "FILA.SCRIPT", "TEST", "sq", "ON_ENQUEUE", "SOURCE", "function on_enqueue(msg) return { fairness_key = tostring(fila.budget('"+name+"')) } end")))
		if fmt.Sprint(m["fairness_key"]) != want {
			s.Errorf("fila.budget of %s is %v, want %s", name, m["fairness_key"], want)
		}
	}
}

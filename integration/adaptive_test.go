package integration_test

import (
	"fmt"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// TestAnAdaptiveThrottleAfterARestart: failures cut the limit and acks let it grow, as a client sees
// it over both protocols. After a restart it begins with the concurrency, counts the leases from
// before, and works on: the setting is kept, the limit is not.
func TestAnAdaptiveThrottleAfterARestart(t *testing.T) {
	t.Parallel()
	for name, end := range ends() {
		for _, protocol := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s, RESP%d", name, protocol), func(t *testing.T) {
				b := kit.Serve(t, "--storage.lease_lag_ms", "0")
				c := kit.Connect(t, b.Addr(), protocol)
				shows := func(held int64, limit string, cuts int64) {
					t.Helper()
					m := kit.Mapped(t, kit.Do(t, c, "FILA.THROTTLE", "GET", "provider:x"))
					if m["concurrency"] != int64(10) || m["min"] != int64(2) || m["held"] != held || m["limit"] != limit || m["cuts"] != cuts {
						t.Errorf("%v; want %d held, the limit %s and %d cuts", m, held, limit, cuts)
					}
				}
				nack := func(d delivery) { kit.Do(t, c, "FILA.NACK", "calls", d.receipt, "ERROR", "429", "DELAY", 0) }
				kit.Do(t, c, "FILA.THROTTLE", "SET", "provider:x", "CONCURRENCY", 10, "ADAPTIVE", "MIN", 2)
				kit.Do(t, c, "FILA.QUEUE", "CREATE", "calls", "VISIBILITY", 600_000, "MAXATTEMPTS", 0)
				for i := range 12 {
					kit.Do(t, c, "FILA.ENQUEUE", "calls", i, "KEY", "acme", "THROTTLE", "provider:x")
				}
				held := lease(t, c, "calls", "COUNT", 20)
				if len(held) != 10 {
					t.Fatalf("%d are leased, want 10", len(held))
				}
				shows(10, "10", 0)
				nack(held[0])
				nack(held[1])
				shows(8, "7", 1)
				if more := lease(t, c, "calls", "COUNT", 20); len(more) != 0 {
					t.Errorf("%d more are leased while 8 of 7 are held", len(more))
				}
				x := kit.Mapped(t, kit.Do(t, c, "FILA.EXPLAIN", "calls", "KEY", "acme"))
				if want := `throttle "provider:x" allows 7 of 10 leases at a time now`; x["state"] != "concurrency" || x["reason"] != want {
					t.Errorf("%v: %v, want %s", x["state"], x["reason"], want)
				}

				restarted(t, b, end)
				c = kit.Connect(t, b.Addr(), protocol)
				shows(8, "10", 0)
				nack(held[2])
				nack(held[3]) // its lease began before the cut
				shows(6, "7", 1)
				if n := kit.Do(t, c, "FILA.ACK", "calls", held[4].receipt); n != int64(1) {
					t.Errorf("%v acked", n)
				}
				shows(5, "7.142857", 1)
				fresh := lease(t, c, "calls", "COUNT", 20)
				if len(fresh) != 2 {
					t.Fatalf("%d are leased beside 5, want 7 together", len(fresh))
				}
				nack(fresh[0])
				shows(6, "5", 2)
			})
		}
	}
}

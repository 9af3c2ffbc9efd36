package integration_test

import "testing"

// TestAStoreWithBudgetsIsInOrder has fila check and fila repair read what budgets leave in a store,
// after each end of a broker: settings, entries, ids and the charges of leases.
func TestAStoreWithBudgetsIsInOrder(t *testing.T) {
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := serve(t, "--storage.lease_lag_ms", "0")
			c := connect(t, b.Addr(), 3)
			do(t, c, "FILA.QUEUE", "CREATE", "q")
			do(t, c, "FILA.BUDGET", "SET", "acme", "LOW", 5, "DEBT", 1, "DETAIL")
			do(t, c, "FILA.BUDGET", "SET", "plan", "REFILL", 30, "EVERY", "@monthly", "TZ", "Europe/Berlin", "MAX", 90)
			do(t, c, "FILA.BUDGET", "CREDIT", "acme", 100, "ID", "invoice-17", "NOTE", "paid")
			for range 3 {
				do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "BUDGET", "plan", "CHARGE", 10)
			}
			held := lease(t, c, "q", "COUNT", 2)
			do(t, c, "FILA.ACK", "q", held[0].receipt, "USED", 7)
			do(t, c, "FILA.BUDGET", "CHARGE", "acme", 3)
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			wantOutput(t, 0, "everything is in order", "check", b.Data())
			wantOutput(t, 0, "nothing was changed", "repair", b.Data())
			restart(t, b)
			for budget, want := range map[string][3]int64{"acme": {100, 10, 10}, "plan": {30, 7, 10}} {
				m := mapped(t, do(t, c, "FILA.BUDGET", "GET", budget))
				if got := [3]any{m["credited"], m["spent"], m["reserved"]}; got != [3]any{want[0], want[1], want[2]} {
					t.Errorf("%s: credited, spent and reserved are %v, want %v", budget, got, want)
				}
			}
			do(t, c, "FILA.BUDGET", "CREDIT", "acme", 100, "ID", "invoice-17") // it was done already
			if m := mapped(t, do(t, c, "FILA.BUDGET", "GET", "acme")); m["credited"] != int64(100) {
				t.Errorf("credited %v, want 100", m["credited"])
			}
		})
	}
}

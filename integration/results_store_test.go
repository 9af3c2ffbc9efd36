package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// TestAStoreWithTopicsAndResultsIsInOrder has fila check and fila repair read what topics, ordered
// queues and results leave in a store, after each end of a broker; then a repair makes a new store
// from the files of a damaged one, and all of it is there.
func TestAStoreWithTopicsAndResultsIsInOrder(t *testing.T) {
	t.Parallel()
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t, "--storage.lease_lag_ms", "0")
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "plain", "KEEPDONE", 3_600_000)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "ordered", "ORDERED", "ON", "BACKOFF", 3_600_000, "MAXBACKOFF", 3_600_000)
			kit.Do(t, c, "FILA.TOPIC", "BIND", "t", "plain")
			kit.Do(t, c, "FILA.TOPIC", "BIND", "t", "ordered", "HEADER", "kind", "good*")
			ids := map[string]string{}
			for _, payload := range []string{"one", "two"} {
				ids, _ = published(kit.Do(t, c, "FILA.PUBLISH", "t", payload, "KEY", "k", "HEADER", "kind", "goods"))
			}
			first := one(t, c, "plain")
			kit.Do(t, c, "FILA.ACK", "plain", first.receipt, "RESULT", "v-1")
			kit.Do(t, c, "FILA.NACK", "ordered", one(t, c, "ordered").receipt) // its key waits for an hour
			for _, damaged := range []bool{false, true} {
				if err := end(b); err != nil {
					t.Fatal(err)
				}
				if damaged {
					if err := os.WriteFile(filepath.Join(b.Data(), "CURRENT"), nil, 0o600); err != nil {
						t.Fatal(err)
					}
					wantOutput(t, 1, "damaged", "check", b.Data())
					wantOutput(t, 0, "everything is in order", "repair", b.Data())
				}
				wantOutput(t, 0, "everything is in order", "check", b.Data())
				wantOutput(t, 0, "nothing was changed", "repair", b.Data())
				kit.Start(t, b)
				c = kit.Connect(t, b.Addr(), 3)
				if r := kit.Mapped(t, kit.Do(t, c, "FILA.RESULT", "plain", first.id())); r["status"] != "done" || r["value"] != "v-1" {
					t.Errorf("damaged %v: the result is %v", damaged, r)
				}
				if r := kit.Mapped(t, kit.Do(t, c, "FILA.GET", "plain", first.id())); r["status"] != "done" || r["result"] != "v-1" || r["key"] != "k" {
					t.Errorf("damaged %v: what is done is %v", damaged, r)
				}
				if r := kit.Mapped(t, kit.Do(t, c, "FILA.RESULT", "ordered", ids["ordered"])); r["status"] != "pending" {
					t.Errorf("damaged %v: the result is %v", damaged, r)
				}
				if info := kit.Mapped(t, kit.Do(t, c, "FILA.TOPIC", "INFO", "t")); len(info["bindings"].([]any)) != 2 { //nolint:forcetypeassert // the contract guarantees the type
					t.Errorf("damaged %v: the topic has %v", damaged, info["bindings"])
				}
				if ds := lease(t, c, "ordered", "COUNT", 10); len(ds) != 0 {
					t.Errorf("damaged %v: %v was delivered while its key waits", damaged, ds)
				}
				again, err := published(kit.Do(t, c, "FILA.PUBLISH", "t", fmt.Sprint("again", damaged), "HEADER", "kind", "goods"))
				if err != nil || len(again) != 2 {
					t.Errorf("damaged %v: a publish went to %v: %v", damaged, again, err)
				}
				for _, d := range lease(t, c, "ordered", "COUNT", 10) { // of the key default
					kit.Do(t, c, "FILA.ACK", "ordered", d.receipt)
				}
			}
		})
	}
}

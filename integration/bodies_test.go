package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestAPayloadOfSeveralQueuesOutlivesTheBroker: long payloads, which the queues of a topic share, are
// whole after each end of a broker, after a repair, dead and redriven, and are freed in the end.
func TestAPayloadOfSeveralQueuesOutlivesTheBroker(t *testing.T) {
	t.Parallel()
	const messages = 20
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := kit.Serve(t, "--storage.lease_lag_ms", "0")
			c := kit.Connect(t, b.Addr(), 3)
			for _, queue := range []string{"q1", "q2", "purged"} {
				kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
				kit.Do(t, c, "FILA.TOPIC", "BIND", "t", queue)
			}
			payload := func(i int) string { return strings.Repeat(fmt.Sprintf("payload %d ", i), 500) }
			for i := range messages {
				kit.Do(t, c, "FILA.PUBLISH", "t", payload(i), "HEADER", "n", i)
			}
			kit.Do(t, c, "FILA.NACK", "q1", one(t, c, "q1").receipt, "DEAD")
			held := one(t, c, "q2", "VISIBILITY", 600_000)
			again := func(check func(dir string)) {
				t.Helper()
				if err := end(b); err != nil {
					t.Fatal(err)
				}
				check(b.Data())
				kit.Start(t, b)
				c = kit.Connect(t, b.Addr(), 3)
			}
			inOrder := func(dir string) { wantOutput(t, 0, "everything is in order", "check", dir) }
			again(inOrder)
			again(func(dir string) {
				if err := os.WriteFile(filepath.Join(dir, "CURRENT"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				wantOutput(t, 0, "everything is in order", "repair", dir)
				inOrder(dir)
			})
			kit.Do(t, c, "FILA.PURGE", "purged")
			kit.Do(t, c, "FILA.REDRIVE", "q1.dlq")
			for _, queue := range []string{"q1", "q2"} {
				wantPayloads(t, c, queue, payload, map[string]int{"q1": messages, "q2": messages - 1}[queue])
			}
			if n := kit.Do(t, c, "FILA.ACK", "q2", held.receipt); n != int64(1) {
				t.Errorf("the held message: %v", n)
			}
			testkit.Eventually(t, "no body is left", func() (none bool) { // the broker sweeps
				again(func(dir string) { none = !strings.Contains(wantOutput(t, 0, "", "check", dir, "--json"), `"bodies"`) })
				return none
			})
		})
	}
}

// wantPayloads leases and acks n messages, each of which has the payload that its header names.
func wantPayloads(t *testing.T, c *redis.Client, queue string, payload func(i int) string, n int) {
	t.Helper()
	seen := map[string]bool{}
	for range n {
		d := one(t, c, queue)
		seen[d.payload] = true
		kit.Do(t, c, "FILA.ACK", queue, d.receipt)
	}
	whole := 0
	for i := range n + 1 { // one of them may be held
		if seen[payload(i)] {
			whole++
		}
	}
	if whole != n {
		t.Errorf("%s had %d of %d payloads", queue, whole, n)
	}
}

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestAPayloadOfSeveralQueuesOutlivesTheBroker: long payloads, which the queues of a topic share, are
// whole after each end of a broker, after a repair, dead and redriven, and are freed in the end.
func TestAPayloadOfSeveralQueuesOutlivesTheBroker(t *testing.T) {
	const messages = 20
	for name, end := range ends() {
		t.Run(name, func(t *testing.T) {
			b := serve(t, "--storage.lease_lag_ms", "0")
			c := connect(t, b.Addr(), 3)
			for _, queue := range []string{"q1", "q2", "purged"} {
				do(t, c, "FILA.QUEUE", "CREATE", queue)
				do(t, c, "FILA.TOPIC", "BIND", "t", queue)
			}
			payload := func(i int) string { return strings.Repeat(fmt.Sprintf("payload %d ", i), 500) }
			for i := range messages {
				do(t, c, "FILA.PUBLISH", "t", payload(i), "HEADER", "n", i)
			}
			do(t, c, "FILA.NACK", "q1", one(t, c, "q1").receipt, "DEAD")
			held := one(t, c, "q2", "VISIBILITY", 600_000)
			again := func(check func(dir string)) {
				t.Helper()
				if err := end(b); err != nil {
					t.Fatal(err)
				}
				check(b.Data())
				restart(t, b)
				c = connect(t, b.Addr(), 3)
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
			do(t, c, "FILA.PURGE", "purged")
			do(t, c, "FILA.REDRIVE", "q1.dlq")
			for _, queue := range []string{"q1", "q2"} {
				wantPayloads(t, c, queue, payload, map[string]int{"q1": messages, "q2": messages - 1}[queue])
			}
			if n := do(t, c, "FILA.ACK", "q2", held.receipt); n != int64(1) {
				t.Errorf("the held message: %v", n)
			}
			left := `"bodies"`
			for deadline := time.Now().Add(patience); strings.Contains(left, `"bodies"`) && time.Now().Before(deadline); {
				time.Sleep(100 * time.Millisecond) // the broker sweeps
				again(func(dir string) { left = wantOutput(t, 0, "", "check", dir, "--json") })
			}
			if strings.Contains(left, `"bodies"`) {
				t.Errorf("bodies are left: %s", left)
			}
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
		do(t, c, "FILA.ACK", queue, d.receipt)
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

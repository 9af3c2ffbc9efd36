package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// A broker that may use little memory refuses new messages before it is used up, says so, serves those that it has,
// and takes new ones when there is room again.
func TestABrokerRefusesMessagesBeforeItsMemoryIsUsedUp(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--server.memory_bytes", fmt.Sprint(48<<20))
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	var refusal error
	sent := 0
	for refusal == nil && sent < 1_000_000 {
		pipe := c.Pipeline()
		for range 1000 {
			pipe.Do(t.Context(), "FILA.ENQUEUE", "q", "x", "KEY", fmt.Sprintf("tenant-%07d", sent))
			sent++
		}
		replies, _ := pipe.Exec(t.Context()) //nolint:errcheck // each has its own
		for _, r := range replies {
			if refusal = r.Err(); refusal != nil {
				break
			}
		}
	}
	if refusal == nil || !strings.HasPrefix(refusal.Error(), "OOM there is no memory for more: ") {
		t.Fatalf("after %d messages of as many keys: %v", sent, refusal)
	}
	stats := kit.Mapped(t, kit.Do(t, c, "FILA.STATS"))
	if stats["memory_full"] != int64(1) || stats["memory_limit"] != int64(48<<20) || stats["memory_held"].(int64) < 10<<20 || stats["writable"] != int64(1) {
		t.Errorf("stats %v", stats)
	}
	kit.Logged(t, b, "no memory for more: what stores something new is refused with OOM until messages are acked, cancelled or purged, or the limit is raised")
	leased := kit.Do(t, c, "FILA.LEASE", "q", "COUNT", 1).([]any)
	receipt, _ := leased[0].([]any)[0].(string)
	if got := kit.Do(t, c, "FILA.ACK", "q", receipt); got != int64(1) {
		t.Errorf("an ack: %v", got)
	}
	kit.Do(t, c, "FILA.PURGE", "q")
	testkit.Eventually(t, "messages are taken again", func() bool {
		return c.Do(t.Context(), "FILA.ENQUEUE", "q", "x").Err() == nil
	})
}

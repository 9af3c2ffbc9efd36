package integration_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
)

func TestMessagesAreFoundAndMendedWithGoRedis(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			queue := fmt.Sprintf("mend-%d", protocol)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
			payload := string([]byte{0, '\r', '\n', 0xff})
			ready := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", queue, payload, "KEY", "acme", "HEADER", "trace", "7f3a", "PRIORITY", 7))
			delayed := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", queue, "later", "KEY", "acme", "DELAY", 3_600_000))

			m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue, ready))
			headers := kit.Mapped(t, m["headers"])
			if m["id"] != ready || m["status"] != "ready" || m["payload"] != payload || m["priority"] != int64(7) || headers["trace"] != "7f3a" {
				t.Errorf("got %v", m)
			}
			if n := kit.Do(t, c, "FILA.RESCHEDULE", queue, delayed, 0); n.(int64) <= 0 {
				t.Errorf("ready at %v", n)
			}
			d := one(t, c, queue)
			if d.id() != ready {
				t.Errorf("leased %s", d.id())
			}
			refused(t, c, "INVALID", "FILA.RESCHEDULE", queue, ready, 0)
			refused(t, c, "NOMSG", "FILA.RESCHEDULE", queue, "018f5e8a-7c00-7abc-8def-0123456789ab", 0)
			refused(t, c, "BADRECEIPT", "FILA.GET", queue, "nonsense")
			refused(t, c, "NOQUEUE", "FILA.BROWSE", queue+"-none")
			refused(t, c, "INVALID", "FILA.BROWSE", queue, "CURSOR", "17")
			refused(t, c, "ERR", "FILA.BROWSE", queue, "STATUS", "asleep")
			if seen := browse(t, c, queue); len(seen) != 2 || seen[ready] != "leased" || seen[delayed] != "ready" {
				t.Errorf("browsed %v", seen)
			}
			if n := kit.Do(t, c, "FILA.CANCEL", queue, ready, delayed, delayed); n != int64(2) {
				t.Errorf("%v cancelled", n)
			}
			if n := kit.Do(t, c, "FILA.ACK", queue, d.receipt); n != int64(0) {
				t.Errorf("%v acked that was cancelled", n)
			}
			if v := kit.Do(t, c, "FILA.GET", queue, ready); v != nil {
				t.Errorf("got %v", v)
			}
		})
	}
}

func TestPurgePauseAndRedriveWithGoRedis(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			queue := fmt.Sprintf("empty-%d", protocol)
			dlq := queue + ".dlq"
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
			for i := range 60 {
				kit.Do(t, c, "FILA.ENQUEUE", queue, i, "KEY", fmt.Sprintf("k%d", i%3))
			}
			if n := kit.Do(t, c, "FILA.PURGE", queue, "KEY", "k0"); n != int64(20) {
				t.Errorf("%v purged of a key", n)
			}
			for _, d := range lease(t, c, queue, "COUNT", 30) {
				kit.Do(t, c, "FILA.NACK", queue, d.receipt, "DEAD", "ERROR", "no luck")
			}
			if n := kit.Do(t, c, "FILA.PURGE", queue); n != int64(10) {
				t.Errorf("%v purged", n)
			}
			refused(t, c, "INVALID", "FILA.REDRIVE", queue)
			kit.Do(t, c, "FILA.QUEUE", "PAUSE", queue, "IN")
			refused(t, c, "PAUSED", "FILA.ENQUEUE", queue, "x")
			if n := kit.Do(t, c, "FILA.REDRIVE", dlq); n != int64(0) {
				t.Errorf("%v went back to a queue that takes none", n)
			}
			kit.Do(t, c, "FILA.QUEUE", "RESUME", queue)
			kit.Do(t, c, "FILA.QUEUE", "PAUSE", queue, "OUT")
			if n := kit.Do(t, c, "FILA.REDRIVE", dlq, "COUNT", 4); n != int64(4) {
				t.Errorf("%v redriven", n)
			}
			if ds := lease(t, c, queue); len(ds) != 0 {
				t.Errorf("a paused queue handed out %v", ds)
			}
			kit.Do(t, c, "FILA.QUEUE", "RESUME", queue, "OUT")
			if ds := lease(t, c, queue, "COUNT", 10); len(ds) != 4 {
				t.Errorf("%d leased", len(ds))
			}
			// At one a second the remaining messages take half a minute: the redrive continues in the
			// background.
			if n := kit.Do(t, c, "FILA.REDRIVE", dlq, "RATE", 1).(int64); n < 1 || n > 10 {
				t.Errorf("%v redriven at first", n)
			}
			if m := kit.Mapped(t, kit.Do(t, c, "FILA.STATS", dlq)); m["redrive_running"] != int64(1) || m["redrive_rate"] != int64(1) {
				t.Errorf("got %v", m)
			}
			refused(t, c, "INVALID", "FILA.REDRIVE", dlq)
			if n := kit.Do(t, c, "FILA.REDRIVE", dlq, "STOP").(int64); n < 1 {
				t.Errorf("%v redriven when it was stopped", n)
			}
			if n := kit.Do(t, c, "FILA.REDRIVE", dlq, "STOP"); n != int64(0) {
				t.Errorf("%v redriven by none", n)
			}
		})
	}
}

// browse reads a queue in small pages and returns the status of each message.
func browse(t *testing.T, c *redis.Client, queue string) map[string]any {
	t.Helper()
	seen := map[string]any{}
	for cursor := any("0"); ; {
		page, ok := kit.Do(t, c, "FILA.BROWSE", queue, "CURSOR", cursor, "COUNT", 1).([]any)
		if !ok || len(page) != 2 {
			t.Fatalf("%v is no page", page)
		}
		for _, message := range page[1].([]any) {
			m := kit.Mapped(t, message)
			seen[fmt.Sprint(m["id"])] = m["status"]
		}
		if cursor = page[0]; cursor == "0" {
			return seen
		}
	}
}

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// A message with a deduplication id is stored once, across kills and clients.
func TestDedupWithGoRedisAcrossKills(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			queue := fmt.Sprintf("once-%d", protocol)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue, "DEDUPWINDOW", 600_000)
			first := kit.Do(t, c, "FILA.ENQUEUE", queue, "a", "DEDUP", "order-1")
			content := kit.Do(t, c, "FILA.ENQUEUE", queue, "b", "DEDUP", "*", "HEADER", "h", "1")
			if again := kit.Do(t, c, "FILA.ENQUEUE", queue, "other", "DEDUP", "order-1", "KEY", "k"); again != first {
				t.Errorf("answered %v, the first was %v", again, first)
			}
			refused(t, c, "INVALID", "FILA.ENQUEUE", queue, "x", "DEDUP", "")
			refused(t, c, "TOOBIG", "FILA.ENQUEUE", queue, "x", "DEDUP", strings.Repeat("x", 513))
			killAndRestart(t, b)
			c = kit.Connect(t, b.Addr(), protocol)
			if again := kit.Do(t, c, "FILA.ENQUEUE", queue, "other", "DEDUP", "order-1"); again != first {
				t.Errorf("after a kill: answered %v, the first was %v", again, first)
			}
			if again := kit.Do(t, c, "FILA.ENQUEUE", queue, "b", "DEDUP", "*", "HEADER", "h", "1"); again != content {
				t.Errorf("after a kill: answered %v, the first was %v", again, content)
			}
			if other := kit.Do(t, c, "FILA.ENQUEUE", queue, "b", "DEDUP", "*", "HEADER", "h", "2"); other == content {
				t.Error("another header is taken for the same content")
			}
			if ds := lease(t, c, queue, "COUNT", 10); len(ds) != 3 {
				t.Errorf("%d messages, want 3: %+v", len(ds), ds)
			}
			kit.Do(t, c, "FILA.QUEUE", "ALTER", queue, "DEDUPWINDOW", 0)
			refused(t, c, "INVALID", "FILA.ENQUEUE", queue, "x", "DEDUP", "order-1")
		})
	}
}

// A message not delivered within its TTL is dead-lettered with that reason, even if the TTL ends
// while the broker is down.
func TestTimeToLiveWithGoRedis(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			queue := fmt.Sprintf("mortal-%d", protocol)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
			refused(t, c, "INVALID", "FILA.ENQUEUE", queue, "x", "TTL", 100, "DELAY", 100)
			refused(t, c, "ERR", "FILA.ENQUEUE", queue, "x", "TTL", 0)
			short := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", queue, "short", "TTL", 300, "HEADER", "h", "1"))
			began := time.Now()
			down := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", queue, "down", "TTL", 1500))
			kit.Do(t, c, "FILA.ENQUEUE", queue, "stays", "TTL", 3_600_000)
			testkit.Eventually(t, "the message is dead", func() bool { return kit.Do(t, c, "FILA.GET", queue+".dlq", short) != nil })
			m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue+".dlq", short))
			if m["reason"] != "ttl" || m["origin"] != queue || m["payload"] != "short" || m["status"] != "dead" {
				t.Errorf("dead: %v", m)
			}
			kit.Kill(t, b)
			// The TTL ends while the broker is down.
			testkit.Eventually(t, "the TTL has passed", func() bool { return time.Since(began) > 1500*time.Millisecond })
			kit.Start(t, b)
			c = kit.Connect(t, b.Addr(), protocol)
			if d := one(t, c, queue); d.payload != "stays" {
				t.Errorf("delivered %q", d.payload)
			}
			testkit.Eventually(t, "the other message is dead", func() bool { return kit.Do(t, c, "FILA.GET", queue+".dlq", down) != nil })
			kit.WantStats(t, c, queue+".dlq", map[string]int64{"dead": 2})
		})
	}
}

// An ack and the enqueue that follows from it are one write: a kill keeps both or neither.
func TestTransactionsWithGoRedis(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), protocol)
			in, out := fmt.Sprintf("in-%d", protocol), fmt.Sprintf("out-%d", protocol)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", in)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", out)
			kit.Do(t, c, "FILA.ENQUEUE", in, "work")
			d := one(t, c, in)
			cmds, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Do(t.Context(), "FILA.ACK", in, d.receipt)
				p.Do(t.Context(), "FILA.ENQUEUE", out, "result-1")
				p.Do(t.Context(), "FILA.ENQUEUE", in+"-none", "x")
				p.Do(t.Context(), "FILA.ENQUEUE", out, "result-2")
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "NOQUEUE") {
				t.Errorf("the refusal of one command: %v", err)
			}
			if n, _ := cmds[0].(*redis.Cmd).Int(); n != 1 || cmds[3].Err() != nil {
				t.Errorf("acked %d; %v", n, cmds[3].Err())
			}
			killAndRestart(t, b)
			c = kit.Connect(t, b.Addr(), protocol)
			if ds := lease(t, c, out, "COUNT", 10); len(ds) != 2 || ds[0].payload != "result-1" {
				t.Errorf("after a kill: %+v", ds)
			}
			if ds := lease(t, c, in, "COUNT", 10); len(ds) != 0 {
				t.Errorf("after a kill %+v is back", ds)
			}
			_, err = c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Do(t.Context(), "FILA.ENQUEUE", out, "never")
				p.Do(t.Context(), "FILA.ENQUEUE", out)
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "ERR wrong number") && !strings.HasPrefix(err.Error(), "EXECABORT") {
				t.Errorf("a transaction with a command that is none: %v", err)
			}
			kit.WantStats(t, c, out, map[string]int64{"ready": 0, "leased": 2})
		})
	}
}

func killAndRestart(t *testing.T, b *harness.Broker) {
	t.Helper()
	kit.Kill(t, b)
	kit.Start(t, b)
}

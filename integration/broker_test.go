package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// serve starts a broker that can be killed and restarted at its address. At the end of the test it
// must stop cleanly, and it must never have panicked.
func serve(t *testing.T, args ...string) *harness.Broker {
	t.Helper()
	dir := t.TempDir()
	b, err := harness.New(binary(t), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("it did not stop in order: %v", err)
		}
		log, err := os.ReadFile(filepath.Join(dir, "fila.log"))
		if err != nil {
			t.Error(err)
		}
		if t.Failed() || strings.Contains(string(log), "panic") || strings.Contains(string(log), "fatal") {
			t.Errorf("the broker's log:\n%s", log[max(0, len(log)-10_000):])
		}
	})
	restart(t, b)
	return b
}

// restart starts a stopped broker and waits until it serves.
func restart(t *testing.T, b *harness.Broker) {
	t.Helper()
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// connect returns a go-redis client that does not retry commands, and that waits for blocked ones.
func connect(t *testing.T, addr string, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, MaxRetries: -1, ReadTimeout: patience})
	t.Cleanup(func() { c.Close() })
	return c
}

// do sends a command that must succeed.
func do(t *testing.T, c *redis.Client, args ...any) any {
	t.Helper()
	reply, err := c.Do(t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%.200q: %v", args, err)
	}
	return reply
}

// mapped converts a reply that is a map in RESP3 and a flat array in RESP2.
func mapped(t *testing.T, reply any) map[string]any {
	t.Helper()
	m := map[string]any{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			m[fmt.Sprint(k)] = v
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			m[fmt.Sprint(reply[i])] = reply[i+1]
		}
	default:
		t.Fatalf("%v is no map", reply)
	}
	return m
}

// delivery is a message in the reply to FILA.LEASE.
type delivery struct {
	receipt, payload, key string
	headers               []any
	attempt, deliveries   int64
	enqueuedAt, until     time.Time
	queue                 string
}

// id is the receipt up to the colon.
func (d *delivery) id() string {
	id, _, _ := strings.Cut(d.receipt, ":")
	return id
}

// leased parses the reply to a lease.
func leased(reply any) ([]delivery, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("%v (%T) is no array of messages", reply, reply)
	}
	deliveries := make([]delivery, len(list))
	for i, m := range list {
		f, ok := m.([]any)
		if !ok || len(f) < 9 {
			return nil, fmt.Errorf("%v is no message", m)
		}
		d := &deliveries[i]
		var enqueued, until int64
		all := true
		take := func(ok bool) { all = all && ok }
		d.receipt, ok = f[0].(string)
		take(ok)
		d.payload, ok = f[1].(string)
		take(ok)
		d.headers, ok = f[2].([]any)
		take(ok)
		d.key, ok = f[3].(string)
		take(ok)
		d.attempt, ok = f[4].(int64)
		take(ok)
		d.deliveries, ok = f[5].(int64)
		take(ok)
		enqueued, ok = f[6].(int64)
		take(ok)
		until, ok = f[7].(int64)
		take(ok)
		d.queue, ok = f[8].(string)
		take(ok)
		if !all {
			return nil, fmt.Errorf("a message has a field of another type: %v", f)
		}
		d.enqueuedAt, d.until = time.UnixMilli(enqueued), time.UnixMilli(until)
	}
	return deliveries, nil
}

// lease leases messages with additional arguments.
func lease(t *testing.T, c *redis.Client, queue string, args ...any) []delivery {
	t.Helper()
	d, err := leased(do(t, c, append([]any{"FILA.LEASE", queue}, args...)...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// one leases exactly one message, waiting for it.
func one(t *testing.T, c *redis.Client, queue string, args ...any) delivery {
	t.Helper()
	d := lease(t, c, queue, append([]any{"BLOCK", patience.Milliseconds() / 2}, args...)...)
	if len(d) != 1 {
		t.Fatalf("leased %d messages of %s, want 1", len(d), queue)
	}
	return d[0]
}

// stats returns the statistics of a queue.
func stats(t *testing.T, c *redis.Client, queue string) map[string]any {
	t.Helper()
	return mapped(t, do(t, c, "FILA.STATS", queue))
}

// wantStats polls until a queue's statistics match, and fails if they do not in time.
func wantStats(t *testing.T, c *redis.Client, queue string, want map[string]int64) {
	t.Helper()
	var got map[string]any
	same := func() bool {
		got = stats(t, c, queue)
		for name, n := range want {
			if got[name] != n {
				return false
			}
		}
		return true
	}
	for end := time.Now().Add(patience); !same(); {
		if time.Now().After(end) {
			t.Fatalf("%s: want %v, got %v", queue, want, got)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// raw is a connection without a client library.
func raw(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

package integration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

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
	d, err := leased(kit.Do(t, c, append([]any{"FILA.LEASE", queue}, args...)...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// one leases exactly one message, waiting for it.
func one(t *testing.T, c *redis.Client, queue string, args ...any) delivery {
	t.Helper()
	d := lease(t, c, queue, append([]any{"BLOCK", testkit.Patience().Milliseconds() / 2}, args...)...)
	if len(d) != 1 {
		t.Fatalf("leased %d messages of %s, want 1", len(d), queue)
	}
	return d[0]
}

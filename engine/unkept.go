package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// A hook decides on the connection, without knowing the queue as it is when the message
// comes to it. So a decision that keeps to Limits may still be one that the queue cannot
// keep: a delay that ends after the message's time to live. A hook must not fail a
// command, so that delay is left out, the rest of the decision holds, and the hook
// counts an error.

// times returns when a message that is enqueued now is ready, which may be past, and
// when its time to live ends, 0 for never. The delay of the hook goes before that of the
// producer, unless it cannot be kept.
func (c *core) times(q *queue, req *Enqueue) (readyAt, expires int64, err error) {
	if d := req.hookDelay; d != nil {
		readyAt = c.now + int64(*d)
		if expires, err = c.lifetime(q, req.TTL, readyAt); err == nil {
			return readyAt, expires, nil
		}
	}
	own := req.At
	if req.Delay > 0 {
		own = c.now + int64(req.Delay)
	}
	if expires, err = c.lifetime(q, req.TTL, own); err != nil {
		return 0, 0, err
	}
	if req.hookDelay != nil {
		c.notKept(unkeptDelay{hook: req.hook, at: c.now, delay: *req.hookDelay, ttl: time.Duration(expires - c.now)})
	}
	return own, expires, nil
}

// unkept tells hooks of delays that could not be kept, beside the loop: a hook counts
// under a lock.
type unkept struct{ all []unkeptDelay }

type unkeptDelay struct {
	hook       hook.Hook
	at         int64
	delay, ttl time.Duration
}

// notKept has a hook count an error. Those of one batch go together.
func (c *core) notKept(d unkeptDelay) {
	if n := len(c.out.jobs); n > 0 {
		if u, ok := c.out.jobs[n-1].(*unkept); ok {
			u.all = append(u.all, d)
			return
		}
	}
	c.out.jobs = append(c.out.jobs, &unkept{[]unkeptDelay{d}})
}

func (u *unkept) do(Store) {
	for _, d := range u.all {
		d.hook.NotKept(unix(d.at), fmt.Sprintf("result field 'delay_ms' is %d, it must be less than the time to live of the message, %d ms",
			d.delay.Milliseconds(), d.ttl.Milliseconds()))
	}
}

// Apply implements Call: nothing follows from it.
func (u *unkept) Apply(*Tx) error { return nil }

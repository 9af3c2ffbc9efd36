package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/scripts"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Ordered queues. Of each fairness key of an ordered queue, at most one message is out. A message
// is out while it is leased, and while it is retrying: it has failed, and waits for its next
// attempt. The key is in no class meanwhile (waitsForOne), so nothing of it is delivered:
//
//	ready ──lease──▶ leased ──ack, cancel, dead, TTL──▶ gone: the next message of the key may go out
//	  ▲                │ └─release, retry at once──▶ ready: the first of its key again
//	  │                └─retry with a delay────────▶ retrying
//	  └──its time has come, reschedule───────────────┘ └─cancel, TTL──▶ gone
//
// A retrying message is in core.leases with the status leased, so that recovery finds all of them: it
// reads all lease records, but only the head of the index of due times. Its timer is until, its
// record has Retrying set. It has no receipt and no consumer, holds no slots of throttles and no
// credits, and is reported as delayed. It has a delivery number of its own: nothing that refers to
// the lease before, such as a deferred record, takes it for that lease.
//
// The order is that of positions: of priority, then of ids. As PRIORITY is refused, and the one of
// a hook is ignored, messages have different priorities only if a redrive has brought them from
// another queue. What returns to an ordered queue takes its place, before those enqueued later.
//
// A delivery is no early reply before all messages of its key that are gone have been removed by a
// commit, whether they were out or ready. Otherwise a crash could bring back a message that its
// successor has overtaken.

// keyOrder is the state of the keys of an ordered queue, in one slice: the keys of other queues do
// not pay for it with their size.
type keyOrder struct {
	keys []outgoing // by fairKey.out - 1
	free []uint32   // values of fairKey.out that no key has
}

// outgoing is the state of a key that has had a message out, or removed.
type outgoing struct {
	m       *message // that is out; nil: none
	removed uint64   // number of the batch that removes the last message of the key that is gone; 0: none
}

// ordered reports whether at most one message of each key is out at a time.
func (q *queue) ordered() bool { return q.set.Values[queueset.Ordered] > 0 }

// of returns the state of a key, which is added if it has none.
func (o *keyOrder) of(k *fairKey) *outgoing {
	if k.out == 0 {
		if n := len(o.free); n > 0 {
			k.out, o.free = o.free[n-1], o.free[:n-1]
		} else {
			o.keys = append(o.keys, outgoing{})
			k.out = uint32(len(o.keys))
		}
	}
	return &o.keys[k.out-1]
}

// forget drops the state of a key without messages. A message that is enqueued into the key from
// now on is not committed before what has removed the last one.
func (o *keyOrder) forget(k *fairKey) {
	if k.out != 0 {
		o.keys[k.out-1] = outgoing{}
		o.free = append(o.free, k.out)
		k.out = 0
	}
}

// outOf returns the message of the key that is out; nil: none, or the queue is not ordered.
func (k *fairKey) outOf() *message {
	if k.out == 0 {
		return nil
	}
	return k.queue.sequence.keys[k.out-1].m
}

// retryingCount is how many messages of the key are retrying, 0 or 1.
func (k *fairKey) retryingCount() int64 {
	if m := k.outOf(); m != nil && m.retrying {
		return 1
	}
	return 0
}

// waitsForOthers reports whether the key is in the state ordered: one of its messages is retrying, or
// leased while others are ready. A key whose only message is leased is in the state leased.
func (k *fairKey) waitsForOthers() bool {
	return k.waitsForOne() && (k.window.Len() > 0 || k.window.More() || k.retryingCount() > 0)
}

// isOut records that a message of an ordered queue is leased. It reports whether all messages
// of the key that are gone have been removed by batches that are committed.
func (c *core) isOut(m *message) bool {
	o := m.key.queue.sequence.of(m.key)
	o.m = m
	return o.removed <= c.out.committed
}

// goneInOrder records that the open batch removes a message: until its commit, a crash would bring
// the message back.
func (c *core) goneInOrder(m *message) {
	if q := m.key.queue; q.ordered() {
		q.sequence.of(m.key).removed = c.out.batchNo
	}
}

// leaveOrder ends that a message is out, as a part of endLease.
func (c *core) leaveOrder(m *message) {
	q := m.key.queue
	if m.retrying {
		q.figures.Change(figures.Messages{Retrying: -1})
	}
	if o := m.key; o.out != 0 {
		if at := &q.sequence.keys[o.out-1]; at.m == m {
			at.m = nil
		}
	}
}

// enterOrder records a lease that was read from the store.
func (c *core) enterOrder(m *message) {
	q := m.key.queue
	if m.retrying {
		q.figures.Change(figures.Messages{Retrying: 1})
	}
	if q.ordered() {
		q.sequence.of(m.key).m = m
		c.settle(m.key)
	}
}

// retryInOrder makes a message of an ordered queue that is in no structure retrying, until a time. The
// caller has written its attempt, and settles its key.
func (c *core) retryInOrder(m *message, until int64) {
	k := m.key
	m.status = leased
	m.fence = max(m.fence, c.fenceBase()) + 1
	m.lease = lease{until: until, retrying: true}
	c.leases.byID[m.id] = m
	c.leases.ends.Push(m)
	k.leased++
	k.queue.figures.Change(figures.Messages{Leased: 1, Retrying: 1})
	k.queue.sequence.of(k).m = m
	c.writeLease(m)
	c.releaseBody(m)
}

// retryingOf returns the retrying message with an id, or nil if no such message of the key is retrying.
func (c *core) retryingOf(k *fairKey, id ID) *message {
	if m := c.leases.byID[id]; m != nil && m.key == k && m.retrying {
		return m
	}
	return nil
}

// checkOrder refuses what an ordered queue cannot do with a message.
func (q *queue) checkOrder(req *Enqueue) error {
	var option string
	switch {
	case !q.ordered() || req.Priority == nil && req.Delay <= 0 && req.At <= 0:
		return nil
	case req.Priority != nil:
		option = "PRIORITY"
	case req.Delay > 0:
		option = "DELAY"
	default:
		option = "AT"
	}
	return fmt.Errorf("%w: %q is ordered and takes no %s, FILA.QUEUE ALTER %s ORDERED OFF allows it while the queue is empty", ErrInvalid, q.name, option, q.name)
}

// rankOf returns the rank of a message that is enqueued. The priority of the hook takes precedence
// over that of the producer; an ordered queue has neither.
func (c *core) rankOf(q *queue, req *Enqueue) uint8 {
	p := req.Priority
	if h := req.hookPriority; h != nil && q.ordered() {
		c.reportRejected(scripts.Rejection{Hook: req.hook, At: c.now, Field: "priority", Value: int64(*h)})
	} else if h != nil {
		p = h
	}
	if p == nil {
		return defaultRank
	}
	return storage.PriorityMax - *p
}

// checkOrdered verifies what is out of the keys of a queue (32).
func (c *core) checkOrdered(q *queue, bad report) {
	retrying := int64(0)
	for k := range q.roster.All() {
		m := k.outOf()
		retrying += k.retryingCount()
		if q.ordered() && k.leased > 1 || (m != nil) != (q.ordered() && k.leased > 0) {
			bad(32, "key %q of %q has %d messages out, one is known %v", k.name, q.name, k.leased, m != nil)
		}
		if m != nil && (c.leases.byID[m.id] != m || m.key != k) {
			bad(32, "message %s of key %q of %q is not out", m.id, k.name, q.name)
		}
		if q.ordered() && k.counted && k.delayed != 0 {
			bad(32, "key %q of %q, which is ordered, has %d delayed messages", k.name, q.name, k.delayed)
		}
	}
	if q.ordered() && retrying != q.figures.Retrying {
		bad(32, "queue %q: %d messages are retrying, %d are counted", q.name, retrying, q.figures.Retrying)
	}
}

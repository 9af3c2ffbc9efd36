package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// LeaseRequest asks for messages of one queue or of several.
type LeaseRequest struct {
	Queues     []string
	Count      int           // at most so many, never waiting to fill it; at least 1
	Block      time.Duration // how long to wait for the first; negative: not at all, 0: for ever
	Visibility time.Duration // of the leases; 0: each queue's own
	Consumer   string

	parts *leaseParts // of a large one that goes on in a later turn
}

// Delivery is a message that was handed to a client. Load must be called before
// Payload and Headers.
type Delivery struct {
	Receipt    Receipt
	Queue, Key string
	Attempt    uint32 // 1 plus the failures so far
	Deliveries uint32 // hand-outs including this one
	EnqueuedAt time.Time
	LeaseUntil time.Time

	mk      storage.MessageKey
	record  []byte
	message storage.Message
	stored  bool // the reply need not wait for a commit, see told.go
}

// Payload returns the message's payload. It must not be changed.
func (d *Delivery) Payload() []byte { return d.message.Payload }

// Headers returns the message's headers. They must not be changed.
func (d *Delivery) Headers() []Header { return d.message.Headers }

// Held is how many bytes of memory the delivery keeps that could be read again.
func (d *Delivery) Held() int { return len(d.record) }

// Release lets go of the message's record: until Load, Payload and Headers are empty.
func (d *Delivery) Release() {
	d.record = nil
	d.message = storage.Message{Throttles: d.message.Throttles}
}

// Load makes payload and headers of a delivery available, reading them from the
// store if they are not in memory. It runs on the connection. ErrNoMessage says
// that the message was removed since it was leased (by its bare id, or with its
// queue): it has to be left out of the reply.
func (e *Engine) Load(d *Delivery) error { return load(d, e.store) }

func load(d *Delivery, store Store) error {
	if d.record == nil {
		b, err := store.Get(storage.Messages, d.mk.Append(nil))
		if errors.Is(err, storage.ErrNotFound) {
			return fmt.Errorf("%w: %s", ErrNoMessage, d.mk.ID)
		}
		if err != nil {
			return fmt.Errorf("load message %s: %w", d.mk.ID, err)
		}
		d.record = b
	}
	if err := d.message.DecodeLike(d.record, d.message.Throttles); err != nil {
		return fmt.Errorf("load message %s: %w", d.mk.ID, err)
	}
	return nil
}

// Lease hands out ready messages, in turns among the queues. If there are none
// it returns ErrWouldBlock where the request blocks, else an empty slice.
func (tx *Tx) Lease(req *LeaseRequest) ([]*Delivery, error) {
	c := tx.core
	if !tx.atomic && req.Count > c.leasePart() {
		return tx.leaseMany(req)
	}
	if cl := tx.task.Client; cl != nil && cl.gone {
		return nil, ErrClientGone // nobody would take them, and it could wait for ever
	}
	var few [4]*queue // the usual number of queues needs no allocation
	queues := few[:0]
	for _, name := range req.Queues {
		q, err := c.queueNamed(name)
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	if err := c.writable(); err != nil && tx.task.wait == nil {
		return nil, err
	}
	if tx.task.wait == nil {
		c.wakeAll()
		for _, q := range queues { // those that wait already come first
			if q.offered && q.waiters.first != nil {
				c.serveQueue(q)
			}
		}
	}
	ds := c.deliver(queues, req)
	if len(ds) > 0 {
		tx.stored = !tx.atomic && !slices.ContainsFunc(ds, func(d *Delivery) bool { return !d.stored })
		return ds, nil
	}
	if tx.atomic {
		return nil, nil
	}
	if req.Block >= 0 {
		tx.park(queues, c.blockUntil(req.Block), false)
		return nil, ErrWouldBlock
	}
	for _, q := range queues {
		if q.awaitingRead > 0 {
			tx.park(queues, 0, true)
			return nil, ErrWouldBlock
		}
	}
	return nil, nil
}

// PreflightLease waits for what Lease could take once it has been read from disk.
func (tx *Tx) PreflightLease(req *LeaseRequest) error {
	tx.preflight.lease(req.Queues)
	var queues []*queue
	loading := false
	for _, name := range req.Queues {
		q := tx.core.queues.byName[name]
		if q == nil {
			return nil // which Lease will say
		}
		if q.scheduler.loaded() && !q.set.PausedOut {
			return nil
		}
		loading = loading || q.awaitingRead > 0
		queues = append(queues, q)
	}
	if !loading {
		return nil
	}
	tx.park(queues, 0, true)
	return ErrWouldBlock
}

// deliver leases up to req.Count messages, one of each queue in turn.
func (c *core) deliver(queues []*queue, req *LeaseRequest) []*Delivery {
	if c.health.failed != nil {
		return nil
	}
	var ds []*Delivery
	most := max(req.Count, 1)
	turn := c.waits.rotations.of(queues)
	at := turn.start(queues)
	for empty := 0; empty < len(queues) && len(ds) < most; at++ {
		q := queues[at%len(queues)]
		if len(ds)%prefetchMax == 0 {
			c.prefetchRound(q, most-len(ds))
		}
		m := c.take(q)
		if m == nil {
			empty++
			continue
		}
		empty = 0
		turn.served(q)
		if ds == nil {
			ds = make([]*Delivery, 0, min(req.Count, q.scheduler.keys*4+16))
		}
		visibility := req.Visibility
		if visibility <= 0 {
			visibility = time.Duration(q.set.VisibilityMs) * time.Millisecond //nolint:gosec // bounded when it is set
		}
		ds = append(ds, c.lease(m, visibility, req.Consumer))
	}
	return ds
}

// take takes the queue's next message out of its window, or returns nil. The
// caller must lease, move or put it back before the turn ends.
func (c *core) take(q *queue) *message {
	if q.set.PausedOut {
		return nil
	}
	k := c.pick(q)
	for k == nil && len(c.throttles.notified) > 0 && c.throttles.waking == nil && c.room() {
		// What was taken last may have left the turn to another class, and so may each one
		// that was woken and is stopped by another throttle.
		c.wakeAll()
		k = c.pick(q)
	}
	if k == nil {
		return nil
	}
	m := k.pop()
	c.heads.messages--
	k.stats.deliver(c.now, m.cost)
	q.share.add(c.now, uint64(m.cost))
	k.leased++ // keeps the key
	q.leased++
	c.settle(k)
	return m
}

// lease starts the lease of a message that take has returned.
func (c *core) lease(m *message, visibility time.Duration, consumer string) *Delivery {
	c.spend(1)
	m.status = leased
	m.fence = max(m.fence, c.fenceBase()) + 1
	m.deliveries++
	m.lease = lease{until: c.now + int64(visibility), since: c.now, consumer: consumer}
	c.leases.byID[m.id] = m
	c.leases.ends.push(m)
	if m.throttles != nil {
		c.useUnset(m)
	}
	if c.cfg.LeaseLag > 0 {
		c.leases.deferred = append(c.leases.deferred, deferredLease{m: m, fence: m.fence, due: c.now + int64(c.cfg.LeaseLag)})
	} else {
		c.writeLease(m)
	}
	q := m.key.queue
	q.totals.delivered++
	d := &Delivery{
		Receipt: Receipt{ID: m.id, Fence: m.fence}, Queue: q.name, Key: m.key.name, Attempt: m.attempt, Deliveries: m.deliveries,
		EnqueuedAt: idTime(m.id), LeaseUntil: time.Unix(0, m.until), mk: m.storageKey(), record: m.body,
		stored: c.mayReplyEarly(m),
	}
	d.message.Throttles = m.throttleKeys() // so that load need not make them
	c.releaseBody(m)
	return d
}

// fenceBase is below every delivery number of this start and above those of all
// starts before: a lease whose record was elided and lost in a crash cannot be
// mistaken for a later one.
func (c *core) fenceBase() uint64 { return (c.epoch - 1) << 32 }

// deferredLease is a lease whose record has to be written at a time, if it lasts.
type deferredLease struct {
	m     *message
	fence uint64
	due   int64
}

func (l *deferredLease) live() bool {
	return l.m.status == leased && l.m.fence == l.fence && !l.m.key.purged()
}

// writeDeferredLeases writes the records of leases that have lasted long enough.
func (c *core) writeDeferredLeases() {
	for c.room() && len(c.leases.deferred) > 0 && (c.leases.deferred[0].due <= c.now || !c.leases.deferred[0].live()) {
		c.spend(1)
		if c.leases.deferred[0].live() {
			c.writeLease(c.leases.deferred[0].m)
		}
		c.leases.deferred[0].m = nil
		c.leases.deferred = c.leases.deferred[1:]
	}
}

// writeLease makes a lease survive a restart. Losing it to a power cut means an
// early redelivery, which at-least-once allows: it needs no sync of its own.
func (c *core) writeLease(m *message) {
	rec := storage.Lease{
		Until: m.until, Consumer: m.consumer, Attempt: m.attempt, Deliveries: m.deliveries,
		Throttles: m.throttleKeys(), Cost: m.cost, LeasedAt: m.since, Retried: m.retried, ExpiresAt: m.expires,
	}
	if f := m.failure; f != nil {
		rec.Error, rec.FirstFailedAt, rec.LastFailedAt = f.text, f.first, f.last
	}
	c.out.batch.Put(storage.Leases, storage.AppendLeaseKey(nil, m.storageKey(), m.fence), rec.Append(nil))
	if m.writes < 2 {
		m.writes++
	}
}

// endLease takes a message out of what holds leased ones, and its record off
// the disk. The caller gives it its next status.
func (c *core) endLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.remove(m)
	if m.throttles != nil {
		c.endUse(m)
	}
	if m.expires != 0 {
		c.restoreExpiry(m)
	}
	m.key.leased--
	m.key.queue.leased--
	if m.writes > 0 {
		c.out.sync = true // or a power loss could bring it back beside the lease that follows
		key := storage.AppendLeaseKey(nil, m.storageKey(), m.fence)
		if m.writes == 1 {
			c.out.batch.SingleDelete(storage.Leases, key)
		} else {
			c.out.batch.Delete(storage.Leases, key)
		}
	}
	m.lease = lease{}
}

// held finds the message whose lease a receipt stands for, or nil. A lease whose time is
// over is worth nothing from then on, also where expire has yet to come to it.
func (c *core) leaseOf(q *queue, r Receipt) *message {
	m := c.leases.byID[r.ID]
	if m == nil || m.key.queue != q || m.key.purged() || m.judged || m.until <= c.now || !r.Bare && m.fence != r.Fence {
		return nil
	}
	return m
}

func (m *message) before(o *message) bool { return m.until < o.until }
func (m *message) index() *int            { return &m.timer }

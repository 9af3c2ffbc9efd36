package engine

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/storage"
)

// A lease and its states. A message is leased from take and lease until endLease; in
// between it is in core.leases only, not in its key's head cache.
//
//   ready ──lease──▶ leased ──Ack────────────────▶ gone
//                      │ ├────Nack, expiry───────▶ ready, delayed, dead or gone
//                      │ ├────Release, Undeliver─▶ ready
//                      │ └────Cancel─────────────▶ gone
//                      └─Extend: leased, with a new end
//
// The record of a lease is deferred: it is written once the lease has lasted for
// Config.LeaseWriteDelay. Most leases end before that and cost no write. A crash forgets unwritten
// leases; their messages are delivered again, which at-least-once delivery allows, under
// higher delivery numbers (fenceBase), so that old receipts stay invalid.

// LeaseRequest asks for ready messages of one or more queues.
type LeaseRequest struct {
	Queues     []string
	Count      int           // the most to deliver, at least 1; a lease never waits to reach it
	Block      time.Duration // how long to wait for the first message; negative: not at all, 0: without limit
	Visibility time.Duration // duration of the leases; 0: the setting of each queue
	Consumer   string        // a name for FILA.GET and FILA.BROWSE; may be empty

	parts *leaseParts // progress of a large request that takes several turns
}

// Delivery is a leased message on its way to a client. Receipt proves the lease to Ack,
// Nack, Extend and Release. Payload and Headers are empty until Load has succeeded.
type Delivery struct {
	Receipt    Receipt
	Queue, Key string
	Attempt    uint32 // 1 plus the failures so far
	Deliveries uint32 // deliveries so far, this one included
	EnqueuedAt time.Time
	LeaseUntil time.Time
	Visibility time.Duration // the lease began so long before LeaseUntil
	// Waited is how long the message was ready before the lease. For a message that was read
	// from disk it is as exact as the records: they do not have the time of a release or a redrive.
	Waited time.Duration
	// Kept is set if the transaction that has leased the message has removed it as well: it is in no
	// queue to which it could return, and Load does not read.
	Kept bool

	mk      storage.MessageKey
	record  []byte
	message storage.Message
	stored  bool // the reply may leave before the commit, see mayReplyEarly
}

// Payload returns the payload. The caller must not change it.
func (d *Delivery) Payload() []byte { return d.message.Payload }

// Headers returns the headers. The caller must not change them.
func (d *Delivery) Headers() []Header { return d.message.Headers }

// Priority returns the priority of the message, 0 to 9.
func (d *Delivery) Priority() uint8 { return priorityMax - d.mk.Rank }

// Held returns how many bytes Release would free.
func (d *Delivery) Held() int { return len(d.record) }

// Release frees the record to save memory while a reply waits. Payload and Headers are
// empty until Load reads the record again.
func (d *Delivery) Release() {
	d.record = nil
	d.message = storage.Message{Meta: d.message.Meta}
}

// Load makes payload and headers of the first delivery available, from memory or from the store. Where
// the store can, it reads the records of the next few that are not in memory at the same time, as far as
// LoadBytes are enough for all: their Load does not read again. It returns the bytes that it has read. It
// runs on the goroutine of the connection. It returns ErrNoMessage if the message was removed after its
// delivery, for instance by Purge or by Ack with the bare id; the caller leaves such a delivery out of
// the reply. Other errors are those of the store.
func (e *Engine) Load(ds []*Delivery) (read int, err error) { return load(ds, e.store) }

// LoadBytes bounds what Load reads for other deliveries than the first.
const LoadBytes = 64 << 10

// load is Load for any store; the simulation has its own.
func load(ds []*Delivery, store Store) (read int, err error) {
	d := ds[0]
	if d.record == nil {
		read = loadAhead(ds, store)
	}
	if d.record == nil {
		b, err := storage.GetMessage(store, d.mk.Append(nil))
		if errors.Is(err, storage.ErrNotFound) {
			return 0, fmt.Errorf("%w: %s", ErrNoMessage, d.mk.ID)
		}
		if err != nil {
			return 0, fmt.Errorf("load message %s: %w", d.mk.ID, err)
		}
		d.record, read = b, len(b)
	}
	if err := d.message.DecodeLike(d.record, d.message.Throttles, d.message.Budgets); err != nil {
		return read, fmt.Errorf("load message %s: %w", d.mk.ID, err)
	}
	return read, nil
}

// loadAhead reads the records of the first deliveries without one, as many as the store reads at a time.
func loadAhead(ds []*Delivery, store Store) (read int) {
	const most = 16
	var wanting [most]*Delivery
	var keys [most][]byte
	n := 0
	for i := 0; i < len(ds) && n < most; i++ {
		if d := ds[i]; d.record == nil {
			wanting[n], keys[n] = d, d.mk.Append(nil)
			n++
		}
	}
	if n == 1 {
		return 0
	}
	for i, record := range storage.GetMessages(store, keys[:n], LoadBytes) {
		wanting[i].record = record
		read += len(record)
	}
	return read
}

// Lease delivers ready messages, alternating between the queues. Consumers that wait for
// these queues already are served before it. Without a ready message it returns
// ErrWouldBlock and parks the task: where the request blocks, until its deadline, or
// without a deadline while messages are being read from disk. Else it returns an empty
// slice.
//
// Errors: ErrClientGone if the client has disconnected, an error of an unknown queue, and
// ErrMisconf while the store takes no writes. A task that waits already stays parked then
// and is not refused. In a transaction Lease never parks: PreflightLease has waited for the
// reads.
func (tx *Tx) Lease(req *LeaseRequest) ([]*Delivery, error) {
	c := tx.core
	if !tx.atomic && req.Count > c.leasePart() {
		return tx.leaseMany(req)
	}
	if cl := tx.task.Client; cl != nil && cl.gone {
		return nil, ErrClientGone // no client would receive the messages, and the wait might never end
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
		c.serveReady() // earlier consumers come first
	}
	ds := c.deliver(queues, req, tx.task.wait != nil)
	if len(ds) > 0 {
		tx.noteDelivered(ds)
		tx.leased, tx.stored = true, !tx.atomic && !slices.ContainsFunc(ds, func(d *Delivery) bool { return !d.stored })
		return ds, nil
	}
	if tx.atomic {
		return nil, nil
	}
	if req.Block >= 0 {
		return nil, tx.park(waitMessages, queues, tx.blockUntil(req.Block))
	}
	for _, q := range queues {
		if q.awaitingRead > 0 {
			return nil, tx.park(waitReads, queues, 0)
		}
	}
	return nil, nil
}

// PreflightLease parks a transaction until the messages that Lease could deliver are in
// memory. An error of the request itself is left to Lease.
func (tx *Tx) PreflightLease(req *LeaseRequest) error {
	tx.preflight.lease(req.Queues)
	var queues []*queue
	loading := false
	for _, name := range req.Queues {
		q := tx.core.queues.byName[name]
		if q == nil {
			return nil // Lease reports the error
		}
		if q.order.Loaded() && !q.set.PausedOut {
			return nil
		}
		loading = loading || q.awaitingRead > 0
		queues = append(queues, q)
	}
	if !loading {
		return nil
	}
	return tx.park(waitPreflight, queues, 0)
}

// lease makes a message that take returned leased, and returns its delivery. The delivery
// number exceeds all earlier ones of the message and those of all earlier starts. The lease
// record is deferred if Config.LeaseWriteDelay is set.
func (c *core) lease(m *message, visibility time.Duration, consumer string) *Delivery {
	c.spend(1)
	m.status = leased
	m.fence = max(m.fence, c.fenceBase()) + 1
	m.deliveries++
	m.lease = lease{until: c.now + int64(visibility), consumer: consumer}
	q := m.key.queue
	waited := time.Duration(max(c.now-m.since, 0))
	m.since = c.order.LeaseTime()
	c.leases.byID[m.id] = m
	c.leases.ends.Push(m)
	inOrder := !q.ordered() || c.isOut(m)
	if c.cfg.LeaseWriteDelay > 0 {
		c.leases.deferred = append(c.leases.deferred, deferredLease{m: m, fence: m.fence, due: c.now + int64(c.cfg.LeaseWriteDelay)})
	} else {
		c.writeLease(m)
	}
	q.figures.Delivered(waited)
	d := &Delivery{
		Receipt: Receipt{ID: m.id, Fence: m.fence}, Queue: q.name, Key: m.key.name, Attempt: m.attempt, Deliveries: m.deliveries,
		EnqueuedAt: idTime(m.id), LeaseUntil: time.Unix(0, m.until), Visibility: visibility, Waited: waited, mk: m.storageKey(), record: m.body,
		stored: inOrder && c.mayReplyEarly(m),
	}
	d.message.Meta = m.meta() // load reuses what its record has as well, instead of allocating
	c.releaseBody(m)
	return d
}

// fenceBase is less than all delivery numbers of this start and greater than those of all
// earlier starts. A crash can lose a deferred lease record; this base keeps the receipt of
// the lost lease from matching a later lease of the same message.
func (c *core) fenceBase() uint64 { return (c.epoch - 1) << 32 }

// deferredLease is a lease whose record has not been written. It is due Config.LeaseWriteDelay
// after the delivery.
type deferredLease struct {
	m     *message
	fence uint64
	due   int64
}

// live reports whether the lease still exists: the message may have been leased anew since,
// or its queue purged.
func (l *deferredLease) live() bool {
	return l.m.status == leased && l.m.fence == l.fence && !l.m.key.purged()
}

// writeDeferredLeases writes the records of leases that are due, within the budget. Entries
// of ended leases are dropped without a write.
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

// writeLease writes the lease record, which makes the lease survive a restart. It asks for
// no sync: a power failure that loses the record causes one early redelivery, which
// at-least-once delivery allows.
func (c *core) writeLease(m *message) {
	rec := storage.Lease{
		Meta: m.meta(), Until: m.until, Consumer: m.consumer, Attempt: m.attempt, Deliveries: m.deliveries,
		LeasedAt: m.since, Retried: m.retried, Retrying: m.retrying,
	}
	if f := m.failure; f != nil {
		rec.Error, rec.FirstFailedAt, rec.LastFailedAt = f.text, f.first, f.last
	}
	c.out.batch.Put(storage.Leases, storage.AppendLeaseKey(nil, m.storageKey(), m.fence), rec.Append(nil))
	if m.writes < 2 {
		m.writes++
	}
}

// endLease removes a message from the lease table, returns its throttle slots and deletes
// the lease record. Every end of a lease goes through it but that of a purged queue
// (dropLease), whose records go by range. The caller gives the message its next state in
// the same turn.
func (c *core) endLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.Remove(m)
	c.returnShares(m)
	c.leaveOrder(m)
	if m.expires != 0 {
		c.restoreExpiry(m)
	}
	m.key.leased--
	m.key.queue.figures.Change(figures.Messages{Leased: -1})
	if m.writes > 0 {
		c.out.sync = true // a power loss must not bring the record back beside a later lease
		key := storage.AppendLeaseKey(nil, m.storageKey(), m.fence)
		// SingleDelete is cheaper, and valid only for a key that was written once.
		if m.writes == 1 {
			c.out.batch.SingleDelete(storage.Leases, key)
		} else {
			c.out.batch.Delete(storage.Leases, key)
		}
	}
	m.lease = lease{}
}

// returnShares returns what a lease holds of throttles and budgets.
func (c *core) returnShares(m *message) {
	if m.throttles != nil && !m.retrying {
		c.order.End(m.throttles.of())
	}
	if m.reserved != 0 {
		c.returnCharge(m)
	}
}

// leaseOf returns the message whose live lease a receipt names, or nil. A lease is invalid
// from the moment it ends, even if expire has not processed it yet. A bare id matches any
// live lease of its message.
func (c *core) leaseOf(q *queue, r Receipt) *message {
	m := c.leases.byID[r.ID]
	if m == nil || m.key.queue != q || m.key.purged() || m.deciding || m.retrying || m.until <= c.now || !r.Bare && m.fence != r.Fence {
		return nil
	}
	return m
}

// leaseWalk iterates over the live leases in several turns. It visits a lease that lasts
// throughout exactly once, which Go guarantees for a map that changes during a range. The order
// is that of the map, and the results of a walk must not depend on it. A walk is invalid after
// a recovery, which increases the epoch.
type leaseWalk struct {
	epoch uint64
	it    *reflect.MapIter
}

// leasesPerUnit is the number of leases per unit of work. Each visit is a likely cache miss.
const leasesPerUnit = 2

// walkLeases starts a walk.
func (c *core) walkLeases() *leaseWalk {
	return &leaseWalk{epoch: c.epoch, it: reflect.ValueOf(c.leases.byID).MapRange()}
}

// each calls fn with the leases until fn returns false or the step has no budget left. It
// reports whether the walk is over; if it is not, the task must yield and continue in a later
// turn.
func (w *leaseWalk) each(tx *Tx, fn func(m *message) bool) (over bool) {
	for n := 0; n%leasesPerUnit != 0 || tx.more(); n++ {
		if !w.it.Next() {
			return true
		}
		if m, ok := reflect.TypeAssert[*message](w.it.Value()); !ok || !fn(m) {
			return true
		}
	}
	return false
}

func (m *message) Before(o *message) bool { return m.until < o.until }
func (m *message) Index() *int            { return &m.timer }

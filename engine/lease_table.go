package engine

import (
	"reflect"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/delivery"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// leaseTable is the set of live leases, with their timers. A leased message is in byID and
// in ends (invariant 15); its state transitions are drawn in lease.go.
//
// When a lease expires:
//
//	leased ──purged queue────────────────────▶ gone (dropLease)
//	       ──retrying, its time has come─────▶ ready
//	       ──ended while the broker was down─▶ ready, without a failure
//	       ──on_failure hook─▶ deciding ──decision, or hookDecisionMax─┐
//	       ──no hook───────────────────────────────────────────────────┴─▶ endExpired
//
// A message that a hook decides about stays in the table so that it keeps its throttle slots
// and its record, but its receipt is invalid.
type leaseTable struct {
	byID     map[ID]*message
	ends     intrusive.Heap[*message] // by the end of the lease
	deferred []deferredLease          // leases without a record so far, oldest first
	register consumers.Register       // the consumers that hold them, and those that wait

	notes delivery.NoteTable[*message] // of the leases that have some
}

func (t *leaseTable) reset() {
	*t = leaseTable{byID: map[ID]*message{}, notes: delivery.NewNoteTable[*message]()}
}

// next returns when the first lease expires, or the first deferred record is due.
func (t *leaseTable) next(*core) int64 {
	at := int64(never)
	if m, ok := t.ends.First(); ok {
		at = m.until
	}
	if len(t.deferred) > 0 {
		at = min(at, t.deferred[0].due)
	}
	return at
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

// unwritten reports whether the lease still exists and has no record: what takes a unique id that it has
// lent has written it before its time, as an Extend does with the record of an old lease.
func (l *deferredLease) unwritten() bool { return l.live() && l.m.writes == 0 }

// writeDeferredLeases writes the records of leases that are due, within the budget. Entries
// of ended leases are dropped without a write.
func (c *core) writeDeferredLeases() {
	for c.room() && len(c.leases.deferred) > 0 && (c.leases.deferred[0].due <= c.now || !c.leases.deferred[0].live()) {
		c.spend(1)
		if c.leases.deferred[0].unwritten() {
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
	c.dedup.freeLent(c, m)
	rec := storage.Lease{
		Meta: m.meta(), Until: m.until, Consumer: m.held.Name(), Attempt: m.attempt, Deliveries: m.deliveries,
		LeasedAt: m.since, Retried: m.retried, Retrying: m.retrying, FirstLeasedAt: m.tied().firstLeased,
	}
	rec.Error, rec.Cause, rec.FirstFailedAt, rec.LastFailedAt, rec.Failures = m.failure.Parts()
	c.out.batch.Put(storage.Leases, storage.AppendLeaseKey(nil, m.storageKey(), m.fence), rec.Append(nil))
	if m.writes < 2 {
		m.writes++
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

// walk starts a walk.
func (t *leaseTable) walk(epoch uint64) *leaseWalk {
	return &leaseWalk{epoch: epoch, it: reflect.ValueOf(t.byID).MapRange()}
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

func (m *message) Index() *int { return &m.timer }

// endNotes drops the notes of a lease that ends.
func (t *leaseTable) endNotes(c *core, m *message) {
	if t.notes.End(m) {
		c.showProgress(m, "")
	}
}

// consumerOf returns the consumer as which a client, nil if none is known, asks for messages of a queue under a name.
func (t *leaseTable) consumerOf(cl *Client, q *queue, name string) *consumers.Consumer {
	if cl == nil {
		return t.register.Of(q.consumers, 0, name, nil)
	}
	cl.last = t.register.Of(q.consumers, cl.ID, name, cl.last)
	return cl.last
}

// hold is leaseOf, and notes the result in the receipt.
func (c *core) hold(q *queue, r *Receipt) *message {
	m := c.leaseOf(q, *r)
	if r.Held = m != nil; r.Held {
		r.Fence = m.fence
	}
	return m
}

// leasedAt is when a lease began, in Unix nanoseconds. One that was recovered began before this
// start, though the clock may have been set back since.
func (c *core) leasedAt(m *message) int64 {
	if m.recovered {
		return min(m.since, c.health.bootTime)
	}
	return m.since
}

// leasedSearch looks for the leased messages of the keys that an id may belong to.
type leasedSearch struct {
	walk   *leaseWalk
	leased map[ID]struct{}
}

// searchLeased returns the ids of the leased messages of those keys of a queue that an id may
// belong to: ids carry a hash of the fairness key. It returns ErrWouldBlock if it continues in
// a later turn; *search then holds the search. The walk ends as soon as it has found as many as
// the keys have leased.
func (tx *Tx) searchLeased(q *queue, id ID, search **leasedSearch) (map[ID]struct{}, error) {
	c, hash := tx.core, id.KeyHash()
	left := int64(0)
	for _, k := range q.keys.WithID(hash) {
		left += k.leased
	}
	s := *search
	if s == nil || s.walk.epoch != c.epoch {
		s = &leasedSearch{walk: c.leases.walk(c.epoch), leased: map[ID]struct{}{}}
		*search = s
	}
	left -= int64(len(s.leased))
	over := left <= 0 || s.walk.each(tx, func(m *message) bool {
		if m.key.queue == q && m.key.hash.InID() == hash && !m.key.purged() {
			s.leased[m.id] = struct{}{}
			left--
		}
		return left > 0
	})
	if !over {
		return nil, tx.yield()
	}
	*search = nil
	return s.leased, nil
}

// leasesPerUnit is the number of leases per unit of work. Each visit is a likely cache miss.
const leasesPerUnit = 2

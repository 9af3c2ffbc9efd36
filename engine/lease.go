package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/delivery"
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

type (
	// Delivery is a leased message on its way to a client.
	Delivery = delivery.Delivery
	// Receipt identifies one delivery of a message, see core.fenceBase.
	Receipt = delivery.Receipt
)

// LoadBytes bounds what Load reads for other deliveries than the first.
const LoadBytes = delivery.LoadBytes

// ParseReceipt parses "<message id>:<delivery number>", or a bare message id. Anything else
// is ErrBadReceipt.
func ParseReceipt(b []byte) (Receipt, error) { return delivery.ParseReceipt(b) }

// AppendID appends the text form of a message id to dst.
func AppendID(dst []byte, id ID) []byte { return delivery.AppendID(dst, id) }

// LeaseRequest asks for ready messages of one or more queues.
type LeaseRequest struct {
	Queues     []string
	Count      int           // the most to deliver, at least 1; a lease never waits to reach it
	Block      time.Duration // how long to wait for the first message; negative: not at all, 0: without limit
	SameKey    bool          // all messages are of one key, the one whose turn it is
	Visibility time.Duration // duration of the leases; 0: the setting of each queue
	Consumer   string        // a name for FILA.GET and FILA.BROWSE; may be empty

	parts *leaseParts // progress of a large request that takes several turns
	reads int         // of the preflight of a transaction with SameKey
}

// leaseParts is the progress of a large lease between turns. epoch tells whether a recovery
// has dropped the leases meanwhile; then the request restarts.
type leaseParts struct {
	epoch uint64
	until int64 // deadline of a blocking request; 0: none
	got   []*Delivery
	key   *fairKey // of all of them with SameKey
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
	switch {
	case req.SameKey && req.parts != nil:
		return tx.leaseBatch(req)
	case !tx.atomic && !req.SameKey && req.Count > c.leasePart():
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
		if req.SameKey && q.ordered() {
			return nil, fmt.Errorf("%w: queue %q delivers one message of a key at a time; lease without SAMEKEY", ErrInvalid, name)
		}
		queues = append(queues, q)
	}
	if err := c.writable(); err != nil && tx.task.wait == nil {
		return nil, err
	}
	if tx.task.wait == nil {
		c.serveReady() // earlier consumers come first
	}
	ds := c.deliver(tx.task.Client, queues, req, tx.task.wait != nil)
	if len(ds) > 0 && req.SameKey {
		req.parts = &leaseParts{epoch: c.epoch, until: tx.leaseUntil(req), got: ds, key: c.leases.byID[ds[0].Receipt.ID].key}
		return tx.leaseBatch(req)
	}
	if len(ds) > 0 {
		tx.noteDelivered(ds)
		tx.leased, tx.stored = true, !tx.atomic && !slices.ContainsFunc(ds, func(d *Delivery) bool { return !d.Stored })
		return ds, nil
	}
	if tx.atomic {
		return nil, nil
	}
	if req.Block >= 0 {
		return nil, tx.parkConsumer(req.Consumer, queues, tx.blockUntil(req.Block))
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
			return tx.preflightBatch(q, req)
		}
		loading = loading || q.awaitingRead > 0
		queues = append(queues, q)
	}
	if !loading {
		return nil
	}
	return tx.park(waitPreflight, queues, 0)
}

// preflightBatch parks a transaction that leases messages of one key until those of the key that is next are in memory. If
// other clients take them meanwhile it tries again, a few times: then the batch is what is there.
func (tx *Tx) preflightBatch(q *queue, req *LeaseRequest) error {
	const most = 4
	k := key(q.order.First())
	if !req.SameKey || !k.window.More() || k.window.Len() >= req.Count || req.reads == most {
		return nil
	}
	req.reads++
	return tx.awaitMessages(k, req.Count-k.window.Len())
}

// endLease removes a message from the lease table, returns its throttle slots and deletes
// the lease record. Every end of a lease goes through it but that of a purged queue
// (dropLease), whose records go by range. The caller gives the message its next state in
// the same turn.
func (c *core) endLease(m *message) {
	delete(c.leases.byID, m.id)
	c.leases.ends.Remove(m)
	c.leases.release(m)
	c.returnShares(m)
	c.leaveOrder(m)
	if m.expires != 0 {
		c.ttl.restore(m)
	}
	c.leases.endNotes(c, m)
	c.keepFirstLease(m)
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

// leasePart is how many messages a lease takes before it checks the budget.
func (c *core) leasePart() int { return c.tasks.budget.Part(16) }

// leaseMany is Lease for more messages than one part. A first part that comes short is the
// whole answer. Leases that have ended while the task yielded are left out of the reply; if
// none is left, a blocking request waits again until its deadline (endParts).
func (tx *Tx) leaseMany(req *LeaseRequest) ([]*Delivery, error) {
	c, size := tx.core, tx.core.leasePart()
	p := req.parts
	if p == nil || p.epoch != c.epoch {
		req.parts = nil
		until := tx.leaseUntil(req)
		first := *req
		first.Count = size
		ds, err := tx.Lease(&first)
		if err != nil || len(ds) < size {
			return ds, err
		}
		tx.stored = false
		p = &leaseParts{epoch: c.epoch, until: until, got: slices.Grow(ds, size)}
		req.parts = p
	}
	for len(p.got) < req.Count {
		if !c.room() {
			return nil, tx.yield()
		}
		part := *req
		part.Count = min(size, req.Count-len(p.got))
		ds := c.deliver(tx.task.Client, c.queues.existing(req.Queues), &part, true) // ends where the turn is another queue's
		p.got = append(p.got, ds...)
		if len(ds) < part.Count {
			break
		}
	}
	return tx.endParts(req)
}

// leaseUntil is when a lease stops to wait for messages; 0: it does not, or waits without end.
func (tx *Tx) leaseUntil(req *LeaseRequest) int64 {
	if w := tx.task.wait; w != nil {
		return w.until
	}
	return tx.blockUntil(req.Block)
}

// leaseBatch continues a lease of one key, of which req.parts has the first message. Those that are on disk only are
// read before they follow; a read that brings nothing ends the batch. A transaction takes what is in memory, as
// preflightBatch has read it.
func (tx *Tx) leaseBatch(req *LeaseRequest) ([]*Delivery, error) {
	c, p := tx.core, req.parts
	if p.epoch != c.epoch {
		req.parts = nil
		return tx.Lease(req)
	}
	k := p.key
	c.takesBatch(k, true)
	defer c.takesBatch(k, false)
	for len(p.got) < req.Count && !k.purged() {
		if !tx.atomic && !c.room() {
			return nil, tx.yield()
		}
		if m := c.following(k); m != nil {
			p.got = append(p.got, c.leaseFor(tx.task.Client, req, m))
			continue
		}
		if tx.atomic || !k.window.Awaiting() || k.paused || k.window.LastReadEmpty() {
			break
		}
		return nil, tx.awaitMessages(k, req.Count-len(p.got))
	}
	if tx.atomic {
		ds := p.got
		req.parts = nil
		tx.noteDelivered(ds)
		tx.leased = true
		return ds, nil
	}
	return tx.endParts(req)
}

// endParts returns what a lease in parts has got, without the leases that have ended meanwhile. If none is left, a
// blocking request waits again until its deadline.
func (tx *Tx) endParts(req *LeaseRequest) ([]*Delivery, error) {
	c, p := tx.core, req.parts
	req.parts = nil
	p.got = slices.DeleteFunc(p.got, func(d *Delivery) bool { // leases that have ended meanwhile
		q := c.queues.byName[d.Queue]
		return q == nil || c.leaseOf(q, d.Receipt) == nil
	})
	if len(p.got) == 0 && req.Block >= 0 && (p.until == 0 || p.until > c.now) {
		return nil, tx.parkConsumer(req.Consumer, c.queues.existing(req.Queues), p.until)
	}
	tx.leased = len(p.got) > 0
	tx.stored = tx.leased && !slices.ContainsFunc(p.got, func(d *Delivery) bool { return !d.Stored })
	return p.got, nil
}

// Load makes payload and headers of the first delivery available, from memory or from the store. Where
// the store can, it reads the records of the next few that are not in memory at the same time, as far as
// LoadBytes are enough for all: their Load does not read again. It returns the bytes that it has read. It
// runs on the goroutine of the connection. It returns ErrNoMessage if the message was removed after its
// delivery, for instance by Purge or by Ack with the bare id; the caller leaves such a delivery out of
// the reply. Other errors are those of the store.
func (p *Preparer) Load(ds []*Delivery) (read int, err error) { return delivery.Load(ds, p.store) }

// existing returns the named queues that have not been deleted meanwhile.
func (s *queueSet) existing(names []string) []*queue {
	var queues []*queue
	for _, name := range names {
		if q := s.byName[name]; q != nil {
			queues = append(queues, q)
		}
	}
	return queues
}

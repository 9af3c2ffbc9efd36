package engine

import (
	"fmt"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/storage"
)

// REPLACE: an enqueue takes the place of the message that has its unique id, while that waits. What
// becomes of the request, by the state of the owner of the id:
//
//	none, or it has lent the id (unique.go)   a new message
//	ready or delayed, never failed            replaced: the record, due time, expiry and body are those of
//	                                          the request; id, key, position, delivery number stay
//	leased, retrying, or failed before        its id answers, and nothing changes
//	ready or delayed, its group is cancelled  it is removed, with or without REPLACE: a new message
//
// The position of a message is its id, so the new record is put under the key of the old one, in one
// batch with all that follows from it. From then on the message is removed by a Delete in place of a
// SingleDelete (storage.Meta.Rewritten). In memory a replacement is a new message: its lease is no
// early reply before its batch is committed (outbox.go), and whatever still refers to the old one finds
// it gone.
//
// An owner that is in memory is replaced in the turn. One that is on disk only is read first, by a
// look-up with a change log (reading.go); what reads the old message at the same time finds the new one
// in the change log, with its body.

// readOwner has the message that a request may replace read from disk, unless it is in memory. In a
// transaction it is read in any case, as an earlier command may leave it to the disk.
func (tx *Tx) readOwner(req *Enqueue, id ID) error {
	if l := req.owner; l != nil && l.wanted[0].id != id {
		req.owner = nil // the id has another owner by now
	}
	return tx.preflightLookup(req.Queue, &req.owner, []ID{id}, false)
}

// findOwner decides what becomes of a request whose unique id has an owner: it sets known, replaces or cancelled.
// It returns ErrWouldBlock while the owner is read.
func (tx *Tx) findOwner(a *admission, req *Enqueue, e *storage.DedupEntry) error {
	c, q := tx.core, a.queue
	a.known, a.kept = e.ID, req.Replace
	if c.leases.in(q, e.ID) != nil {
		return nil
	}
	f := c.waiting(storage.MessageKey{Queue: q.no, Key: e.Key, Rank: e.ID.Rank(), ID: e.ID})
	if f != nil {
		a.is = f.m.status
	} else {
		if !tx.atomic {
			if err := tx.readOwner(req, e.ID); err != nil {
				return err
			}
		}
		l := req.owner
		switch {
		case l == nil || !l.done || !c.valid(&l.changeLog) || l.wanted[0].id != e.ID:
			return errWaits // the transaction itself has stored it, and it is on disk only
		case l.err != nil:
			return lookupError(l.err, "replace")
		}
		if f = l.found[0]; f == nil {
			return nil // only a damaged store has an entry without a message
		}
		a.is = c.locate(&l.changeLog, f)
	}
	switch waits := a.is == ready || a.is == delayed; {
	case waits && c.groups.cancels(f.m):
		a.known, a.kept, a.cancelled = ID{}, false, f
	case waits && req.Replace && f.m.attempt == 1 && f.m.failure.Current() == nil:
		a.known, a.kept, a.replaces = ID{}, false, f
	}
	return nil
}

// waiting returns a message that is ready or delayed, if it is in memory.
func (c *core) waiting(mk storage.MessageKey) *foundMessage {
	q := c.queues.byNumber[mk.Queue]
	if m := q.inWindow(mk); m != nil {
		return &foundMessage{m: m, key: mk.Key}
	}
	if d := c.delayed.index.Find(mk.ID); d != nil && d.Key == mk && d.Message != nil {
		return &foundMessage{m: d.Message, key: mk.Key, readyAt: d.At, delayed: true}
	}
	return nil
}

// checkPlace refuses a replacement whose key or priority is not that of the message, since the place of a
// message is part of its id.
func (a *admission) checkPlace(req *Enqueue) error {
	m := a.replaces.m
	if req.Key != m.key.name {
		return fmt.Errorf("%w: the message %s with the UNIQUE id has the fairness key %.80q, REPLACE needs the same KEY", ErrInvalid, m.id, m.key.name)
	}
	if p := req.Priority; p != nil && storage.PriorityMax-*p != m.rank {
		return fmt.Errorf("%w: the message %s with the UNIQUE id has the priority %d, REPLACE needs the same PRIORITY or none", ErrInvalid, m.id, storage.PriorityMax-m.rank)
	}
	return nil
}

// noLater returns when a message is ready that would be ready at a time: with MAXDELAY no later than that
// after the first enqueue, whose time is in the id.
func (c *core) noLater(a *admission, req *Enqueue, at int64) int64 {
	if req.MaxDelay == 0 {
		return at
	}
	first := c.now
	if a.replaces != nil {
		first = a.replaces.m.id.Nanos()
	}
	return min(at, first+int64(req.MaxDelay))
}

// removeOwner removes the member of a cancelled group that has the unique id of an admitted request.
func (a *admission) removeOwner(c *core) { c.groups.cancelMember(c, c.takeOut(a.cancelled, a.is)) }

// replace stores the message of an admitted request in the place of another one.
func (c *core) replace(req *Enqueue, a *admission, body *sharedBody) *message {
	old := c.takeOut(a.replaces, a.is)
	if old.expires != 0 {
		c.unindex(&c.ttl.index, old.expires, old.storageKey())
	}
	c.leaveBody(old)
	c.heads.dropBody(old)
	k := old.key
	m := &message{
		rank: old.rank, id: old.id, key: k, cost: 1, attempt: 1, timer: -1, batch: c.out.batchNo,
		retried: old.retried, deliveries: old.deliveries, fence: old.fence, failure: old.failure.History(),
	}
	req.Rewritten = true
	c.groups.inherit(req, old)
	m.give(&req.Meta, c.order.throttleSet(k, &req.Meta), true)
	m.noteFirstLease(old.tied().firstLeased)
	c.weigh(k, req)
	body.add(c, m)
	if m.retried { // its record has the time at which the message is ready
		c.writeAttempt(m, max(a.readyAt, 0))
	}
	k.queue.recordContent(m, c.put(m, storage.AppendRewritten(req.record), a.readyAt))
	k.queue.figures.Count(figures.Replaced, 1)
	return m
}

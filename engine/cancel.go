package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// Cancel asks to remove messages.
type Cancel struct {
	Queue string
	IDs   []ID

	look *lookup
	at   int // in what was looked up
}

// cancelPart is how many messages are looked up at once.
const cancelPart = 4096

// Cancel removes messages of whatever status and returns how many there were. The
// receipts of leased ones are lost. The messages are looked up beside the loop, so many
// at a time; the task waits for that. Each message is removed atomically, very many of
// them in several writes.
func (tx *Tx) Cancel(req *Cancel) (int, error) {
	c := tx.core
	if tx.atomic {
		return tx.cancelAll(req)
	}
	p, err := tx.progress()
	if err != nil {
		return 0, err
	}
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		if p.at > 0 { // the queue was deleted meanwhile, and with it the other messages
			return p.n, nil
		}
		return 0, err
	}
	for p.at < len(req.IDs) {
		l := req.look
		if l == nil || l.epoch != c.epoch || l.done && !c.valid(&l.changeLog) {
			tx.endLookup(req)
			part := req.IDs[p.at:min(p.at+cancelPart, len(req.IDs))]
			c.spend(len(part) / 8)
			tx.retainLookup(req, c.lookUp(q, part, false, resume(tx.task)))
			return 0, tx.parkAt(p)
		}
		if !l.done {
			return 0, tx.parkAt(p)
		}
		if l.err != nil {
			return 0, lookupError(l.err, "cancel")
		}
		for ; req.at < len(l.found); req.at++ {
			if !tx.more() {
				return 0, tx.yieldAt(p)
			}
			if f := l.found[req.at]; f != nil && c.discard(&l.changeLog, f) {
				p.n++
				q.totals.cancelled++
			}
			p.at++
		}
		tx.endLookup(req)
	}
	return p.n, nil
}

// retainLookup keeps what is known of messages that are looked up until they are done with,
// which may be some turns after they were found.
func (tx *Tx) retainLookup(req *Cancel, l *lookup) {
	l.keepsLog = true
	req.look, req.at = l, 0
	tx.task.logs = append(tx.task.logs, &l.changeLog)
}

// endLookup ends that.
func (tx *Tx) endLookup(req *Cancel) {
	if req.look == nil {
		return
	}
	req.look = nil
	for _, w := range tx.task.logs {
		tx.core.closeLog(w)
	}
	tx.task.logs = nil
}

// cancelAll is Cancel as a part of a transaction, for which all of it was looked up.
func (tx *Tx) cancelAll(req *Cancel) (int, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return 0, err
	}
	l, err := tx.lookedUp(q, &req.look, req.IDs, false)
	if err != nil {
		return 0, lookupError(err, "cancel")
	}
	n := 0
	for _, f := range l.found {
		if f != nil && tx.more() && c.discard(&l.changeLog, f) {
			n++
		}
	}
	q.totals.cancelled += uint64(n)
	return n, nil
}

// PreflightCancel looks up what Cancel needs, see Preflighter.
func (tx *Tx) PreflightCancel(req *Cancel) error {
	return tx.preflightLookup(req.Queue, &req.look, req.IDs, false)
}

// discard removes a message that was found in the store, whatever its status. It
// reports whether it was still there.
func (c *core) discard(w *changeLog, f *foundMessage) bool {
	var m *message
	if c.locate(w, f) == leased {
		m = c.leases.byID[f.m.id]
		c.endLease(m)
	} else {
		m = c.extract(w, f)
	}
	if m == nil {
		return false
	}
	c.remove(m)
	c.out.sync = true
	return true
}

// Reschedule asks for another time at which a message is ready.
type Reschedule struct {
	Queue string
	ID    ID
	Delay time.Duration // from now; 0: at once

	look *lookup
}

// Reschedule makes a message ready after a delay, whether it is ready now or waits
// for another time, and returns when that is. It keeps its attempts and its place.
// A dead message can be put off like any other of its queue. One that is leased
// cannot: its consumer decides. Nor can it be put off for as long as it has to live, or
// longer: it would die waiting. The message is looked up beside the loop; the task
// waits for that.
func (tx *Tx) Reschedule(req *Reschedule) (time.Time, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return time.Time{}, err
	}
	if req.Delay < 0 || req.Delay > durationMax {
		return time.Time{}, fmt.Errorf("%w: a delay is from 0 to %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	l, err := tx.lookedUp(q, &req.look, []ID{req.ID}, false)
	if err != nil {
		return time.Time{}, lookupError(err, "reschedule")
	}
	is := gone
	if l.found[0] != nil {
		is = c.locate(&l.changeLog, l.found[0])
	}
	if is == gone {
		return time.Time{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	}
	if is == leased {
		return time.Time{}, fmt.Errorf("%w: %s is leased; EXTEND, NACK or RELEASE it", ErrInvalid, req.ID)
	}
	if end := l.found[0].m.expires; end != 0 && c.now+int64(req.Delay) >= end {
		return time.Time{}, fmt.Errorf("%w: %s has %d ms to live, its delay must be shorter", ErrInvalid, req.ID, time.Duration(max(end-c.now, 0)).Milliseconds())
	}
	m := c.extract(&l.changeLog, l.found[0])
	if m == nil {
		return time.Time{}, fmt.Errorf("%w: %s in %q", ErrNoMessage, req.ID, req.Queue)
	}
	c.out.sync = true
	return time.Unix(0, c.makeReadyAfter(m, req.Delay)), nil
}

// PreflightReschedule looks up what Reschedule needs, see Preflighter.
func (tx *Tx) PreflightReschedule(req *Reschedule) error {
	return tx.preflightLookup(req.Queue, &req.look, []ID{req.ID}, false)
}

// Purge asks to remove all messages of a queue, or of one of its fairness keys.
type Purge struct {
	Queue string
	Key   string // "": of all

	removed int
	cursor  []byte
	newest  int64 // nanoseconds of the newest id when it began: what comes later stays
	page    *page
}

// purgePage bounds how many messages of a key one turn removes.
const purgePage = 1024

// Purge removes messages of whatever status and returns how many there were. The
// receipts of leased ones are lost; the dead-letter queue is left alone.
//
// A whole queue is emptied at once: it gets another number, and the store drops
// what is under the old one as a range. A key is emptied page by page, each message
// atomically; others are served in between.
func (tx *Tx) Purge(req *Purge) (int, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return req.removed, err
	}
	if req.Key != "" {
		return tx.purgeKey(q, req)
	}
	if err := tx.AwaitCounts(); err != nil {
		return 0, err
	}
	if err := tx.moveSettings(q); err != nil {
		return 0, err
	}
	n := int(max(q.total, 0))
	c.purge(q, tx.task)
	q.totals.purged += uint64(n)
	return n, nil
}

func (tx *Tx) purgeKey(q *queue, req *Purge) (int, error) {
	c := tx.core
	if err := c.checkKey(req.Key); err != nil {
		return 0, err
	}
	if tx.atomic {
		return 0, errWaits
	}
	if req.newest == 0 {
		req.newest = c.ids.last
	}
	p := req.page
	req.page = nil
	switch {
	case p == nil || !p.done || !c.valid(&p.changeLog):
		if p != nil && p.no != q.no {
			return req.removed, nil // the whole queue was purged meanwhile
		}
	case p.err != nil:
		return req.removed, fmt.Errorf("purge key %.512q of %q: %w", req.Key, req.Queue, p.err)
	default:
		n := 0
		c.spend(len(p.found))
		for i := range p.found {
			if f := &p.found[i]; idNanos(f.m.id) <= req.newest && c.discard(&p.changeLog, f) {
				n++
			}
		}
		req.removed += n
		q.totals.purged += uint64(n)
		if p.next == nil {
			return req.removed, nil
		}
		req.cursor = p.next
	}
	req.page = c.readPage(q, req.Key, req.cursor, purgePage, resume(tx.task))
	tx.park(nil, 0, false)
	return req.removed, ErrWouldBlock
}

// purge empties a queue. It keeps its name, its settings and those of its keys, its
// scripts, its counters, and who waits for it.
func (c *core) purge(q *queue, by *Task) {
	c.detachAll(q)
	c.renumber(q, by)
	c.putQueue(q)
	c.markShrunk(q)
	c.offer(q) // for those who wait for nothing but a read
}

// empty drops everything that is in a queue, in memory and on disk. Its number is no
// queue's any more. The records go
// by range: their number does not matter. Entries of the indexes by time that
// are not in memory are left until their time comes, see fallDue and endTTLs: no queue has
// their number any more.
//
// No key and no lease is looked at, there may be a million: they stop being the queue's
// at once, and what they hold is given back in portions, see detachedQueue.go.
func (c *core) detachAll(q *queue) {
	q.purgedUpTo, q.purgedAt = q.roster.last, c.now
	c.unreserveQueue(q)
	q.scheduler.detached = true
	r := &detachedQueue{queue: q, no: q.no, scheduler: q.scheduler, keys: q.roster, named: q.keys.n < min(idleStatsMax, c.detached.max)}
	c.heads.keys -= q.keys.n
	q.keys, q.roster, q.scheduler = keyTable{}, roster[fairKey]{last: q.roster.last}, newScheduler(q, c.cfg.Quantum)
	delete(c.queues.byNumber, q.no)
	q.idle.counting = nil // it would go through keys that are not there
	c.detached.leases += q.leased
	q.awaitingRead, q.total, q.leased, q.delayed, q.counted = 0, 0, 0, 0, true
	q.deltas = nil
	prefix := storage.AppendQueuePrefix(nil, q.no)
	for _, f := range []storage.Family{storage.Messages, storage.Attempts, storage.Leases, storage.Dedup} {
		c.out.batch.DeleteRange(f, prefix, storage.After(prefix))
	}
	c.forgetDedup(q)
	c.deleteSettingsUnder(c.out.batch, q.no)
	c.out.sync = true
	c.detach(r)
}

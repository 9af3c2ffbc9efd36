package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
)

// Cancel, Reschedule and Purge change messages in any state, most of which are on disk only.
// They have three steps in common:
//
//  1. An off-loop job reads the messages: by id (lookup) or in pages (page).
//  2. A change log records what happens to messages of the queue in the meantime.
//  3. In a later turn, locate consults memory and change log for the state of each message
//     now, extract or endLease takes it out of its structure, and the change follows.
//
// If the change log overflows, the read is repeated. So no change is based on an outdated
// read, and no turn waits for the disk.

// Cancel is a request to remove messages by their ids.
type Cancel struct {
	Queue string
	IDs   []ID

	look *lookup
	at   int // progress within the look-up
}

// cancelPart is how many messages are looked up at a time.
const cancelPart = 4096

// Cancel removes messages of any status and returns how many existed. Receipts of leased
// messages become invalid. The messages are looked up off the loop in parts of cancelPart,
// and the task parks meanwhile. Each message is removed atomically, many of them in several
// batches; the answer follows the last one. In a transaction all removals are in one batch.
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
		if p.at > 0 { // the queue was deleted meanwhile, with its messages
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
			tx.retainLookup(req, c.lookUp(q, part, false, tx.task.resume))
			return 0, tx.awaitAt(p)
		}
		if !l.done {
			return 0, tx.awaitAt(p)
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
				q.figures.Count(figures.Cancelled, 1)
			}
			p.at++
		}
		tx.endLookup(req)
	}
	return p.n, nil
}

// retainLookup keeps the change log of a look-up open until its messages are removed, which
// may take several turns.
func (tx *Tx) retainLookup(req *Cancel, l *lookup) {
	l.keepsLog = true
	req.look, req.at = l, 0
	tx.task.logs = append(tx.task.logs, &l.changeLog)
}

// endLookup closes the change log of the look-up.
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

// cancelAll is Cancel in a transaction; PreflightCancel has looked all messages up.
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
	if err := tx.keep(req.Queue, req.IDs...); err != nil {
		return 0, err
	}
	c.spend(len(l.found))
	n := 0
	for _, f := range l.found {
		if f != nil && c.discard(&l.changeLog, f) {
			n++
		}
	}
	q.figures.Count(figures.Cancelled, uint64(n))
	return n, nil
}

// PreflightCancel looks up what Cancel needs, see Preflighter.
func (tx *Tx) PreflightCancel(req *Cancel) error {
	return tx.preflightLookup(req.Queue, &req.look, req.IDs, false)
}

// discard removes a message that was read from the store, in any status, and reports
// whether it still existed.
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
	c.groups.memberEnded(m, group.Cancelled)
	c.remove(m)
	c.out.sync = true
	return true
}

// Reschedule is a request to change the time at which a message is ready.
type Reschedule struct {
	Queue string
	ID    ID
	Delay time.Duration // from now, at most durationMax; 0: at once

	look *lookup
}

// Reschedule makes a ready or delayed message ready after a delay and returns when that is.
// Attempts and position stay. The message is looked up off the loop, and the task parks
// meanwhile.
//
// Errors: ErrNoMessage; ErrInvalid for a delay out of range, for a leased message, which
// its consumer decides about, for a ready one of an ordered queue with a delay, and for a delay
// that ends after the message's TTL.
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
	if is == ready && req.Delay > 0 && q.ordered() {
		return time.Time{}, fmt.Errorf("%w: %q is ordered, a message of it waits only after a failed delivery", ErrInvalid, req.Queue)
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

// Purge is a request to remove all messages of a queue or of one fairness key.
type Purge struct {
	Queue string
	Key   string // "": all keys

	removed int
	cursor  []byte // start of the next page
	newest  int64  // time of the newest id at the start, in nanoseconds; later messages stay
	page    *page
}

// purgePage is how many messages of a key one turn removes.
const purgePage = 1024

// Purge removes messages of any status and returns how many there were. Receipts of leased
// messages become invalid. The dead-letter queue is not purged with its queue.
//
// A whole queue is purged at once, in one batch: it gets a new number, and range deletions
// drop all records under the old one. It waits for the census, as it returns a count. A
// fairness key is purged page by page, each message atomically; messages that are enqueued
// after the start stay, so that a purge ends even under load.
//
// Errors: an unknown queue, ErrMisconf while the store takes no writes, errors of the store
// with the number of messages removed until then. Purging a key is refused in a
// transaction.
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
	if err := tx.keepAll(req.Queue); err != nil {
		return 0, err
	}
	n := int(max(q.figures.Total, 0))
	c.purge(q, tx.task)
	q.figures.Count(figures.Purged, uint64(n))
	return n, nil
}

// purgeKey removes a page of a key's messages and parks the task for the next page.
func (tx *Tx) purgeKey(q *queue, req *Purge) (int, error) {
	c := tx.core
	if err := c.cfg.Limits.CheckKey(req.Key); err != nil {
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
			if f := &p.found[i]; f.m.id.Nanos() <= req.newest && c.discard(&p.changeLog, f) {
				n++
			}
		}
		req.removed += n
		q.figures.Count(figures.Purged, uint64(n))
		if p.Next == nil {
			return req.removed, nil
		}
		req.cursor = p.Next
	}
	req.page = c.readPage(q, req.Key, req.cursor, purgePage, tx.task.resume)
	return req.removed, tx.await()
}

// purge empties a queue. Name, settings, settings of keys, scripts, counters and waiting
// consumers stay.
func (c *core) purge(q *queue, by *Task) {
	c.detachAll(q)
	c.renumber(q, by)
	c.putQueue(q)
	c.markShrunk(q)
	q.order.Offer() // consumers that wait only for a read get their empty reply
}

package engine

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

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
	c.noteShrunk(q)
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

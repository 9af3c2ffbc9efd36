package engine

import (
	"cmp"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/engine/internal/records"
	"github.com/faisca/fila/engine/internal/timeline"
	"github.com/faisca/fila/storage"
)

// history is the component that records what queues and their followed keys did, for FILA.HISTORY, and writes it.
//
//	record   at the first turn of a step of ten seconds, before it has changed anything, in slices
//	write    once a minute, if a counter or a number of messages has changed: a record of each queue and key that has,
//	         in slices, without a sync. A crash takes at most what was not written, the last minute
//	recover  at a start. A recovery in place keeps what is in memory, as counts are
//
// Until the messages in the store are counted after a start, the counts are too low, and nothing is recorded.
type history struct {
	figures.History
	no       uint32 // number of the next queue to record; 0: none
	writes   uint32 // number of the next queue to write; 0: none
	restored bool   // what the store has was read

	unchecked
}

// reset begins a step again that is not done. What is recorded outlives recoveries, as counts do, and is written again:
// what was written may be lost.
func (h *history) reset() {
	h.no, h.writes = 0, 0
	h.Rewrite()
}

// Work of a step: how many queues, and how many of their followed keys, a unit of work pays for.
const (
	historyPerUnit  = 4
	followedPerUnit = 8
)

// next returns when a record is due. Recording itself needs no timer.
func (h *history) next(c *core) int64 {
	switch {
	case c.ops.census != nil || c.health.full != nil:
		return never
	case h.no != 0 || h.writes != 0:
		return c.now
	}
	if at, ok := h.Unwritten(c.now, &c.queues.figures); ok {
		return at
	}
	return never
}

// expire records a step when its time has come, and writes what is due.
func (h *history) expire(c *core) {
	if c.ops.census != nil {
		return
	}
	if h.Due(c.now) && h.record(c) && h.Finish() && h.writes == 0 {
		h.writes = 1
		h.writeAll(c)
	}
	if c.health.full == nil { // the last space is for what frees some
		h.write(c)
	}
}

// record records a step as far as the budget lasts, and reports whether it is done.
func (h *history) record(c *core) bool {
	if h.no == 0 {
		h.no = 1
		h.Begin(c.now, &c.queues.figures)
	}
	for ; h.no < c.queues.nextNumber; h.no++ {
		if h.no%historyPerUnit == 0 {
			if !c.room() {
				return false
			}
			c.spend(1)
		}
		if q := c.queues.byNumber[h.no]; q != nil {
			c.spend(q.figures.Followed() / followedPerUnit)
			h.Record(&q.figures, c.now, q.held)
		}
	}
	h.no = 0
	c.spend(h.RecordThrottles(c.now, func(name string) (figures.ThrottleNumbers, bool) {
		i, limited := c.order.Throttle(name)
		return figures.ThrottleNumbers{Passed: i.Admitted, Refused: i.Refused, Leases: i.InUse, Waiting: i.Waiting}, limited
	}))
	return true
}

// writeAll begins to write: what is not followed any more goes first, since it may be followed again.
func (h *history) writeAll(c *core) {
	for _, g := range c.queues.figures.TakeGone() {
		c.out.batch.Delete(storage.State, storage.AppendKeyHistoryKey(nil, g.Queue, g.Key))
	}
	c.out.batch.Put(storage.State, storage.AppendHistoryKey(nil, ""), h.RecordAll().Append(nil))
	h.EachThrottle(func(name string, rec *storage.History) { // they are few
		c.spend(1)
		c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateThrottleHistory, name), rec.Append(nil))
	}, func(name string) {
		c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateThrottleHistory, name))
	})
}

// write writes what has changed since the last records, as far as the budget lasts.
func (h *history) write(c *core) {
	for ; h.writes != 0 && h.writes < c.queues.nextNumber; h.writes++ {
		if !c.room() {
			return
		}
		q := c.queues.byNumber[h.writes]
		if q == nil {
			if h.writes%gapsPerUnit == 0 {
				c.spend(1)
			}
			continue
		}
		c.spend(1)
		if rec := h.Changed(&q.figures); rec != nil {
			c.out.batch.Put(storage.State, storage.AppendHistoryKey(nil, q.name), rec.Append(nil))
		}
		q.figures.EachChanged(func(key string, rec *storage.History) {
			c.spend(1)
			c.out.batch.Put(storage.State, storage.AppendKeyHistoryKey(nil, q.name, key), rec.Append(nil))
		})
	}
	h.writes = 0
}

// recover reads the histories at a start. Those of keys for which there is no room, which only a version with other bounds
// leaves, are deleted by start.
func (h *history) recover(c *core) error {
	if h.restored {
		return nil
	}
	h.restored = true
	return cmp.Or(h.read(c, storage.StateHistory, 1, func(name []string, rec *storage.History) bool {
		if q := c.queues.byName[name[0]]; q != nil {
			q.figures.Restore(rec)
		} else if name[0] == "" {
			h.RestoreAll(rec)
		}
		return true
	}), h.read(c, storage.StateKeyHistory, 2, func(name []string, rec *storage.History) bool {
		q := c.queues.byName[name[0]]
		return q != nil && q.figures.RestoreKey(name[1], uint64(keytable.HashOf(name[1])), rec)
	}), h.recoverThrottles(c))
}

// read reads the histories of a kind. Those that are not restored are deleted by start.
func (h *history) read(c *core, kind string, parts int, restore func(name []string, rec *storage.History) bool) error {
	return records.Each(c.store, "history", kind, parts, func(name []string, value []byte) error {
		var rec storage.History
		err := rec.Decode(value)
		if err == nil && !restore(name, &rec) {
			c.detached.deleteAtStart(kind, name)
		}
		return err
	})
}

// recoverThrottles reads the histories of throttles, and follows those with a setting that have none.
func (h *history) recoverThrottles(c *core) error {
	err := h.read(c, storage.StateThrottleHistory, 1, func(name []string, rec *storage.History) bool { return h.RestoreThrottle(name[0], rec) })
	_, set := c.order.ListThrottles(0, figures.ThrottlesMax, false, func(string) bool { return true })
	for i := range set {
		h.FollowThrottle(set[i].Key, false, c.now)
	}
	return err
}

// followEvery is after how many messages an enqueue looks again whether its key is to be followed, beside the times when their
// number has doubled: the key's statistics are in a line of memory that an enqueue does not need otherwise.
const followEvery = 32

// follow follows a key that is busy enough, so that it has a history.
func (h *history) follow(c *core, k *fairKey) {
	c.spend(1)
	k.queue.figures.Follow(&k.stats, k.name, uint64(k.hash), k.total, c.now)
}

// steps returns how many steps a time has, at least one.
func steps(last time.Duration) uint32 {
	return uint32(max(min(last, HistoryMax)/timeline.Length, 1))
}

// History returns what a queue did in the last time, ten seconds apart, a minute or ten minutes if it is long, the oldest
// moment first; all queues together if the name is empty. It goes back to the first start of a broker with this store,
// or to the creation of the queue, and HistoryMax at most. The error is ErrNoQueue.
func (tx *Tx) History(name string, last time.Duration) ([]Moment, error) {
	c := tx.core
	if name == "" {
		return c.history.All(&c.queues.figures, steps(last)), nil
	}
	q, err := c.queueNamed(name)
	if err != nil {
		return nil, err
	}
	return c.history.Of(&q.figures, q.set.CreatedAt, steps(last)), nil
}

// KeyHistory is History of a fairness key, of the last hour at most. A key that had none is followed from now on, and for
// some minutes at least. Errors: ErrNoQueue, ErrInvalid, ErrTooBig.
func (tx *Tx) KeyHistory(queue, key string, last time.Duration) ([]KeyMoment, error) {
	c := tx.core
	q, err := c.queueNamed(queue)
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Limits.CheckKey(key); err != nil {
		return nil, err
	}
	h, total := keytable.HashOf(key), int64(0)
	var stats *figures.Key
	if k := q.keys.find(h, key); k != nil {
		stats, total = &k.stats, k.total
	}
	f := q.figures.Watch(stats, key, uint64(h), total, c.now)
	if f == nil {
		return nil, nil
	}
	return c.history.OfKey(f, steps(last)), nil
}

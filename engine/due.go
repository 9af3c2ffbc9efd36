package engine

import (
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/window"
	"github.com/faisca/fila/storage"
)

// dueEntry is an entry of a due-time index that is in memory. Its message is set if it is a delayed one
// that is in memory, too.
type dueEntry = window.Entry[*message]

// dueIndex is a durable index of messages by time. There are two: of delayed messages, and
// of messages with a TTL. The head of each is in memory (package window), and changes as follows:
//
//   - The head has more than twice DueWindow entries: trimDue keeps the earlier half.
//   - It has half of DueWindow or less: refill reads the next entries off the loop.
//   - A read reaches the end of the index: new entries join the head.
//   - Recovery reads the first DueWindow entries.
type dueIndex struct {
	window.Index[*message]
	family storage.Family
}

// next returns when the first entry of the head is due, in Unix nanoseconds.
func (x *dueIndex) next() int64 {
	if d, ok := x.First(); ok {
		return d.At
	}
	return never
}

// dueLooks is how many entries a unit of the budget pays for when they are only inspected.
const dueLooks = 8

// schedule makes a message that is in no structure delayed until a time, in memory and in
// the batch. The message stays in memory only if its entry is in the head.
func (c *core) schedule(m *message, at int64) {
	d := window.NewEntry(at, m.storageKey(), m)
	m.key.delayed++
	m.key.queue.figures.Change(figures.Messages{Delayed: 1})
	m.key.queue.recordTime(m.id, at)
	c.releaseBody(m)
	m.status = delayed
	if !c.index(&c.delayed.index, d) {
		m.status = gone // on disk only
	}
}

// index writes an entry of an index and reports whether it is in the head, too.
func (c *core) index(x *dueIndex, d *dueEntry) bool {
	c.out.batch.Put(x.family, []byte(d.Position()), nil)
	if !x.Add(d) {
		return false
	}
	if x.Len() > 2*c.cfg.DueWindow {
		c.trimDue(x)
	}
	return true
}

// unindex deletes the entry of a message from an index, in memory and on disk.
func (c *core) unindex(x *dueIndex, at int64, mk storage.MessageKey) {
	if d := x.Find(mk.ID); d != nil && d.Key.Queue == mk.Queue {
		x.Remove(d)
		c.out.batch.SingleDelete(x.family, []byte(d.Position()))
		return
	}
	if x == &c.ttl.index {
		delete(c.ttl.expiring, mk.ID)
	}
	key := storage.AppendScheduledKey(nil, at, mk)
	c.out.batch.SingleDelete(x.family, key)
	x.Removed(window.Due(key))
}

// trimDue leaves the later half of a head to the disk.
func (c *core) trimDue(x *dueIndex) {
	c.spend(x.Len() / 4)
	for _, d := range x.Trim() {
		if m := d.Message; m != nil {
			c.heads.dropBody(m)
			m.status = gone
			if !m.key.purged() {
				c.settle(m.key)
			}
		}
	}
}

// unschedule removes an entry of the delayed messages from the head and from disk. A
// message of a purged queue is dropped with it.
func (c *core) unschedule(d *dueEntry) {
	c.delayed.index.Remove(d)
	c.out.batch.SingleDelete(storage.Scheduled, []byte(d.Position()))
	if m := d.Message; m != nil && m.key.purged() {
		c.heads.dropBody(m)
		m.status = gone
	}
	if q := c.queues.byNumber[d.Key.Queue]; q != nil {
		q.figures.Change(figures.Messages{Delayed: -1})
		if k := q.keys.get(d.Key.Key); k != nil {
			k.delayed--
		}
		q.recordTime(d.Key.ID, 0)
	}
}

// delayedMessages is the component that makes delayed messages ready.
type delayedMessages struct{ index dueIndex }

func (d *delayedMessages) reset() { d.index = dueIndex{family: storage.Scheduled} }

func (d *delayedMessages) next(*core) int64 { return d.index.next() }

// expire makes due messages ready, within the budget. A message that is not in memory joins
// the backlog on disk of its key, and its entry is removed.
func (d *delayedMessages) expire(c *core) {
	for c.room() {
		e, ok := d.index.First()
		if !ok || e.At > c.now {
			break
		}
		c.spend(1)
		c.unschedule(e)
		q := c.queues.byNumber[e.Key.Queue]
		switch {
		case q == nil: // the queue was deleted, with its messages
		case e.Message != nil:
			c.makeReady(e.Message)
		default:
			k := c.keyOf(q, e.Key.Key)
			c.heads.shrink(k.window.AddOnDisk(window.PlaceOf(e.Key)))
			c.settle(k)
		}
	}
	c.refill(&d.index)
}

// refill starts a read of the next entries when the head is below half of DueWindow.
func (c *core) refill(x *dueIndex) {
	if x.Wants() && c.mayRead() && x.Len() <= c.cfg.DueWindow/2 {
		r := &dueRead{epoch: c.epoch, index: x, family: x.family}
		r.from = x.Issue(&r.Read)
		c.out.jobs = append(c.out.jobs, r)
	}
}

// dueRead is a job that reads the next entries of a due-time index.
type dueRead struct {
	window.Read[window.Due]
	epoch  uint64    // core.epoch when it was issued
	index  *dueIndex // on the loop only
	family storage.Family
	from   window.Due // the edge
	found  []*dueEntry
	next   window.Due // the first entry that was not read; "": there are no more
	err    error
}

// do reads the entries. It runs off the loop and changes only the result.
func (r *dueRead) do(store Store) {
	const most = 2048 // the entries are merged in one turn
	r.found, r.next, r.err = window.ReadDue[*message](store.Scan(r.family, []byte(r.from), nil), r.from, most)
}

// Apply adds the entries that were found to the head. A failed or stale read changes nothing; a later
// turn starts another.
func (r *dueRead) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil
	}
	r.index.End(&r.Read)
	if r.err == nil {
		r.index.Merge(&r.Read, r.found, r.next, r.next != "")
	} else {
		c.readFailed(nil, r.err)
	}
	return nil
}

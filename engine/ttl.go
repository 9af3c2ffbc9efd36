package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/storage"
)

// Time to live: a message that has one is in a second index by time (core.ends) from
// its enqueue until it is gone. When its time is over it dies, or vanishes where
// there is no dead-letter queue: at once if it is in a window and its body at hand,
// else after its record was read beside the loop. A leased message is its consumer's
// for as long as the lease lasts. Whatever the index has not come to yet is not
// delivered any more, see pick.

// reasonTTL is why a message is dead whose time to live was over.
const reasonTTL = "ttl"

// lifetime returns when a message that is enqueued now ends, 0: never. It refuses
// one that would end before it is ready.
func (c *core) lifetime(q *queue, ttl time.Duration, readyAt int64) (int64, error) {
	name := "TTL"
	if ttl == 0 {
		ttl, name = time.Duration(q.set.TTLMs)*time.Millisecond, "the queue's TTL" //nolint:gosec // bounded when it is set
	}
	if ttl == 0 {
		return 0, nil
	}
	end := c.now + int64(ttl)
	if readyAt >= end {
		return 0, fmt.Errorf("%w: %s of %d ms is over before the message is due; give it a longer one", ErrInvalid, name, ttl.Milliseconds())
	}
	return end, nil
}

// ttlExpired says that a message's time to live is over.
func (c *core) ttlExpired(m *message) bool { return m.expires != 0 && m.expires <= c.now }

// ttlMessages is the messages that have a time to live.
type ttlMessages struct {
	index       dueIndex         // by its end
	batches     int              // reads under way, of messages whose time is over
	expiring    map[ID]*dueEntry // entries that those are about
	pausedUntil int64            // before it, no such read is asked for

	unchecked
}

func (t *ttlMessages) reset() {
	*t = ttlMessages{index: dueIndex{family: storage.Expiries}, expiring: map[ID]*dueEntry{}}
}

func (t *ttlMessages) next(c *core) int64 {
	if t.batches >= ttlBatchesMax || t.index.heap.len() == 0 {
		return never
	}
	return max(t.index.first(), c.reads.pausedUntil, t.pausedUntil)
}

// expire ends the messages whose time to live is over, in slices.
func (t *ttlMessages) expire(c *core) {
	var unread map[*queue]*ttlBatch
	for c.room() {
		d, ok := t.index.heap.next()
		if !ok || d.at > c.now {
			break
		}
		c.spend(2) // it may move to another queue
		q := c.queues.byNumber[d.mk.Queue]
		if q == nil { // deleted since, with its messages
			c.unindex(&t.index, d.at, d.mk)
			continue
		}
		if m := c.leases.byID[d.mk.ID]; m != nil && m.key.queue == q {
			t.index.remove(d) // endLease puts it back
			continue
		}
		if m := q.inWindow(d.mk); m != nil && c.endTTL(m) {
			continue
		}
		// What follows is known only when the record was read. Until then the entry is
		// on disk only.
		o := unread[q]
		if o == nil || len(o.entries) == ttlBatchMax {
			if t.batches >= ttlBatchesMax || !c.mayRead() || c.now < t.pausedUntil {
				break
			}
			o = c.readTTLBatch(q)
			if unread == nil {
				unread = map[*queue]*ttlBatch{}
			}
			unread[q] = o
		}
		t.index.remove(d)
		t.expiring[d.mk.ID] = d
		o.entries = append(o.entries, d)
	}
	c.refill(&t.index)
}

// endTTLAtHead ends a message at the head of its key that the index has not come to. If its
// record cannot be read, the key's messages are left to the disk for some time: others
// must not wait for that.
func (c *core) endTTLAtHead(m *message) {
	if c.endTTL(m) {
		return
	}
	err := c.loadBody(m)
	if err == nil {
		c.endTTL(m)
		return
	}
	c.cfg.Log.Error().Err(err).Msg("a message whose time to live is over cannot be read, it is tried again")
	k := m.key
	c.shrink(k.cut(0))
	c.backOff(k)
	k.lastReadEmpty = true
	c.settle(k)
}

// inWindow returns a message if it is in its key's window, else nil.
func (q *queue) inWindow(mk storage.MessageKey) *message {
	k := q.keys.get(mk.Key)
	if k == nil {
		return nil
	}
	return k.at(place{rank: mk.Rank, id: mk.ID})
}

// endTTL takes a message out of its window whose time to live is over, and reports
// whether that could be done without reading its record.
func (c *core) endTTL(m *message) bool {
	if m.body == nil && c.hasDLQ(m.key.queue) {
		return false
	}
	m.key.removeAt(m.place)
	c.heads.messages--
	k := m.key
	c.expireMessage(m)
	c.settle(k)
	return true
}

// hasDLQ says that the messages of a queue go somewhere when their time is over.
func (c *core) hasDLQ(q *queue) bool { return !q.isDLQ() && c.queues.byName[q.set.DLQ] != nil }

// expireMessage ends a message that is in no structure, and returns the queue that takes
// it, "" if none does. Its body is there if it is hasDLQ.
func (c *core) expireMessage(m *message) string {
	q := m.key.queue
	q.totals.ttlExpired++
	c.out.sync = true
	if c.hasDLQ(q) {
		return c.deadLetter(m, reasonTTL)
	}
	q.totals.dropped++
	c.emitFailure(m, Event{Kind: EventDead, Reason: reasonTTL})
	c.remove(m)
	return ""
}

// restoreExpiry puts the end of a message's life back that came while it was leased.
func (c *core) restoreExpiry(m *message) {
	if c.ttl.index.byID[m.id] != nil || c.ttl.expiring[m.id] != nil {
		return
	}
	if d := newExpiryEntry(m); !c.ttl.index.onDisk(d.key) {
		c.ttl.index.add(d)
	}
}

func newExpiryEntry(m *message) *dueEntry { return newDueEntry(m.expires, m.storageKey(), nil) }

// ttlBatch is messages of a queue whose time to live is over and whose records are
// read beside the loop.
type ttlBatch struct {
	loggedRead
	entries []*dueEntry
	found   []*foundMessage
}

// What is read at once, and how many of those at a time: a million that end in the same
// second hold up nobody.
const (
	ttlBatchMax   = 256
	ttlBatchesMax = 2
)

func (c *core) readTTLBatch(q *queue) *ttlBatch {
	o := &ttlBatch{}
	o.changeLog = c.openLog(q)
	o.then = o.deadLetter
	c.out.jobs = append(c.out.jobs, o)
	c.ttl.batches++
	return o
}

func (o *ttlBatch) do(store Store) {
	for _, d := range o.entries {
		var f *foundMessage
		if f, o.err = readMessage(store, d.mk); o.err != nil {
			return
		}
		if f != nil {
			o.found = append(o.found, f)
		}
	}
}

// deadLetter ends the lives of those that are still there.
func (o *ttlBatch) deadLetter(c *core) {
	c.ttl.batches--
	if o.err != nil || !c.valid(&o.changeLog) {
		if o.err != nil {
			c.cfg.Log.Error().Err(o.err).Msg("messages whose time to live is over cannot be read, it is tried again")
			c.ttl.pausedUntil = c.now + int64(c.cfg.MendInterval)
		}
		for _, d := range o.entries { // once more, those that are not gone meanwhile
			if c.ttl.expiring[d.mk.ID] != d {
				continue
			}
			delete(c.ttl.expiring, d.mk.ID)
			if !c.ttl.index.onDisk(d.key) {
				c.ttl.index.add(d)
			}
		}
		return
	}
	c.spend(2 * len(o.found))
	for _, f := range o.found {
		if m := c.extract(&o.changeLog, f); m != nil {
			k := m.key
			c.expireMessage(m)
			c.settle(k)
		}
	}
	for _, d := range o.entries { // leased meanwhile: endLease puts it back
		if c.ttl.expiring[d.mk.ID] == d {
			delete(c.ttl.expiring, d.mk.ID)
		}
	}
}

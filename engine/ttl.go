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

// outlived says that a message's time to live is over.
func (c *core) outlived(m *message) bool { return m.expires != 0 && m.expires <= c.now }

// endLives acts on the messages whose time to live is over, in slices.
func (c *core) endLives() {
	var unread map[*queue]*obituary
	for c.room() {
		d, ok := c.ends.heap.next()
		if !ok || d.at > c.now {
			break
		}
		c.spend(2) // it may move to another queue
		q := c.byNumber[d.mk.Queue]
		if q == nil { // deleted since, with its messages
			c.unindex(&c.ends, d.at, d.mk)
			continue
		}
		if m := c.leases[d.mk.ID]; m != nil && m.key.queue == q {
			c.ends.remove(d) // endLease puts it back
			continue
		}
		if m := q.inWindow(d.mk); m != nil && c.endLife(m) {
			continue
		}
		// What follows is known only when the record was read. Until then the entry is
		// on disk only.
		o := unread[q]
		if o == nil || len(o.entries) == obituaryMax {
			if c.obituaries >= obituariesMax || !c.mayRead() || c.now < c.endPause {
				break
			}
			o = c.readObituary(q)
			if unread == nil {
				unread = map[*queue]*obituary{}
			}
			unread[q] = o
		}
		c.ends.remove(d)
		c.dying[d.mk.ID] = d
		o.entries = append(o.entries, d)
	}
	c.refill(&c.ends)
}

// nextEnd returns when endLives has something to do again.
func (c *core) nextEnd() (int64, bool) {
	at, ok := c.ends.next()
	return max(at, c.readPause, c.endPause), ok && c.obituaries < obituariesMax
}

// endLate ends a message at the head of its key that the index has not come to. If its
// record cannot be read, the key's messages are left to the disk for some time: others
// must not wait for that.
func (c *core) endLate(m *message) {
	if c.endLife(m) {
		return
	}
	err := c.loadBody(m)
	if err == nil {
		c.endLife(m)
		return
	}
	c.cfg.Log.Error().Err(err).Msg("a message whose time to live is over cannot be read, it is tried again")
	k := m.key
	c.shrink(k.cut(0))
	c.rest(k)
	k.vain = true
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

// endLife takes a message out of its window whose time to live is over, and reports
// whether that could be done without reading its record.
func (c *core) endLife(m *message) bool {
	if m.body == nil && c.mourned(m.key.queue) {
		return false
	}
	m.key.removeAt(m.place)
	c.refs--
	k := m.key
	c.expireMessage(m)
	c.settle(k)
	return true
}

// mourned says that the messages of a queue go somewhere when their time is over.
func (c *core) mourned(q *queue) bool { return !q.isDead() && c.queues[q.set.DLQ] != nil }

// expireMessage ends a message that is in no structure, and returns the queue that takes
// it, "" if none does. Its body is there if it is mourned.
func (c *core) expireMessage(m *message) string {
	q := m.key.queue
	q.totals.outlived++
	c.sync = true
	if c.mourned(q) {
		return c.bury(m, reasonTTL)
	}
	q.totals.dropped++
	c.emitFailure(m, Event{Kind: EventDead, Reason: reasonTTL})
	c.remove(m)
	return ""
}

// rearm puts the end of a message's life back that came while it was leased.
func (c *core) rearm(m *message) {
	if c.ends.byID[m.id] != nil || c.dying[m.id] != nil {
		return
	}
	if d := newEndEntry(m); !c.ends.onDisk(d.key) {
		c.ends.add(d)
	}
}

func newEndEntry(m *message) *dueEntry { return newDueEntry(m.expires, m.storageKey(), nil) }

// obituary is messages of a queue whose time to live is over and whose records are
// read beside the loop.
type obituary struct {
	reading
	entries []*dueEntry
	found   []*foundMessage
}

// What is read at once, and how many of those at a time: a million that end in the same
// second hold up nobody.
const (
	obituaryMax   = 256
	obituariesMax = 2
)

func (c *core) readObituary(q *queue) *obituary {
	o := &obituary{}
	o.watch = c.watch(q)
	o.then = o.bury
	c.beside = append(c.beside, o)
	c.obituaries++
	return o
}

func (o *obituary) do(store Store) {
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

// bury ends the lives of those that are still there.
func (o *obituary) bury(c *core) {
	c.obituaries--
	if o.err != nil || !c.holds(&o.watch) {
		if o.err != nil {
			c.cfg.Log.Error().Err(o.err).Msg("messages whose time to live is over cannot be read, it is tried again")
			c.endPause = c.now + int64(c.cfg.MendInterval)
		}
		for _, d := range o.entries { // once more, those that are not gone meanwhile
			if c.dying[d.mk.ID] != d {
				continue
			}
			delete(c.dying, d.mk.ID)
			if !c.ends.onDisk(d.key) {
				c.ends.add(d)
			}
		}
		return
	}
	c.spend(2 * len(o.found))
	for _, f := range o.found {
		if m := c.extract(&o.watch, f); m != nil {
			k := m.key
			c.expireMessage(m)
			c.settle(k)
		}
	}
	for _, d := range o.entries { // leased meanwhile: endLease puts it back
		if c.dying[d.mk.ID] == d {
			delete(c.dying, d.mk.ID)
		}
	}
}

package engine

import (
	"iter"

	"github.com/faisca/fila/engine/body"
	"github.com/faisca/fila/storage"
)

// bodyTable is the component that deletes bodies which no message holds any more, as package body says.
type bodyTable struct {
	body.Table
	min int   // bytes that a body has at least
	at  int64 // no look-up before this time
}

const (
	// bodyMin is the least bytes of a body: a shorter one would save little, and cost more than it saves.
	bodyMin = 1 << 10
	// bodyPause is the time between two look-ups.
	bodyPause = int64(20e6)
)

func (t *bodyTable) reset() { *t = bodyTable{min: t.min} }

// next returns when the next look-up is due.
func (t *bodyTable) next(c *core) int64 {
	if !t.Pending() {
		return never
	}
	return max(t.at, c.reads.PausedTo)
}

// expire starts the next look-up.
func (t *bodyTable) expire(c *core) {
	if t.next(c) <= c.now {
		c.out.jobs = append(c.out.jobs, &bodyLook{epoch: c.epoch, Look: t.Look()})
	}
}

// recoverBodies begins a sweep if there are bodies.
func (c *core) recoverBodies() error {
	it := c.store.Scan(storage.Bodies, storage.HoldersPrefix(), nil)
	defer it.Close()
	if it.Seek(storage.HoldersPrefix()) {
		c.bodies.Sweep()
	}
	return it.Err()
}

// sharedBody is the body of a publish whose messages are being stored.
type sharedBody struct {
	ties    *ties // of the messages; the id is that of the first one
	content []byte
	holders storage.Holders
}

// shareBody returns the body that the messages of an admitted publish share, nil if each has its own payload.
func (c *core) shareBody(req *Publish, admitted []admission) *sharedBody {
	n := 0
	for i := range admitted {
		if a := &admitted[i]; a.queue != nil && a.known == (ID{}) {
			n++
		}
	}
	if e := req.encoded; n > 1 && len(e.Content()) >= c.bodies.min {
		return &sharedBody{content: e.Content(), holders: storage.Holders{Messages: make([]string, 0, n)}}
	}
	return nil
}

// add makes a new message one of those that share the body; nil: they do not.
func (b *sharedBody) add(c *core, m *message) {
	if b == nil {
		return
	}
	if b.ties == nil {
		b.ties = &ties{body: m.id}
		if m.tied().rewritten { // a body of this id may be there: that of the publish which has stored the message
			b.ties.body = c.nextID(m.key.hash.InID(), m.rank)
		}
	}
	b.holders.Messages = append(b.holders.Messages, string(c.messageKey(m)))
	if t := m.tied(); t == (ties{}) {
		m.ties = b.ties
	} else {
		t.body = b.ties.body
		m.tie(t)
	}
}

// storeBody stores a body once all of its messages are in the batch.
func (c *core) storeBody(b *sharedBody) {
	if b == nil {
		return
	}
	id := b.ties.body
	c.out.batch.Put(storage.Bodies, storage.AppendBodyKey(nil, id), b.content)
	c.out.batch.Put(storage.Bodies, storage.AppendHoldersKey(nil, id), b.holders.Append(nil))
	c.bodies.Stored(id, len(b.holders.Messages))
}

// leaveBody ends the share of a message that is removed in this batch.
func (c *core) leaveBody(m *message) {
	own := m.tied()
	id := own.body
	if id == (ID{}) {
		return
	}
	own.body = ID{}
	m.tie(own)
	if c.bodies.Left(id) {
		storage.DeleteBody(c.out.batch, id)
	}
}

// bodyLook is the job that looks for bodies without holders.
type bodyLook struct {
	epoch uint64
	body.Look
}

// do implements job.
func (l *bodyLook) do(store Store) { l.Read(store) }

// Apply deletes the bodies without holders. After an error the look-up is repeated.
func (l *bodyLook) Apply(tx *Tx) error {
	c, t := tx.core, &tx.core.bodies
	if l.epoch != c.epoch {
		return nil
	}
	t.Looked(&l.Look)
	t.at = c.now + bodyPause
	if l.Err != nil {
		c.cfg.Log.Error().Err(l.Err).Msg("bodies of messages cannot be looked up, retrying later")
		t.at = c.now + int64(c.cfg.RetryInterval)
		return nil //nolint:nilerr // logged; no client waits for this task
	}
	c.spend(len(l.Free))
	for _, id := range l.Free {
		storage.DeleteBody(c.out.batch, id)
	}
	return nil
}

// check verifies that a body is counted with at least the messages in memory that hold it (34).
func (t *bodyTable) check(c *core, bad report) {
	held := map[ID]int{}
	for m := range inMemory(c) {
		held[m.tied().body]++
	}
	t.Counted(func(id ID, n int) {
		if n < max(held[id], 1) {
			bad(34, "body %s is held by %d messages in memory, %d are counted", id, held[id], n)
		}
	})
}

// inMemory iterates over the messages that are in memory: those in windows, leased and delayed ones.
func inMemory(c *core) iter.Seq[*message] {
	return func(yield func(*message) bool) {
		visit := func(m *message) bool { return m == nil || yield(m) }
		for _, q := range c.queues.byName {
			for k := range q.roster.All() {
				for _, m := range k.window.All() {
					if !visit(m) {
						return
					}
				}
			}
		}
		for _, m := range c.leases.byID {
			if !visit(m) {
				return
			}
		}
		for _, e := range c.delayed.index.All() {
			if !visit(e.Message) {
				return
			}
		}
	}
}

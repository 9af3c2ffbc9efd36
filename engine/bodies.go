package engine

import (
	"errors"
	"iter"
	"slices"

	"github.com/faisca/fila/storage"
)

// bodyTable deletes bodies that no message holds any more (storage/body.go). The states of a body:
//
//	counted ──its last message ends──▶ deleted, in the same batch
//	counted ──recovery; purge or deletion of a queue; too many counts──▶ uncounted
//	uncounted ──one of its messages ends; a sweep──▶ looked up ──no message holds it──▶ deleted
//
// A sweep looks all bodies up. It follows a recovery, and a purge or deletion of a queue, which reads
// no message. A look-up is an off-loop job and needs no change log: no message begins to hold a body
// after its publish, so a body without a holder stays without one. Deleting one twice is harmless.
type bodyTable struct {
	min           int        // bytes that a body has at least
	counts, older map[ID]int // messages that have not ended: of the newest bodies, of those before
	ended         []ID       // uncounted bodies of which a message has ended
	from          []byte     // where the sweep continues; nil: there is none
	again         bool       // another sweep follows
	looking       bool       // a look-up is under way
	at            int64      // no look-up before this time
}

// Bounds of bodies: a shorter body would save little, and cost more than it saves. Two maps of
// bodyCountsMax counts take some 10 MiB.
const (
	bodyMin       = 1 << 10
	bodyCountsMax = 64 << 10
	bodyEndedMax  = 4096
	bodyLooks     = 256 // of a sweep, in one job
	bodyPause     = int64(20e6)
)

func (t *bodyTable) reset() { *t = bodyTable{min: t.min} }

// next returns when the next look-up is due.
func (t *bodyTable) next(c *core) int64 {
	if t.looking || len(t.ended) == 0 && t.from == nil {
		return never
	}
	return max(t.at, c.reads.pausedUntil)
}

// expire starts the next look-up.
func (t *bodyTable) expire(c *core) {
	if t.next(c) > c.now {
		return
	}
	c.out.jobs = append(c.out.jobs, &bodyLook{epoch: c.epoch, ids: t.ended, from: t.from})
	t.looking, t.ended = true, nil
}

// sweep looks all bodies up, since the counts do not tell which ones are held.
func (t *bodyTable) sweep() {
	t.again = t.from != nil
	if t.counts, t.older = nil, nil; !t.again {
		t.from = storage.HoldersPrefix()
	}
}

// recoverBodies begins a sweep if there are bodies.
func (c *core) recoverBodies() error {
	it := c.store.Scan(storage.Bodies, storage.HoldersPrefix(), nil)
	defer it.Close()
	if it.Seek(storage.HoldersPrefix()) {
		c.bodies.sweep()
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
	if e := req.encoded; n > 1 && e.content >= c.bodies.min {
		return &sharedBody{content: e.whole[:e.content], holders: storage.Holders{Messages: make([]string, 0, n)}}
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
			b.ties.body = c.nextID(m.key.hash.idHash(), m.rank)
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
	t, id := &c.bodies, b.ties.body
	c.out.batch.Put(storage.Bodies, storage.AppendBodyKey(nil, id), b.content)
	c.out.batch.Put(storage.Bodies, storage.AppendHoldersKey(nil, id), b.holders.Append(nil))
	if len(t.counts) >= bodyCountsMax {
		t.older, t.counts = t.counts, nil
	}
	if t.counts == nil {
		t.counts = map[ID]int{}
	}
	t.counts[id] = len(b.holders.Messages)
}

// leaveBody ends the share of a message that is removed in this batch.
func (c *core) leaveBody(m *message) {
	t, own := &c.bodies, m.tied()
	id := own.body
	if id == (ID{}) {
		return
	}
	own.body = ID{}
	m.tie(own)
	counts := t.counts
	n, counted := counts[id]
	if !counted {
		counts = t.older
		n, counted = counts[id]
	}
	switch {
	case n > 1:
		counts[id] = n - 1
	case counted:
		delete(counts, id)
		storage.DeleteBody(c.out.batch, id)
	case len(t.ended) < bodyEndedMax:
		t.ended = append(t.ended, id)
	default:
		t.ended = nil
		t.sweep()
	}
}

// bodyLook is the job that looks for bodies without holders.
type bodyLook struct {
	epoch uint64
	ids   []ID
	from  []byte // of a part of a sweep; nil: none

	free []ID
	next []byte // where the sweep continues; nil: it has come to the end
	err  error
}

// do implements job.
func (l *bodyLook) do(store Store) {
	for _, id := range l.ids {
		holders, err := store.Get(storage.Bodies, storage.AppendHoldersKey(nil, id))
		if errors.Is(err, storage.ErrNotFound) {
			continue // it was deleted
		}
		if l.err = err; err != nil || !l.look(store, id, holders) {
			return
		}
	}
	if l.from == nil {
		return
	}
	it := store.Scan(storage.Bodies, l.from, storage.After(storage.HoldersPrefix()))
	defer it.Close()
	ok := it.Seek(l.from)
	for n := 0; ok && n < bodyLooks; ok, n = it.Next(), n+1 {
		id, _, err := storage.ParseBodyKey(it.Key())
		if err == nil && !l.look(store, id, it.Value()) {
			return
		}
	}
	if ok {
		l.next = slices.Clone(it.Key())
	}
	l.err = it.Err()
}

// look notes a body that no message holds. Damaged records are left to fila repair.
func (l *bodyLook) look(store Store, id ID, holders []byte) bool {
	held, err := storage.BodyHeld(store, id, holders)
	switch {
	case errors.Is(err, storage.ErrCorrupt):
	case err != nil:
		l.err = err
		return false
	case !held:
		l.free = append(l.free, id)
	}
	return true
}

// Apply deletes the bodies without holders. After an error the look-up is repeated.
func (l *bodyLook) Apply(tx *Tx) error {
	c, t := tx.core, &tx.core.bodies
	if l.epoch != c.epoch {
		return nil
	}
	t.looking, t.at = false, c.now+bodyPause
	if l.err != nil {
		c.cfg.Log.Error().Err(l.err).Msg("bodies of messages cannot be looked up, retrying later")
		t.at, t.ended = c.now+int64(c.cfg.RetryInterval), append(t.ended, l.ids...)
		return nil //nolint:nilerr // logged; no client waits for this task
	}
	c.spend(len(l.free))
	for _, id := range l.free {
		storage.DeleteBody(c.out.batch, id)
	}
	switch {
	case l.from == nil:
	case l.next == nil && t.again:
		t.from, t.again = storage.HoldersPrefix(), false
	default:
		t.from = l.next
	}
	return nil
}

// check verifies that a body is counted with at least the messages in memory that hold it (34).
func (t *bodyTable) check(c *core, bad report) {
	held := map[ID]int{}
	for m := range inMemory(c) {
		held[m.tied().body]++
	}
	for _, counts := range []map[ID]int{t.counts, t.older} {
		for id, n := range counts {
			if n < max(held[id], 1) {
				bad(34, "body %s is held by %d messages in memory, %d are counted", id, held[id], n)
			}
		}
	}
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

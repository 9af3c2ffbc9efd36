package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/storage"
)

// reading is what everything that is read under a watch has in common. It is done
// beside the loop and then applied, as a call like any other.
type loggedRead struct {
	changeLog
	done     bool
	keepsLog bool // the task that asked ends the watch, not the reading
	err      error
	then     func(c *core) // goes on with what was read
}

// Apply lets the one go on who has asked.
func (r *loggedRead) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil // who has asked has been asked to ask again
	}
	r.done = true
	r.then(c)
	if !r.keepsLog {
		c.closeLog(&r.changeLog)
	}
	return nil
}

// resume is how a reading goes on that a task waits for.
func resume(t *Task) func(*core) {
	return func(c *core) {
		if t.wait != nil { // else its client has gone
			c.run(t)
		}
	}
}

// page is a stretch of a queue as the store holds it: for those who go through
// messages that need not be in memory.
type page struct {
	loggedRead
	from, to     []byte
	limit, bytes int

	found []foundMessage
	next  []byte // where the next page starts, nil: nowhere
}

// readPage asks for at most limit of the next messages of a queue, or with a key of
// those of one fairness key. cursor is where to start, nil is the beginning.
func (c *core) readPage(q *queue, key string, cursor []byte, limit int, then func(*core)) *page {
	prefix := storage.AppendQueuePrefix(nil, q.no)
	if key != "" {
		prefix = storage.AppendKeyPrefix(nil, q.no, key)
	}
	p := &page{from: prefix, to: storage.After(prefix), limit: limit, bytes: pageBytes}
	p.changeLog, p.then = c.openLog(q), then
	if string(cursor) > string(prefix) {
		p.from = cursor
	}
	c.out.jobs = append(c.out.jobs, p)
	return p
}

// pageBytes ends a page early that takes so many bytes; one message fits always.
const pageBytes = 4 << 20

// viewBytes is what a message of a page takes beside its record, as it was found and as
// it is shown. A test holds the types to it.
const viewBytes = 1 << 10

// PageBytes is what a page may take at most until it is shown, where a record has at
// most so many bytes.
func PageBytes(record int) int { return pageBytes + record + viewBytes }

// do reads the page. It runs beside the loop, after the commit of the batch in
// which it was asked for.
func (p *page) do(store Store) {
	if string(p.from) >= string(p.to) {
		return
	}
	size := 0
	more, err := readMessages(store, p.from, p.to, func(f foundMessage) bool {
		p.found = append(p.found, f)
		size += len(f.m.body) + len(f.key) + viewBytes
		return len(p.found) < p.limit && size < p.bytes
	})
	p.err = err
	if n := len(p.found); more && n > 0 {
		last := p.found[n-1]
		after := last.m.place.next()
		p.next = storage.AppendMessageKey(nil, p.no, last.key, after.rank, after.id)
	}
}

// lookup finds messages of a queue by their ids: an id holds its rank and a hash of
// its key, so that only the keys with that hash have to be asked.
type lookup struct {
	loggedRead
	wanted []wanted
	bodies bool            // the records are kept: for who shows them. Others need what they say, not what they hold
	work   int             // messages to look for, at most
	found  []*foundMessage // as wanted, nil: there is none
}

type wanted struct {
	id   ID
	keys []*fairKey // that it may belong to, in no order, shared by ids; beside the loop, only their names may be read
}

// lookUp asks for messages of a queue.
func (c *core) lookUp(q *queue, ids []ID, bodies bool, then func(*core)) *lookup {
	l := c.newLookup(q, ids, then)
	l.bodies = bodies
	c.out.jobs = append(c.out.jobs, l)
	return l
}

func (c *core) newLookup(q *queue, ids []ID, then func(*core)) *lookup {
	l := &lookup{wanted: make([]wanted, len(ids))}
	l.changeLog, l.then = c.openLog(q), then
	known := map[uint32][]*fairKey{} // names may be chosen so that very many keys have a hash
	for i, id := range ids {
		hash := idKeyHash(id)
		keys, ok := known[hash]
		if !ok {
			keys = q.keys.withID(hash)
			known[hash] = keys
		}
		l.wanted[i] = wanted{id, keys}
		l.work += max(len(keys), 1)
	}
	return l
}

// lookupLong is from when on nobody else waits for a lookup: there may be very many ids,
// and of each very many keys to be asked.
const lookupLong = 64

// do looks the messages up. It runs beside the loop, after the commit of the batch
// in which it was asked for.
func (l *lookup) do(store Store) {
	l.found = make([]*foundMessage, len(l.wanted))
	for i := range l.wanted {
		if l.found[i], l.err = l.wanted[i].find(store, l.no); l.err != nil {
			return
		}
		if f := l.found[i]; f != nil && !l.bodies {
			f.m.body = nil
		}
	}
}

// lookedUp returns what was found of messages of a queue, or asks for it and
// returns ErrWouldBlock: the task is run again when it is there.
func (tx *Tx) lookedUp(q *queue, slot **lookup, ids []ID, bodies bool) (*lookup, error) {
	c, l := tx.core, *slot
	*slot = nil
	switch {
	case l != nil && l.done && c.valid(&l.changeLog):
		return l, l.err
	case tx.atomic && l != nil && l.done:
		// A call before it in the same transaction has emptied the queue.
		return &lookup{found: make([]*foundMessage, len(ids))}, nil
	case tx.atomic:
		return nil, errWaits
	}
	*slot = c.lookUp(q, ids, bodies, resume(tx.task))
	tx.park(nil, 0, false)
	return nil, ErrWouldBlock
}

// lookupError says what was attempted; ErrWouldBlock is a signal and stays as it is.
func lookupError(err error, what string) error {
	if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// preflightLookup looks messages up for a call of a transaction, and keeps the watch
// until that is done: others of its calls may have to wait, too.
func (tx *Tx) preflightLookup(queue string, slot **lookup, ids []ID, bodies bool) error {
	c, l := tx.core, *slot
	q := c.queues.byName[queue]
	if q == nil || l != nil && l.done && c.valid(&l.changeLog) {
		return nil
	}
	if l == nil || l.epoch != c.epoch || l.done {
		l = c.lookUp(q, ids, bodies, resume(tx.task))
		l.keepsLog, *slot = true, l
		tx.task.logs = append(tx.task.logs, &l.changeLog)
	}
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

func (w *wanted) find(store Store, queue uint32) (*foundMessage, error) {
	slices.SortFunc(w.keys, func(a, b *fairKey) int { return strings.Compare(a.name, b.name) })
	for _, k := range w.keys {
		mk := storage.MessageKey{Queue: queue, Key: k.name, Rank: idRank(w.id), ID: w.id}
		f, err := readMessage(store, mk)
		if f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil //nolint:nilnil // there is no such message
}

// readMessage reads one message with what is known of its attempts; nil if there is
// none. What changes while it reads is noted as a fact.
func readMessage(store Store, mk storage.MessageKey) (*foundMessage, error) {
	key := mk.Append(nil)
	value, err := store.Get(storage.Messages, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is no such message
	}
	if err != nil {
		return nil, err
	}
	f := &foundMessage{key: mk.Key}
	if f.m, f.readyAt, err = decodeMessage(mk, value, nil); err != nil {
		return nil, err
	}
	switch value, err = store.Get(storage.Attempts, key); {
	case err == nil:
		if f.readyAt, err = f.m.decodeAttempt(value); err != nil {
			return nil, err
		}
	case !errors.Is(err, storage.ErrNotFound):
		return nil, err
	}
	if f.readyAt > 0 {
		if f.delayed, err = scheduled(store, f.readyAt, mk); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// A watch lets what is read beside the loop be used in a later turn, however much
// has happened in between. While a queue is watched, every change of one of its
// messages other than its enqueue is noted as a fact. What was found in the store
// and the facts since it was asked for together say what is (core.locate): no
// change makes a reading worthless, so no traffic keeps it from getting on.
type changeLog struct {
	queue *queue
	no    uint32 // of the queue then: a purge gives it another
	epoch uint64
	seq   uint64 // of the newest change when the reading was asked for
}

// fact is what is now known of a message that has changed while somebody watched.
type delta struct {
	gone uint64 // number of the change that took it out of the queue the last time; 0: none did

	// tried says that the message's record of attempts is known, as it follows.
	tried               bool
	attempt, deliveries uint32
	fence               uint64
	failure             *failure

	// timed says that it is known whether the message is delayed.
	timed   bool
	delayed bool
	readyAt int64
}

// deltasMax bounds the facts of a queue, but for those of one reading. When there are
// more, they are dropped, and what else is being read then is read again.
const deltasMax = 100_000

// watch begins to note what changes in a queue. closeLog must follow, unless the
// memory is dropped before.
func (c *core) openLog(q *queue) changeLog {
	q.logReaders++
	if len(q.deltas) > deltasMax {
		q.deltas, q.deltasLost = nil, q.changes
	}
	return changeLog{queue: q, no: q.no, epoch: c.epoch, seq: q.changes}
}

func (c *core) closeLog(w *changeLog) {
	if w.epoch != c.epoch {
		return // the queue that it knew is gone with its memory
	}
	if w.queue.logReaders--; w.queue.logReaders == 0 {
		w.queue.deltas = nil
	}
}

// holds says that what was read under the watch can be used: its queue is still
// the one it was, and no fact was dropped.
func (c *core) valid(w *changeLog) bool {
	return w.epoch == c.epoch && c.queues.byNumber[w.no] == w.queue && w.seq >= w.queue.deltasLost
}

// note returns the fact of a message that changes, or nil if nobody watches.
func (q *queue) recordDelta(id ID) *delta {
	if q.logReaders == 0 {
		return nil
	}
	q.changes++
	f := q.deltas[id]
	if f == nil {
		if q.deltas == nil {
			q.deltas = map[ID]*delta{}
		}
		f = &delta{}
		q.deltas[id] = f
	}
	return f
}

// recordGone notes that a message has left the queue.
func (q *queue) recordGone(id ID) {
	if f := q.recordDelta(id); f != nil {
		*f = delta{gone: q.changes}
	}
}

// recordAttempt notes what the message's record of attempts says now.
func (q *queue) recordAttempt(m *message) {
	f := q.recordDelta(m.id)
	if f == nil {
		return
	}
	f.tried, f.attempt, f.deliveries, f.fence, f.failure = true, m.attempt, m.deliveries, m.fence, nil
	if m.failure != nil {
		f.failure = new(*m.failure) // the message goes on changing its own
	}
}

// recordTime notes that a message waits for a time, or with 0 that it does not.
func (q *queue) recordTime(id ID, at int64) {
	if f := q.recordDelta(id); f != nil {
		f.timed, f.delayed, f.readyAt = true, at > 0, at
	}
}

// locate brings a message that was found in the store up to date and says what is
// with it now. If it is leased, what is known of it is in core.leases; the caller
// has to know that the watch holds.
func (c *core) locate(w *changeLog, f *foundMessage) status {
	q := w.queue
	if fact := q.deltas[f.m.id]; fact != nil {
		if fact.gone > w.seq {
			return gone // if it has come back since, it came after the reading
		}
		fact.apply(f)
	}
	k := q.keys.get(f.key)
	if k == nil {
		return gone
	}
	f.m.key = k
	switch m := c.leases.byID[f.m.id]; {
	case m != nil && m.key == k:
		return leased
	case f.delayed:
		return delayed
	default:
		return ready
	}
}

// apply brings a message as the store had it up to date.
func (f *delta) apply(found *foundMessage) {
	m := found.m
	if f.tried {
		m.retried, m.attempt, m.deliveries, m.fence, m.failure = true, f.attempt, f.deliveries, f.fence, f.failure
	}
	if f.timed {
		found.delayed, found.readyAt = f.delayed, f.readyAt
	}
}

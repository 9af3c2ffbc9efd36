package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/faisca/fila/engine/changes"
	"github.com/faisca/fila/engine/ids"
	"github.com/faisca/fila/engine/internal/failures"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/storage"
)

// loggedRead is the part that all reads of a queue's messages share whose result a change log
// makes current: pages, lookups, TTL batches. Its steps:
//
//  1. A turn opens a change log of the queue (openLog) and adds the read to the jobs.
//  2. After the commit of that turn's batch, the job reads the store, off the loop.
//  3. Meanwhile turns record the deltas of the queue's messages.
//  4. Apply calls then, which combines both with locate, and closes the log.
//
// In contrast to a window read (read.go) it never becomes stale by changes, so traffic cannot
// keep it from completing; it pays for that with a delta for every change meanwhile.
type loggedRead struct {
	changeLog
	done     bool // the result has arrived
	keepsLog bool // the task closes the log when it is concluded, not Apply
	err      error
	then     func(c *core) // continues with the result, on the loop
}

// Apply continues with the result. After a recovery it does nothing: the task that started the
// read was queued again and starts another one.
func (r *loggedRead) Apply(tx *Tx) error {
	c := tx.core
	if r.epoch != c.epoch {
		return nil
	}
	r.done = true
	r.then(c)
	if !r.keepsLog {
		c.closeLog(&r.changeLog)
	}
	return nil
}

// page is a page of a queue's messages. Browsing, purging a key and redriving read a queue page by page.
type page struct {
	loggedRead
	search.Page

	found []foundMessage
	ids   *ids.Owners // looks up the unique ids of what is found; nil: it is not for a redrive
}

// readPage starts reading at most limit messages of a queue, or of one of its fairness keys if
// key is not empty. cursor is the Next of the previous page; nil starts at the beginning.
func (c *core) readPage(q *queue, key string, cursor []byte, limit int, then func(*core)) *page {
	p := &page{Page: search.NewPage(q.no, key, cursor, limit)}
	p.changeLog, p.then = c.openLog(q), then
	c.out.jobs = append(c.out.jobs, p)
	return p
}

// PageBytes returns the maximum memory of a page in bytes if no record is larger than record.
func PageBytes(record int) int { return search.PageBytes + record + search.ViewBytes }

// do reads the page, off the loop.
func (p *page) do(store Store) {
	var like *throttleSet
	p.err = p.Read(store, func(r *search.Record) (int, error) {
		f, err := found(r, store, like)
		if err != nil {
			return 0, err
		}
		like = f.m.throttles
		p.found = append(p.found, f)
		return len(f.m.body) + len(f.key), p.ids.LookUp(store, f.m.id, &r.Message)
	})
}

// searching is a page.
type searching interface {
	job
	searches() bool
}

// searches reports whether the page may look at much more than it finds. The loop runs such
// pages one at a time, so that they take no more than one processor, and they let others run
// meanwhile.
func (p *page) searches() bool { return p.Searches() }

// lookup finds messages of a queue by their ids. An id contains the rank and a hash of the
// fairness key, so only the keys with that hash have to be tried.
type lookup struct {
	loggedRead
	wanted []wanted
	bodies bool            // retain the bodies, for commands that show them
	work   int             // number of records to try, at most
	found  []*foundMessage // parallel to wanted; nil: there is no such message

	ends []int64     // generations of the records of ends that are searched for a single message that is not found
	end  *search.End // the record; nil: there is none
}

// wanted is an id that a lookup looks for.
type wanted struct {
	id   ID
	keys []*fairKey // candidates in no order, shared by ids. Off the loop, only their names may be read
}

// lookUp starts a lookup.
func (c *core) lookUp(q *queue, ids []ID, bodies bool, then func(*core)) *lookup {
	l := c.newLookup(q, ids, then)
	if l.bodies = bodies; bodies {
		l.ends = q.ids.Ends()
	}
	c.out.jobs = append(c.out.jobs, l)
	return l
}

// newLookup returns a lookup with the candidate keys of each id; the caller starts it.
func (c *core) newLookup(q *queue, ids []ID, then func(*core)) *lookup {
	l := &lookup{wanted: make([]wanted, len(ids))}
	l.changeLog, l.then = c.openLog(q), then
	known := map[uint32][]*fairKey{} // clients may choose names so that very many keys share a hash
	for i, id := range ids {
		hash := id.KeyHash()
		keys, ok := known[hash]
		if !ok {
			keys = q.keys.WithID(hash)
			known[hash] = keys
		}
		l.wanted[i] = wanted{id, keys}
		l.work += max(len(keys), 1)
	}
	return l
}

// lookupLong is the work from which a lookup runs on a goroutine of its own, so that other
// jobs do not wait for it.
const lookupLong = 64

// do looks the messages up, off the loop.
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
	if len(l.ends) > 0 && l.found[0] == nil {
		l.end, l.err = search.FindEnd(store, l.no, l.ends, l.wanted[0].id)
	}
}

// lookedUp returns the finished lookup of a task in slot, if its change log is valid. Else it
// starts one, parks the task until the result is there and returns ErrWouldBlock. In a
// transaction only a lookup of the preflight can be used. The caller uses the result in the
// same turn.
func (tx *Tx) lookedUp(q *queue, slot **lookup, ids []ID, bodies bool) (*lookup, error) {
	c, l := tx.core, *slot
	*slot = nil
	switch {
	case l != nil && l.done && c.valid(&l.changeLog):
		return l, l.err
	case tx.atomic && l != nil && l.done:
		// An earlier call of the transaction has purged the queue.
		return &lookup{found: make([]*foundMessage, len(ids))}, nil
	case tx.atomic:
		return nil, errWaits
	}
	*slot = c.lookUp(q, ids, bodies, tx.task.resume)
	return nil, tx.await()
}

// lookupError wraps an error with what was attempted. ErrWouldBlock is a signal and remains.
func lookupError(err error, what string) error {
	if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// preflightLookup is the preflight of lookedUp: it returns nil once the lookup is done. The
// change log stays open until the transaction is concluded, since other calls may have to
// wait as well before the result is used.
func (tx *Tx) preflightLookup(queue string, slot **lookup, ids []ID, bodies bool) error {
	c, l := tx.core, *slot
	q := c.queues.byName[queue]
	if q == nil || l != nil && l.done && c.valid(&l.changeLog) {
		return nil
	}
	if l == nil || l.epoch != c.epoch || l.done {
		l = c.lookUp(q, ids, bodies, tx.task.resume)
		l.keepsLog, *slot = true, l
		tx.task.logs = append(tx.task.logs, &l.changeLog)
	}
	return tx.await()
}

// find reads the message under each candidate key, in the order of the names, until one has
// it. It returns nil if none does.
func (w *wanted) find(store Store, queue uint32) (*foundMessage, error) {
	slices.SortFunc(w.keys, func(a, b *fairKey) int { return strings.Compare(a.name, b.name) })
	for _, k := range w.keys {
		mk := storage.MessageKey{Queue: queue, Key: k.name, Rank: w.id.Rank(), ID: w.id}
		f, err := readMessage(store, mk)
		if f != nil || err != nil {
			return f, err
		}
	}
	return nil, nil //nolint:nilnil // there is no such message
}

// readMessage reads a message with its attempts, or returns nil if there is none. The reads
// need not be of one state of the store: what changes in between is in the change log.
func readMessage(store Store, mk storage.MessageKey) (*foundMessage, error) {
	r, err := search.Message(store, mk)
	if r == nil || err != nil {
		return nil, err
	}
	f, err := found(r, store, nil)
	return &f, err
}

// changeLog is the view of one reader on the changes of a queue (package changes). What the log has of a message since it
// was opened makes the records that were found in the store current (locate).
type changeLog struct {
	queue *queue
	no    uint32 // number of the queue when it was opened: a purge gives it another one
	epoch uint64
	since changes.Place
}

// delta is the current state of a message that has changed while its queue had readers.
type delta struct {
	// tried is true if the attempts record has changed to what follows.
	tried               bool
	freed               bool // the message does not own its unique id any more
	attempt, deliveries uint32
	fence               uint64
	failure             *failures.Failures

	// timed is true if the message has become delayed or has ceased to be.
	timed   bool
	delayed bool
	readyAt int64

	content *message // the message that has taken its place, with its body; nil: none has
}

// openLog begins to record the changes of a queue. closeLog must follow, unless a recovery
// drops the memory before.
func (c *core) openLog(q *queue) changeLog {
	return changeLog{queue: q, no: q.no, epoch: c.epoch, since: q.changes.Open()}
}

// closeLog ends a log, unless a recovery has dropped its queue.
func (c *core) closeLog(w *changeLog) {
	if w.epoch == c.epoch {
		w.queue.changes.Close()
	}
}

// valid reports whether the result of a read with this log can be used: its queue was neither
// purged nor deleted, and no change since the log was opened was dropped.
func (c *core) valid(w *changeLog) bool {
	return w.epoch == c.epoch && c.queues.byNumber[w.no] == w.queue && w.queue.changes.Complete(w.since)
}

// recordAttempt records the new content of a message's attempts record.
func (q *queue) recordAttempt(m *message) {
	f := q.changes.Change(m.id)
	if f == nil {
		return
	}
	f.tried, f.freed, f.attempt, f.deliveries, f.fence, f.failure = true, m.freed(), m.attempt, m.deliveries, m.fence, nil
	if m.failure != nil {
		f.failure = new(*m.failure) // a copy: the message changes its own
	}
}

// recordContent records that a message has taken the place of the one with its id. record is the whole one.
func (q *queue) recordContent(m *message, record []byte) {
	f := q.changes.Change(m.id)
	if f == nil || !q.changes.Hold(len(record)) {
		return
	}
	content := *m
	content.status, content.body = ready, record
	f.content = &content
}

// recordTime records that a message is delayed until a time, or with 0 that it is not.
func (q *queue) recordTime(id ID, at int64) {
	if f := q.changes.Change(id); f != nil {
		f.timed, f.delayed, f.readyAt = true, at > 0, at
	}
}

// locate makes a message that was found in the store current and returns its status; gone
// means that it is not in the queue. If it is leased, core.leases has its current state. The
// log must be valid.
func (c *core) locate(w *changeLog, f *foundMessage) status {
	q := w.queue
	d, isGone := q.changes.Since(f.m.id, w.since)
	if isGone {
		return gone // if it has come back since, it came after this read
	}
	if d != nil {
		d.apply(f)
	}
	k := q.keys.get(f.key)
	if k == nil {
		return gone
	}
	f.m.key = k
	switch m := c.leases.byID[f.m.id]; {
	case m != nil && m.key == k && m.retrying:
		f.delayed, f.readyAt = true, m.until
		return delayed
	case m != nil && m.key == k:
		return leased
	case f.delayed:
		return delayed
	default:
		return ready
	}
}

// apply applies a delta to a message that was found in the store.
func (f *delta) apply(found *foundMessage) {
	m := found.m
	if f.content != nil {
		*m = *f.content
	}
	if f.tried {
		m.retried, m.attempt, m.deliveries, m.fence, m.failure = true, f.attempt, f.deliveries, f.fence, f.failure
		if t := m.tied(); f.freed && t.unique != "" {
			t.unique = ""
			m.tie(t)
		}
	}
	if f.timed {
		found.delayed, found.readyAt = f.delayed, f.readyAt
	}
}

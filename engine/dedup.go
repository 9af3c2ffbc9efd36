package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zeebo/blake3"

	"github.com/faisca/fila/storage"
)

// Deduplication: an enqueue may name an id, and another one with the same id
// within the queue's window changes nothing and answers the first one's message.
//
// The ids are on disk only, however many there are. Whoever prepares a message
// looks its id up in the store, on the connection; what the store may not have
// shown yet is in memory: the ids of the last moments (core.fresh). A look-up is
// good as long as everything since is still there, which the numbers of batches
// tell; else it is done once more, beside the loop.
//
// Ids lie in generations, one after the other: a new one begins when the newest
// is as old as the window, so that one or two are within it. A generation that no
// window reaches any more is dropped by a single record.

// DedupContent in place of an id stands for the content of the message: a hash of
// queue, fairness key, headers and payload, as the producer gave them.
const DedupContent = "*"

// generationMin is the shortest time that ids are collected for before they are
// dropped together.
const generationMin = int64(time.Second)

// Two kinds of ids, kept apart by their first byte.
const (
	dedupNamed   = 0
	dedupContent = 1
)

// dedup is what a queue knows of its generations of ids: when they began, oldest
// first. Connections read it, so it is changed by replacing the list.
type dedup struct {
	queue *queue
	no    uint32
	gens  atomic.Pointer[[]int64]

	dropAt int64 // when the oldest is of no use any more
	timer  int
}

func (d *dedup) before(o *dedup) bool { return d.dropAt < o.dropAt }
func (d *dedup) index() *int          { return &d.timer }

func (d *dedup) generations() []int64 {
	if d == nil {
		return nil
	}
	return *d.gens.Load()
}

// dedupID makes what a request names into an id of the store: "" if it names none.
func dedupID(req *Enqueue) string {
	switch req.Dedup {
	case "":
		return ""
	case DedupContent:
	default:
		return string([]byte{dedupNamed}) + req.Dedup
	}
	h := blake3.New()
	var size [8]byte
	part := func(b []byte) { // each with its length, or "ab","c" would be "a","bc"
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		_, _ = h.Write(size[:]) // a hash does not fail
		_, _ = h.Write(b)
	}
	part([]byte(req.Queue))
	part([]byte(req.Key))
	for _, header := range req.Headers {
		part(header.Name)
		part(header.Value)
	}
	part(req.Payload)
	return string(h.Sum([]byte{dedupContent}))
}

// dedupView is what the store said about an id, and when.
type dedupView struct {
	queue uint32 // whose id it was looked up as
	seen  uint64 // the newest batch that the store certainly held
	found storage.DedupEntry
	err   error
	done  bool
}

// lookUp asks the store for an id in the generations of a queue. It may run
// anywhere.
func lookUp(store Store, queue uint32, gens []int64, id string, seen uint64) dedupView {
	l := dedupView{queue: queue, seen: seen, done: true}
	for _, began := range slices.Backward(gens) {
		b, err := store.Get(storage.Dedup, storage.AppendDedupKey(nil, queue, began, id))
		if errors.Is(err, storage.ErrNotFound) {
			continue
		}
		if err == nil {
			err = l.found.Decode(b)
		}
		l.err = err
		break
	}
	return l
}

// prepareDedup looks the request's id up, on the connection. seen must have been
// read before the snapshot.
func prepareDedup(req *Enqueue, store Store, s *Snapshot, seen uint64) {
	if req.dedup == "" {
		return
	}
	if d, ok := s.dedup.get(req.Queue); ok {
		req.known = lookUp(store, d.no, d.generations(), req.dedup, seen)
	} else {
		req.known = dedupView{seen: seen, done: true} // the queue has had no ids until then
	}
}

// freshID is an id of the last moments.
type freshID struct {
	key   dedupKey
	batch uint64
	found storage.DedupEntry
}

type dedupKey struct {
	queue uint32
	id    string
}

// freshIDs are the ids that a look-up in the store may not have seen.
type freshIDs struct {
	byKey map[dedupKey]storage.DedupEntry
	order []freshID
	// dropped is the newest batch of which something is not here any more: a
	// look-up that may not have seen it is of no use.
	dropped uint64
}

// freshMax and freshAge bound what is kept of what is committed: enough for tasks
// to get through the inbox.
const (
	freshMax = 1 << 16
	freshAge = int64(time.Second)
)

func (f *freshIDs) add(id freshID) {
	if f.byKey == nil {
		f.byKey = map[dedupKey]storage.DedupEntry{}
	}
	f.byKey[id.key] = id.found
	f.order = append(f.order, id)
}

// prune drops what is committed and old, or too much, at most so many, and returns how
// many those were.
func (f *freshIDs) prune(now int64, committed uint64, most int) int {
	n := 0
	for n < min(len(f.order), most) {
		o := &f.order[n]
		if o.batch > committed || o.found.At > now-freshAge && len(f.order)-n <= freshMax {
			break
		}
		if f.byKey[o.key] == o.found {
			delete(f.byKey, o.key)
		}
		f.dropped = max(f.dropped, o.batch)
		n++
	}
	clear(f.order[:n])
	f.order = f.order[n:]
	if len(f.order) == 0 {
		f.order = nil
	}
	return n
}

// duplicate returns the message that an id stands for, if it was enqueued within
// the queue's window. ErrWouldBlock says that the store has to be asked once more.
func (c *core) duplicate(q *queue, req *Enqueue) (id ID, ok bool, err error) {
	window := int64(q.set.DedupWindowMs) * int64(time.Millisecond) //nolint:gosec // bounded when it is set
	if window == 0 {
		return ID{}, false, fmt.Errorf("%w: %q has no DEDUPWINDOW, set one with FILA.QUEUE ALTER", ErrInvalid, q.name)
	}
	if found, ok := c.dedup.fresh.byKey[dedupKey{q.no, req.dedup}]; ok {
		return found.ID, found.At+window > c.now, nil
	}
	l := &req.known
	if !l.done || l.seen < c.dedup.fresh.dropped {
		return ID{}, false, ErrWouldBlock
	}
	if l.err != nil {
		return ID{}, false, fmt.Errorf("look DEDUP up: %w", l.err)
	}
	if l.queue != q.no || l.found.At == 0 { // the queue, as it is now, had no such id then
		return ID{}, false, nil
	}
	return l.found.ID, l.found.At+window > c.now, nil
}

// PreflightEnqueue waits for what Enqueue has to know: exact counts where the queue
// is limited, and what the store says of an id if that was asked too long ago.
func (tx *Tx) PreflightEnqueue(req *Enqueue) error {
	q := tx.core.queues.byName[req.Queue]
	if q == nil {
		return nil // which Enqueue will say
	}
	if req.dedup != "" {
		if _, _, err := tx.core.duplicate(q, req); err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			tx.repeatLookup(q, req)
			return err
		}
	}
	if q.limited() {
		return tx.AwaitCounts()
	}
	return nil
}

// repeatLookup has the task wait for a look-up that sees everything until now.
func (tx *Tx) repeatLookup(q *queue, req *Enqueue) {
	c := tx.core
	c.out.jobs = append(c.out.jobs, &dedupLook{task: tx.task, req: req, queue: q.no, gens: q.dedup.generations(), batch: c.out.batchNo})
	tx.park(nil, 0, false)
}

// dedupLook is a look-up beside the loop.
type dedupLook struct {
	task  *Task
	req   *Enqueue
	queue uint32
	gens  []int64
	batch uint64 // the store holds it when the look-up begins

	result dedupView
}

func (l *dedupLook) do(store Store) {
	l.result = lookUp(store, l.queue, l.gens, l.req.dedup, l.batch)
}

// Apply lets the enqueue go on.
func (l *dedupLook) Apply(tx *Tx) error {
	if l.task.wait != nil && !l.task.Done() {
		l.req.known = l.result
		tx.core.run(l.task)
	}
	return nil
}

// recordDedupID keeps the id of a message that was enqueued in this turn.
func (c *core) recordDedupID(q *queue, id string, m ID) {
	found := storage.DedupEntry{ID: m, At: c.now}
	c.out.batch.Put(storage.Dedup, storage.AppendDedupKey(nil, q.no, c.generation(q), id), found.Append(nil))
	c.dedup.fresh.add(freshID{key: dedupKey{q.no, id}, batch: c.out.batchNo, found: found})
}

// generation returns the generation that ids are added to now.
func (c *core) generation(q *queue) int64 {
	gens := q.dedup.generations()
	if n := len(gens); n > 0 && c.now < gens[n-1]+q.generationLength() {
		return gens[n-1]
	}
	began := c.now
	if n := len(gens); n > 0 {
		began = max(began, gens[n-1]+1) // a clock that was set back
	}
	c.setGenerations(q, append(slices.Clip(gens), began))
	return began
}

// generationLength is how long ids are added to one generation.
func (q *queue) generationLength() int64 {
	return max(int64(q.set.DedupWindowMs)*int64(time.Millisecond), generationMin) //nolint:gosec // bounded when it is set
}

// setGenerations replaces the list and the timer that drops the oldest.
func (c *core) setGenerations(q *queue, gens []int64) {
	d := q.dedup
	if d == nil {
		if len(gens) == 0 {
			return
		}
		d = &dedup{queue: q, no: q.no, timer: -1}
		q.dedup = d
		d.gens.Store(&gens)
		c.out.snapshot = c.out.snapshot.withDedup(q.name, d)
	}
	d.gens.Store(&gens)
	if d.timer >= 0 {
		c.dedup.ends.remove(d)
	}
	if len(gens) == 0 {
		return
	}
	// The newest id of the oldest generation was added before the next began.
	last := gens[0] + q.generationLength()
	if len(gens) > 1 {
		last = gens[1]
	}
	d.dropAt = last + q.generationLength()
	c.dedup.ends.push(d)
}

// dedupIDs is the deduplication ids of the last moments, and the queues that have any.
type dedupIDs struct {
	fresh freshIDs
	ends  timers[*dedup] // queues by when they can forget ids

	unchecked
}

func (d *dedupIDs) reset() { *d = dedupIDs{} }

func (d *dedupIDs) next(*core) int64 {
	if q, ok := d.ends.next(); ok {
		return q.dropAt
	}
	return never
}

// expire drops the generations that no window reaches any more.
func (d *dedupIDs) expire(c *core) {
	c.spend(d.fresh.prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	for c.atLeast(1); c.room(); {
		q, ok := d.ends.next()
		if !ok || q.dropAt > c.now {
			return
		}
		c.spend(1)
		gens := q.generations()
		prefix := storage.AppendDedupPrefix(nil, q.no, gens[0])
		c.out.batch.DeleteRange(storage.Dedup, prefix, storage.After(prefix))
		c.setGenerations(q.queue, gens[1:])
	}
}

// recoverDedup finds the generations by skipping from one to the next.
func (c *core) recoverDedup() error {
	c.dedup.fresh = freshIDs{dropped: c.out.batchNo} // what was looked up before may not be all there is
	it := c.store.Scan(storage.Dedup, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; {
		no, gen, _, err := storage.ParseDedupKey(it.Key())
		if err != nil {
			return err
		}
		if q := c.queues.byNumber[no]; q != nil {
			c.setGenerations(q, append(q.dedup.generations(), gen))
		}
		next := storage.After(storage.AppendDedupPrefix(nil, no, gen))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return it.Err()
}

// forgetDedup forgets the ids of a queue whose records go with its number. A look-up
// under the old number says nothing about the new one.
func (c *core) forgetDedup(q *queue) {
	d := q.dedup
	if d == nil {
		return
	}
	if d.timer >= 0 {
		c.dedup.ends.remove(d)
	}
	q.dedup = nil
	c.out.snapshot = c.out.snapshot.withoutDedup(q.name)
}

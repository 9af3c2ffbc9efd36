package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/zeebo/blake3"

	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Deduplication. An enqueue may name an id; a second enqueue with the same id within the
// queue's deduplication window stores nothing and returns the id of the first message.
//
// The ids are on disk only, however many there are. A request is checked in three steps:
//
//  1. Prepare looks the id up in the store, on the goroutine of the connection, and notes
//     the newest batch that this look-up has certainly seen.
//  2. Enqueue consults dedupIDs.fresh, the ids of recent batches, which the look-up may have
//     missed.
//  3. If it has already dropped a batch newer than the look-up, the answer is
//     unknown: the look-up is repeated as an off-loop job, and the task waits.
//
// Ids are grouped by generation, see generations.

// DedupContent as an id stands for the content of the message: a hash of queue, fairness
// key, headers and payload as the producer gave them.
const DedupContent = "*"

// The two kinds of ids. The first byte of a stored id separates them, so that no name
// equals a hash. The values are part of the format.
const (
	dedupNamed   = 0
	dedupContent = 1
)

// dedupID returns the id under which the store keeps a request's Dedup; "" if it has none.
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
	part := func(b []byte) { // with its length, so that "ab","c" differs from "a","bc"
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

// dedupView is the result of a look-up and the state of the store that it has seen.
type dedupView struct {
	queue uint32             // the queue's number at the time; a purge changes it
	seen  uint64             // all batches up to this one were in the store
	found storage.DedupEntry // zero: not found
	err   error
	done  bool
}

// lookUp searches the generations of a queue for an id, the newest first. It is safe on any
// goroutine.
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

// prepareDedup looks up the unique id and the deduplication id of a request. seen is the number
// of the last durable batch, read before the snapshot was taken.
func prepareDedup(req *Enqueue, store Store, s *Snapshot, seen uint64) {
	if req.Unique != "" {
		req.owner = lookUpOwner(store, s, req.Queue, req.Unique, seen)
	}
	if req.dedup == "" {
		return
	}
	if d, ok := s.dedup.get(req.Queue); ok {
		req.known = new(lookUp(store, d.no, d.list(), req.dedup, seen))
	} else {
		req.known = &dedupView{seen: seen, done: true} // the queue had no ids
	}
}

type dedupKey struct {
	queue uint32
	id    string
}

// duplicate returns the message that was enqueued with the request's id, if that was within
// the queue's window. ErrWouldBlock means that the look-up has to be repeated; ErrInvalid
// that the queue has no deduplication window.
func (c *core) duplicate(q *queue, req *Enqueue) (id ID, ok bool, err error) {
	window := int64(q.set.Values.Duration(queueset.DedupWindow))
	if window == 0 {
		return ID{}, false, fmt.Errorf("%w: %q has no DEDUPWINDOW, set one with FILA.QUEUE ALTER", ErrInvalid, q.name)
	}
	if found, ok := c.dedup.fresh.Get(dedupKey{q.no, req.dedup}); ok {
		return found.ID, found.At+window > c.now, nil
	}
	l := req.known
	if l == nil || !l.done || l.seen < c.dedup.fresh.Dropped {
		return ID{}, false, ErrWouldBlock
	}
	if l.err != nil {
		return ID{}, false, fmt.Errorf("look DEDUP up: %w", l.err)
	}
	if l.queue != q.no || l.found.At == 0 { // not found, or of a queue that was purged or deleted since
		return ID{}, false, nil
	}
	return l.found.ID, l.found.At+window > c.now, nil
}

// earlier returns the message that answers a request in place of a new one: the owner of its
// unique id, or else the message that was enqueued with its deduplication id. The zero ID:
// there is none. Errors are those of owner and duplicate.
func (c *core) earlier(q *queue, req *Enqueue) (ID, error) {
	if req.Unique != "" {
		if id, err := c.owner(q, req.Unique, req.owner); err != nil || id != (ID{}) {
			return id, err
		}
	}
	if req.dedup != "" {
		if id, known, err := c.duplicate(q, req); err != nil || known {
			return id, err
		}
	}
	return ID{}, nil
}

// PreflightEnqueue waits for what Enqueue needs in a transaction: exact counts where the
// queue is limited, and current look-ups of the unique id and the deduplication id. Errors of
// the request are left to Enqueue.
func (tx *Tx) PreflightEnqueue(req *Enqueue) error {
	q := tx.core.queues.byName[req.Queue]
	if q == nil {
		return nil // Enqueue reports the error
	}
	if _, err := tx.core.earlier(q, req); err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
		return tx.repeatLookup(q, req)
	}
	if q.limited() {
		return tx.AwaitCounts()
	}
	return nil
}

// repeatLookup parks the task for a look-up that sees all batches up to the open one, and
// returns ErrWouldBlock.
func (tx *Tx) repeatLookup(q *queue, req *Enqueue) error {
	c := tx.core
	c.out.jobs = append(c.out.jobs, c.newLook(tx.task, q, req))
	return tx.await()
}

// dedupLook is the off-loop job of repeated look-ups, those of one request.
type dedupLook struct {
	task  *Task
	req   *Enqueue
	queue uint32
	gens  []int64
	batch uint64 // committed when the look-up begins

	known, owner *dedupView // nil: the request has no such id
}

func (c *core) newLook(t *Task, q *queue, req *Enqueue) *dedupLook {
	return &dedupLook{task: t, req: req, queue: q.no, gens: q.dedup.list(), batch: c.out.batchNo}
}

func (l *dedupLook) do(store Store) {
	if l.req.dedup != "" {
		l.known = new(lookUp(store, l.queue, l.gens, l.req.dedup, l.batch))
	}
	if l.req.Unique != "" {
		l.owner = new(lookUp(store, l.queue, uniqueGenerations(), l.req.Unique, l.batch))
	}
}

// answer gives the results to the request.
func (l *dedupLook) answer() { l.req.known, l.req.owner = l.known, l.owner }

// Apply resumes the task with the result.
func (l *dedupLook) Apply(tx *Tx) error {
	if l.task.wait != nil { // else it was concluded meanwhile, and the request is the client's
		l.answer()
		l.task.resume(tx.core)
	}
	return nil
}

// recordDedupID stores the id of a message that is enqueued in this turn, in the same batch
// as the message.
func (c *core) recordDedupID(q *queue, id string, m ID) {
	found := storage.DedupEntry{ID: m, At: c.now}
	c.out.batch.Put(storage.Dedup, storage.AppendDedupKey(nil, q.no, c.generation(q, storage.Dedup), id), found.Append(nil))
	c.dedup.fresh.Add(dedupKey{q.no, id}, found, c.out.batchNo, c.now)
}

// dedupIDs is the component of deduplication and of unique ids: the ids of recent batches.
type dedupIDs struct {
	fresh recent.Table[dedupKey, storage.DedupEntry]
	taken recent.Table[dedupKey, uniqueOwner] // unique ids, taken or freed

	untimed
	unchecked
}

func (d *dedupIDs) reset() { *d = dedupIDs{} }

// expire prunes recent ids, within the budget. No turn is due for that alone.
func (d *dedupIDs) expire(c *core) {
	c.spend(d.fresh.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	c.spend(d.taken.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
}

// generationMin is the shortest time for which a generation takes records. It bounds the number
// of range deletions for very short periods.
const generationMin = int64(time.Second)

// generations is those of a queue in one family. Deduplication ids and results of a queue are
// kept for a period that is a setting of the queue. They are grouped by generation, so that they
// can be forgotten without reading them:
//
//	newest ──as old as the period──▶ older ──no period reaches it──▶ dropped
//
// The newest generation takes new records. Once it is as old as the period, the next record
// begins another one, so a period covers one or two generations. A generation is dropped by one
// range deletion when the period of its last record is over.
//
// The loop changes began by replacing the list; connections read it concurrently.
type generations struct {
	queue  *queue
	no     uint32
	family storage.Family
	began  atomic.Pointer[[]int64] // when each began, Unix nanoseconds, oldest first

	dropAt int64 // when no period reaches the oldest generation
	timer  int
}

func (g *generations) Before(o *generations) bool { return g.dropAt < o.dropAt }
func (g *generations) Index() *int                { return &g.timer }

// list returns the current list, which must not be changed. nil is a queue without records.
func (g *generations) list() []int64 {
	if g == nil {
		return nil
	}
	return *g.began.Load()
}

// generationsOf returns where a queue has its generations in a family, and the setting that is
// their period.
func (q *queue) generationsOf(f storage.Family) (**generations, queueset.Setting) {
	if f == storage.Results {
		return &q.results, queueset.ResultTTL
	}
	return &q.dedup, queueset.DedupWindow
}

// generation returns the generation that takes new records, and begins one if the newest is as
// old as the period.
func (c *core) generation(q *queue, f storage.Family) int64 {
	slot, period := q.generationsOf(f)
	gens := (*slot).list()
	if n := len(gens); n > 0 && c.now < gens[n-1]+q.generationLength(period) {
		return gens[n-1]
	}
	began := max(c.now, storage.UniqueGeneration+1)
	if n := len(gens); n > 0 {
		began = max(began, gens[n-1]+1) // generations are distinct even if the clock was set back
	}
	c.setGenerations(q, f, append(slices.Clip(gens), began))
	return began
}

// generationLength returns for how long a generation takes records, in nanoseconds.
func (q *queue) generationLength(period queueset.Setting) int64 {
	return max(int64(q.set.Values.Duration(period)), generationMin)
}

// setGenerations replaces the generations of a queue and sets the timer that drops the oldest.
// The snapshot learns of the queue with its first deduplication id or unique id.
func (c *core) setGenerations(q *queue, f storage.Family, gens []int64) {
	slot, period := q.generationsOf(f)
	g := *slot
	if g == nil {
		if len(gens) == 0 {
			return
		}
		g = c.newGenerations(q, f)
	}
	g.began.Store(&gens)
	if g.timer >= 0 {
		c.ended.ends.Remove(g)
	}
	if len(gens) == 0 {
		return
	}
	// The last record of the oldest generation was added before the next generation began.
	last := gens[0] + q.generationLength(period)
	if len(gens) > 1 {
		last = gens[1]
	}
	g.dropAt = last + q.generationLength(period)
	c.ended.ends.Push(g)
}

// newGenerations gives a queue an empty list of generations in a family.
func (c *core) newGenerations(q *queue, f storage.Family) *generations {
	g := &generations{queue: q, no: q.no, family: f, timer: -1}
	g.began.Store(new([]int64))
	slot, _ := q.generationsOf(f)
	*slot = g
	if f == storage.Dedup {
		c.out.snapshot = c.out.snapshot.withDedup(q.name, g)
	}
	return g
}

// renewGenerations sets the timers anew after a change of the queue's settings: a longer period
// needs its records longer.
func (c *core) renewGenerations(q *queue) {
	c.setGenerations(q, storage.Dedup, q.dedup.list())
	c.setGenerations(q, storage.Results, q.results.list())
}

// endedGenerations is the component that drops generations which no period reaches.
type endedGenerations struct {
	ends intrusive.Heap[*generations] // by the time of the next drop

	unchecked
}

func (e *endedGenerations) reset() { *e = endedGenerations{} }

func (e *endedGenerations) next(*core) int64 {
	if g, ok := e.ends.First(); ok {
		return g.dropAt
	}
	return never
}

// expire drops the generations that no period reaches, within the budget.
func (e *endedGenerations) expire(c *core) {
	for c.room() {
		g, ok := e.ends.First()
		if !ok || g.dropAt > c.now {
			return
		}
		c.spend(1)
		gens := g.list()
		prefix := storage.AppendDedupPrefix(nil, g.no, gens[0])
		c.out.batch.DeleteRange(g.family, prefix, storage.After(prefix))
		c.setGenerations(g.queue, g.family, gens[1:])
	}
}

// recoverGenerations finds the generations of all queues. It seeks from one generation to the
// next and reads no other records.
func (c *core) recoverGenerations() error {
	c.dedup.fresh.Dropped, c.dedup.taken.Dropped = c.out.batchNo, c.out.batchNo // look-ups from before the recovery are invalid
	for _, f := range []storage.Family{storage.Dedup, storage.Results} {
		if err := c.recoverFamily(f); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// recoverFamily finds the generations of one family.
func (c *core) recoverFamily(f storage.Family) error {
	it := c.store.Scan(f, nil, nil)
	defer it.Close()
	for ok := it.Seek(nil); ok; {
		no, gen, _, err := storage.ParseDedupKey(it.Key())
		if err != nil {
			return err
		}
		switch q := c.queues.byNumber[no]; {
		case q == nil:
		case f == storage.Dedup && gen == storage.UniqueGeneration:
			c.knowIDs(q)
		default:
			slot, _ := q.generationsOf(f)
			c.setGenerations(q, f, append((*slot).list(), gen))
		}
		next := storage.After(storage.AppendDedupPrefix(nil, no, gen))
		if next == nil {
			break
		}
		ok = it.Seek(next)
	}
	return it.Err()
}

// forgetGenerations drops the generations of a queue from memory; their records go by range with
// the queue's number. Look-ups under the old number are invalid, see duplicate.
func (c *core) forgetGenerations(q *queue) {
	for _, g := range []*generations{q.dedup, q.results} {
		if g != nil && g.timer >= 0 {
			c.ended.ends.Remove(g)
		}
	}
	q.results = nil
	if q.dedup != nil {
		q.dedup = nil
		c.out.snapshot = c.out.snapshot.withoutDedup(q.name)
	}
}

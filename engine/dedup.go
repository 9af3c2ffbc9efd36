package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/recent"
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
// Ids are grouped by generation, see generations.go.

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

// prepareDedup looks up the deduplication id of a request. seen is the number of the last
// durable batch, read before the snapshot was taken.
func prepareDedup(req *Enqueue, store Store, s *Snapshot, seen uint64) {
	if req.dedup == "" {
		return
	}
	if d, ok := s.dedup.get(req.Queue); ok {
		req.known = lookUp(store, d.no, d.list(), req.dedup, seen)
	} else {
		req.known = dedupView{seen: seen, done: true} // the queue had no ids
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
	l := &req.known
	if !l.done || l.seen < c.dedup.fresh.Dropped {
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

// PreflightEnqueue waits for what Enqueue needs in a transaction: exact counts where the
// queue is limited, and a current look-up of the deduplication id. Errors of the request
// are left to Enqueue.
func (tx *Tx) PreflightEnqueue(req *Enqueue) error {
	q := tx.core.queues.byName[req.Queue]
	if q == nil {
		return nil // Enqueue reports the error
	}
	if req.dedup != "" {
		if _, _, err := tx.core.duplicate(q, req); err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			return tx.repeatLookup(q, req)
		}
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
	c.out.jobs = append(c.out.jobs, &dedupLook{task: tx.task, req: req, queue: q.no, gens: q.dedup.list(), batch: c.out.batchNo})
	return tx.await()
}

// dedupLook is the off-loop job of a repeated look-up.
type dedupLook struct {
	task  *Task
	req   *Enqueue
	queue uint32
	gens  []int64
	batch uint64 // committed when the look-up begins

	result dedupView
}

func (l *dedupLook) do(store Store) {
	l.result = lookUp(store, l.queue, l.gens, l.req.dedup, l.batch)
}

// Apply resumes the task with the result.
func (l *dedupLook) Apply(tx *Tx) error {
	if l.task.wait != nil { // else it was concluded meanwhile, and the request is the client's
		l.req.known = l.result
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

// dedupIDs is the component of deduplication: the ids of recent batches.
type dedupIDs struct {
	fresh recent.Table[dedupKey, storage.DedupEntry]

	untimed
	unchecked
}

func (d *dedupIDs) reset() { *d = dedupIDs{} }

// expire prunes recent ids, within the budget. No turn is due for that alone.
func (d *dedupIDs) expire(c *core) {
	c.spend(d.fresh.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
}

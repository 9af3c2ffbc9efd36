package engine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/engine/search"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Deduplication. An enqueue may name an id; a second enqueue with the same id within the
// queue's deduplication window stores nothing and returns the id of the first message.
//
// The ids are on disk only, however many there are. Prepare looks the id up on the goroutine of the
// connection. Enqueue asks Table.Find of package recent, which has the ids of recent batches, and
// has the look-up repeated as an off-loop job if it is stale; the task waits. Unique ids
// (unique.go) and the ids of movements (accounts.go) are looked up in the same way.
//
// Ids are grouped by generation, see package generation.

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

type dedupKey struct {
	queue uint32 // its number; a purge changes it
	id    string
}

// idLook is the look-up of a deduplication id or a unique id.
type idLook = recent.Look[dedupKey, storage.DedupEntry]

// idLooks are those of a request; nil: it has no such id.
type idLooks struct{ dedup, unique *idLook }

// look looks the ids of a request up. seen is the number of the last durable batch, read before the
// snapshot was taken. It is safe on any goroutine.
func (req *Enqueue) look(store Store, s *Snapshot, seen uint64) (l idLooks) {
	if req.Unique != "" {
		l.unique = lookUpUnique(store, s, req.Queue, req.Unique, seen)
	}
	if req.dedup != "" {
		g, _ := s.dedup.Get(req.Queue)
		l.dedup = lookUp(store, g, g.List(), req.dedup, seen)
	}
	return l
}

// lookUp searches generations of a queue for an id; a nil group is a queue without ids.
func lookUp(store Store, g *generation.Group, list []int64, id string, seen uint64) *idLook {
	if g == nil {
		return new(recent.Begin[dedupKey, storage.DedupEntry](dedupKey{}, seen))
	}
	l := new(recent.Begin[dedupKey, storage.DedupEntry](dedupKey{g.Queue(), id}, seen))
	b, _, err := generation.Find(store, storage.Dedup, g.Queue(), list, id)
	if l.Err = err; b != nil && err == nil {
		l.Err = l.Found.Decode(b)
	}
	return l
}

// lookError is an error of Table.Find: ErrWouldBlock says that the look-up has to be repeated.
func lookError(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, recent.ErrStale):
		return ErrWouldBlock
	default:
		return fmt.Errorf("look %s up: %w", what, err)
	}
}

// prior is what a queue has of the ids of a request.
type prior struct {
	known ID                 // the message that answers the request in place of a new one; zero: none
	owner storage.DedupEntry // of the message whose place or id the request may take; its ID is zero: none
	lent  *message           // that has lent the unique id, see owner
}

// earlier returns what a queue has of the ids of a request. The owner of its unique id answers it, or
// else the message that was enqueued with its deduplication id within the queue's window. With REPLACE
// the deduplication id is asked first, so that a request which is sent again replaces nothing newer. While the queue
// perhaps has members of cancelled groups, the owner has to be looked at without REPLACE, too (findOwner).
// ErrWouldBlock means that the look-ups have to be repeated; ErrInvalid that the queue has no
// deduplication window.
func (c *core) earlier(q *queue, req *Enqueue) (p prior, err error) {
	if p.owner, p.lent, err = c.owner(q, req.Unique, req.looks.unique); err != nil {
		return prior{}, err
	}
	if !req.Replace && !c.groups.Sweeping(q.no) {
		p.known, p.owner = p.owner.ID, storage.DedupEntry{}
	}
	if p.known == (ID{}) && (req.Replace || p.owner.ID == (ID{})) {
		p.known, err = c.repeated(q, req)
	}
	return p, err
}

// repeated returns the message that was enqueued with the deduplication id of a request; the zero ID:
// none was, or the request has no such id. Errors are those of earlier.
func (c *core) repeated(q *queue, req *Enqueue) (ID, error) {
	if req.dedup == "" {
		return ID{}, nil
	}
	window := int64(q.set.Values.Duration(queueset.DedupWindow))
	if window == 0 {
		return ID{}, fmt.Errorf("%w: %q has no DEDUPWINDOW, set one with FILA.QUEUE ALTER", ErrInvalid, q.name)
	}
	first, err := c.dedup.fresh.Find(dedupKey{q.no, req.dedup}, req.looks.dedup)
	if err != nil || first.At+window <= c.now {
		return ID{}, lookError(err, "DEDUP")
	}
	return first.ID, nil
}

// PreflightEnqueue waits for what Enqueue needs in a transaction: exact counts where the
// queue is limited, current look-ups of the unique id and the deduplication id, and of the message that
// it may replace. Errors of
// the request are left to Enqueue.
func (tx *Tx) PreflightEnqueue(req *Enqueue) error {
	q := tx.core.queues.byName[req.Queue]
	if q == nil {
		return nil // Enqueue reports the error
	}
	switch p, err := tx.core.earlier(q, req); {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return tx.awaitRead(req.lookAgain(&tx.core.out))
	case err == nil && p.known == (ID{}) && p.owner.ID != (ID{}):
		if err := tx.readOwner(req, p.owner.ID); err != nil {
			return err
		}
	}
	if req.Group != "" {
		if err := tx.core.groups.preflight(tx, req.Group, &req.groupLook); err != nil {
			return err
		}
	}
	if q.limited() {
		return tx.AwaitCounts()
	}
	return nil
}

// lookAgain returns the read that repeats the look-ups of a request, for awaitRead.
func (req *Enqueue) lookAgain(o *outbox) func(store Store) (give func()) {
	s, batch := o.snapshot, o.batchNo
	return func(store Store) func() {
		l := req.look(store, s, batch)
		return func() { req.looks = l }
	}
}

// recordDedupID stores the id of a message that is enqueued in this turn, in the same batch
// as the message.
func (c *core) recordDedupID(q *queue, id string, m ID) {
	found := storage.DedupEntry{ID: m, At: c.now}
	c.out.batch.Put(storage.Dedup, storage.AppendDedupKey(nil, q.no, c.ended.Current(c.groupOf(q, storage.Dedup), c.now), id), found.Append(nil))
	c.dedup.fresh.Add(dedupKey{q.no, id}, found, c.out.batchNo, c.now)
}

// dedupIDs is the component of deduplication and of unique ids: the ids of recent batches.
type dedupIDs struct {
	fresh recent.Table[dedupKey, storage.DedupEntry]
	taken recent.Table[dedupKey, storage.DedupEntry] // unique ids, taken or freed

	untimed
	unchecked
}

func (d *dedupIDs) reset() { *d = dedupIDs{} }

// expire prunes recent ids, within the budget. No turn is due for that alone.
func (d *dedupIDs) expire(c *core) {
	c.spend(d.fresh.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
	c.spend(d.taken.Prune(c.now, c.out.committed, max(c.tasks.budget.left, 0)))
}

// groupOf returns the generations of a queue in a family, those of deduplication ids or of results,
// which are kept for a period that is a setting of the queue. The snapshot learns of the queue with
// its first deduplication id or unique id.
func (c *core) groupOf(q *queue, f storage.Family) *generation.Group {
	group, period := &q.dedup, q.set.Values.Duration(queueset.DedupWindow)
	if f == storage.Results {
		group, period = &q.results, search.KnownFor(&q.set.Values, true)
	}
	if *group == nil {
		*group = generation.New(q.no, f, period)
		if f == storage.Dedup {
			c.out.snapshot = c.out.snapshot.withDedup(q.name, *group)
		}
	}
	return *group
}

// endedGenerations is the component that drops generations which no period reaches.
type endedGenerations struct {
	generation.Table

	unchecked
}

func (e *endedGenerations) reset() { *e = endedGenerations{} }

func (e *endedGenerations) next(*core) int64 {
	if at, ok := e.DropAt(); ok {
		return at
	}
	return never
}

// expire drops the generations that no period reaches, within the budget.
func (e *endedGenerations) expire(c *core) {
	for c.room() && e.next(c) <= c.now {
		c.spend(1)
		c.out.batch.DeleteRange(e.Drop())
	}
}

// recoverGenerations finds the generations of all queues.
func (c *core) recoverGenerations() error {
	c.dedup.fresh.Dropped, c.dedup.taken.Dropped = c.out.batchNo, c.out.batchNo // look-ups from before the recovery are stale
	for _, f := range []storage.Family{storage.Dedup, storage.Results} {
		err := generation.Walk(c.store, f, func(no uint32, began int64) {
			q := c.queues.byNumber[no]
			if q == nil {
				return
			}
			if g := c.groupOf(q, f); f != storage.Dedup || began != storage.UniqueGeneration {
				c.ended.Add(g, began)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// forgetGenerations drops the generations of a queue from memory; their records go by range with
// the queue's number. Look-ups under the old number find nothing.
func (c *core) forgetGenerations(q *queue) {
	c.ended.Forget(q.dedup)
	c.ended.Forget(q.results)
	if q.dedup != nil {
		c.out.snapshot = c.out.snapshot.withDedup(q.name, nil)
	}
	q.dedup, q.results = nil, nil
}

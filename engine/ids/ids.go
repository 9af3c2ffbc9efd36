// Package ids knows for which ids a queue has a message: deduplication ids, which name the first message that was enqueued
// with them within a period, and unique ids, which name the message of the queue that has them. It stores the records of
// the ends of messages as well, which are found by the id of the message. It knows no messages, tasks or clients.
//
// # Records
//
// The ids are on disk only, however many there are, in generations that end with a period (package generation). Unique ids
// are in one of their own, which no period ends. What the Table has in memory is the ids of recent batches, and which
// generations each queue has.
//
// # Look-ups
//
// An id is looked up in a [View], on any goroutine, and Repeated and Owner decide by that and by the recent batches (package
// recent). ErrStale says that the look-up has to be repeated.
package ids

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/zeebo/blake3"

	"github.com/faisca/fila/engine/internal/generation"
	"github.com/faisca/fila/engine/internal/ordered"
	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/storage"
)

// ErrStale says that an id has to be looked up, again.
var ErrStale = recent.ErrStale

// The two kinds of deduplication ids. The first byte of a stored id separates them, so that no name equals a hash. The
// values are part of the format.
const (
	named   = 0
	content = 1
)

// Named returns the id that the store has for one that a producer has chosen.
func Named(id string) string { return string([]byte{named}) + id }

// OfContent returns the id of a message by its content: a hash of queue, fairness key, headers and payload as the producer
// gave them.
func OfContent(queue, key string, headers []storage.Header, payload []byte) string {
	h := blake3.New()
	var size [8]byte
	part := func(b []byte) { // with its length, so that "ab","c" differs from "a","bc"
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		_, _ = h.Write(size[:]) // a hash does not fail
		_, _ = h.Write(b)
	}
	part([]byte(queue))
	part([]byte(key))
	for _, header := range headers {
		part(header.Name)
		part(header.Value)
	}
	part(payload)
	return string(h.Sum([]byte{content}))
}

// Queue is what memory has of the records of a queue: their generations. The zero value is a queue without records.
type Queue struct{ ids, ends *generation.Group }

// Ends returns when the generations of the records of ends began, which must not be changed.
func (q *Queue) Ends() []int64 { return q.ends.List() }

// Scope is a queue, in which an id names one message, with what the Table needs to write its records.
type Scope struct {
	*Queue
	Number uint32 // a purge changes it
	Name   string
	Window time.Duration // for which a deduplication id is kept
	Keep   time.Duration // for which the record of an end is kept, at most
}

type key struct {
	queue uint32
	id    string
}

// Lookup is the look-up of an id.
type Lookup = recent.Lookup[key, storage.DedupEntry]

// Table is the ids of all queues. The zero value has none.
type Table struct {
	recent recent.Table[key, storage.DedupEntry] // deduplication ids
	taken  recent.Table[key, storage.DedupEntry] // unique ids, taken or freed
	ends   generation.Table
	view   View
}

// Reset forgets all ids. Recover follows.
func (t *Table) Reset() { *t = Table{} }

// Repeated returns the message that was enqueued with a deduplication id within a window; the zero ID: none was. l is the
// look-up of the id. Errors: ErrStale, that of the look-up.
func (t *Table) Repeated(queue uint32, id string, l *Lookup, window time.Duration, now int64) (storage.ID, error) {
	first, err := t.recent.Find(key{queue, id}, l)
	if err != nil || first.At+int64(window) <= now {
		return storage.ID{}, err
	}
	return first.ID, nil
}

// Owner returns the entry of a unique id in a queue, the zero value if it is free. l is the look-up of the id. Errors:
// ErrStale, that of the look-up.
func (t *Table) Owner(queue uint32, id string, l *Lookup) (storage.DedupEntry, error) {
	return t.taken.Find(key{queue, id}, l)
}

// Add writes the deduplication id of a message.
func (t *Table) Add(q Scope, id string, m storage.ID, w writes.Batch) {
	found := storage.DedupEntry{ID: m, At: w.Now}
	w.Put(storage.Dedup, storage.AppendDedupKey(nil, q.Number, t.ends.Current(t.ids(q), w.Now), id), found.Append(nil))
	t.recent.Add(key{q.Number, id}, found, w.Number, w.Now)
}

// Take makes a message the owner of a unique id.
func (t *Table) Take(q Scope, id string, m storage.ID, fairnessKey string, w writes.Batch) {
	t.ids(q) // connections look its ids up from now on
	e := storage.DedupEntry{ID: m, At: w.Now, Key: fairnessKey}
	w.Put(storage.Dedup, storage.AppendDedupKey(nil, q.Number, storage.UniqueGeneration, id), e.Append(nil))
	t.taken.Add(key{q.Number, id}, e, w.Number, w.Now)
}

// Free frees a unique id.
func (t *Table) Free(queue uint32, id string, w writes.Batch) {
	w.Delete(storage.Dedup, storage.AppendDedupKey(nil, queue, storage.UniqueGeneration, id))
	t.taken.Add(key{queue, id}, storage.DedupEntry{}, w.Number, w.Now)
}

// PutEnd writes the record of the end of a message, and returns its key.
func (t *Table) PutEnd(q Scope, m storage.ID, rec *storage.Result, w writes.Batch) []byte {
	if q.ends == nil {
		q.ends = generation.New(q.Number, storage.Results, q.Keep)
	}
	k := storage.AppendResultKey(make([]byte, 0, storage.ResultKeySize), q.Number, t.ends.Current(q.ends, w.Now), m)
	w.Put(storage.Results, k, rec.Append(make([]byte, 0, rec.SizeMax())))
	return k
}

// ids returns the generations of deduplication ids of a queue. The View has the queue with its first id.
func (t *Table) ids(q Scope) *generation.Group {
	if q.Queue.ids == nil {
		q.Queue.ids = generation.New(q.Number, storage.Dedup, q.Window)
		t.view.byName = t.view.byName.With(q.Name, q.Queue.ids)
	}
	return q.Queue.ids
}

// Renew says that a queue keeps its records for other periods.
func (t *Table) Renew(q Scope) {
	t.ends.Renew(q.Queue.ids, q.Window)
	t.ends.Renew(q.Queue.ends, q.Keep)
}

// Forget forgets the records of a queue, which go by range with its number. Look-ups under the old number find nothing.
func (t *Table) Forget(q Scope) {
	t.ends.Forget(q.Queue.ids)
	t.ends.Forget(q.Queue.ends)
	if q.Queue.ids != nil {
		t.view.byName = t.view.byName.Without(q.Name)
	}
	*q.Queue = Queue{}
}

// NextAt returns when the next generation ends; the end of time: none does.
func (t *Table) NextAt() int64 {
	if at, ok := t.ends.DropAt(); ok {
		return at
	}
	return math.MaxInt64
}

// Expire drops the ids of recent batches that need not be known any more, and the generations that have ended, with at
// most as many units of work. It returns how many it took. committed is the newest batch that the store has.
func (t *Table) Expire(w writes.Batch, committed uint64, most int) (work int) {
	work = t.recent.Prune(w.Now, committed, most)
	work += t.taken.Prune(w.Now, committed, most-work)
	for ; work < most && t.NextAt() <= w.Now; work++ {
		w.DeleteRange(t.ends.Drop())
	}
	return work
}

// Recover finds the generations of all queues. batch is the newest one: look-ups from before are stale. find returns the
// queue of a number; ok is false if there is none.
func (t *Table) Recover(store generation.Store, batch uint64, find func(queue uint32) (q Scope, ok bool)) error {
	t.recent.Dropped, t.taken.Dropped = batch, batch
	for _, f := range []storage.Family{storage.Dedup, storage.Results} {
		err := generation.Walk(store, f, func(no uint32, began int64) {
			q, ok := find(no)
			switch {
			case !ok:
			case f == storage.Results:
				if q.ends == nil {
					q.ends = generation.New(no, f, q.Keep)
				}
				t.ends.Add(q.ends, began)
			default:
				if g := t.ids(q); began != storage.UniqueGeneration {
					t.ends.Add(g, began)
				}
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}

// View returns what other goroutines look ids up in.
func (t *Table) View() View { return t.view }

// View is the queues that have ids at one moment. The zero View has none.
type View struct {
	byName ordered.Map[*generation.Group]
}

// Repeated looks a deduplication id up in a queue, in a store that has all batches up to seen.
func (v View) Repeated(store generation.Store, queue, id string, seen uint64) *Lookup {
	g, _ := v.byName.Get(queue)
	return lookUp(store, g, g.List(), id, seen)
}

// Owner looks a unique id up in a queue, in a store that has all batches up to seen.
func (v View) Owner(store generation.Store, queue, id string, seen uint64) *Lookup {
	g, _ := v.byName.Get(queue)
	return lookUp(store, g, []int64{storage.UniqueGeneration}, id, seen)
}

// lookUp searches generations of a queue for an id; a nil group is a queue without ids.
func lookUp(store generation.Store, g *generation.Group, list []int64, id string, seen uint64) *Lookup {
	if g == nil {
		return new(recent.Begin[key, storage.DedupEntry](key{}, seen))
	}
	l := new(recent.Begin[key, storage.DedupEntry](key{g.Queue(), id}, seen))
	b, _, err := generation.Find(store, storage.Dedup, g.Queue(), list, id)
	if l.Err = err; b != nil && err == nil {
		l.Err = l.Found.Decode(b)
	}
	return l
}

// Owners looks up, off the loop, the unique ids of dead messages, each in the queue that is to take the message.
type Owners struct {
	View View
	To   string // that takes all messages; "": the queue in which each died
	Seen uint64 // committed when the look-ups begin

	of map[storage.ID]*Lookup
}

// LookUp looks up the unique id of a message, if it has one. o may be nil: nothing takes the message.
func (o *Owners) LookUp(store generation.Store, m storage.ID, rec *storage.Message) error {
	if o == nil || rec.Unique == "" {
		return nil
	}
	to := o.To
	if to == "" && rec.Dead != nil {
		to = rec.Dead.Queue
	}
	if o.of == nil {
		o.of = map[storage.ID]*Lookup{}
	}
	l := o.View.Owner(store, to, rec.Unique, o.Seen)
	o.of[m] = l
	return l.Err
}

// Of returns the look-up of the unique id of a message; nil: it has none.
func (o *Owners) Of(m storage.ID) *Lookup { return o.of[m] }

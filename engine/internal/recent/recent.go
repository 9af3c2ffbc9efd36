// Package recent looks up ids that are on disk only, without a read on the loop of the engine:
//
//  1. A look-up reads the store off the loop, and notes the newest batch that it has certainly
//     seen ([Begin]).
//  2. A Table has what the batches after that have written under ids, committed or not.
//  3. On the loop, [Table.Find] decides by both what is known of an id.
//
// The states of a look-up, in the order in which Find asks:
//
//	recent   a batch of the Table has written the id: its value counts, whatever was read
//	stale    nothing was read, or the Table has dropped a batch that the look-up may have
//	         missed: it has to be repeated
//	failed   the store could not be read
//	other    it has read another key: the queue or account of the id is newer than the look-up,
//	         so the Table would have all of its ids, and has not this one
//	read     what was read counts
//
// A look-up that is repeated in a turn, and runs after the commit of its batch, has seen that batch.
package recent

import "errors"

// Entries kept after their commit, and for how long. They allow a task the time from its
// look-up to its turn; a later task repeats the look-up.
const (
	Max = 1 << 16
	Age = int64(1e9) // nanoseconds
)

// ErrStale says that an id was looked up too long ago, or not at all: the look-up has to be repeated.
var ErrStale = errors.New("the look-up of the id is stale")

// Lookup is what a look-up has read from the store. The zero Lookup has read nothing.
type Lookup[K comparable, V any] struct {
	Found V // zero: there is none
	Err   error

	key  K
	next uint64 // batches from this one on may be missing in the store; 0: nothing was read
}

// Begin returns the look-up of a key in a store that has all batches up to seen. The caller reads, and sets Found or
// Err. The zero key is one that there was not: its queue or account was unknown.
func Begin[K comparable, V any](key K, seen uint64) Lookup[K, V] {
	return Lookup[K, V]{key: key, next: seen + 1}
}

// Table has the values of recent batches by id. An entry stays at least until its batch is
// committed, and up to Age after its time. The zero Table is empty.
type Table[K comparable, V any] struct {
	byKey map[K]written[V]
	order []entry[K]
	// Dropped is the newest batch of which an entry has been dropped. A look-up that may not
	// have seen this batch is stale.
	Dropped uint64
}

// written is the newest value of a key, and the batch that has it.
type written[V any] struct {
	value V
	batch uint64
}

type entry[K comparable] struct {
	key   K
	batch uint64
	at    int64
}

// Add keeps a value of a batch, written at a time in Unix nanoseconds; the zero value if the batch removes the key.
// Batches and times must not decrease.
func (t *Table[K, V]) Add(key K, value V, batch uint64, at int64) {
	if t.byKey == nil {
		t.byKey = map[K]written[V]{}
	}
	t.byKey[key] = written[V]{value, batch}
	t.order = append(t.order, entry[K]{key, batch, at})
}

// Find returns the value of a key, zero if it has none. l is its look-up, nil if there was none.
// Errors: ErrStale, that of the look-up.
func (t *Table[K, V]) Find(key K, l *Lookup[K, V]) (v V, err error) {
	if now, ok := t.byKey[key]; ok {
		return now.value, nil
	}
	switch {
	case t.Stale(l):
		return v, ErrStale
	case l.Err != nil || l.key != key:
		return v, l.Err
	}
	return l.Found, nil
}

// Stale reports whether a look-up may have missed what the table has no more.
func (t *Table[K, V]) Stale(l *Lookup[K, V]) bool { return l == nil || l.next <= t.Dropped }

// Prune drops entries of batches up to committed that are too old or too many, at most most of
// them, and returns how many it dropped.
func (t *Table[K, V]) Prune(now int64, committed uint64, most int) int {
	n := 0
	for n < min(len(t.order), most) {
		o := &t.order[n]
		if o.batch > committed || o.at > now-Age && len(t.order)-n <= Max {
			break
		}
		if t.byKey[o.key].batch == o.batch {
			delete(t.byKey, o.key)
		}
		t.Dropped = max(t.Dropped, o.batch)
		n++
	}
	clear(t.order[:n])
	t.order = t.order[n:]
	if len(t.order) == 0 {
		t.order = nil
	}
	return n
}

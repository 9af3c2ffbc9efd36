// Package recent keeps what recent batches have written under ids, for look-ups in the store
// that may have missed it. It is how the engine answers on its loop, without a read, whether an
// id is known, although all ids are on disk only:
//
//  1. A look-up reads the store off the loop, and notes the newest batch that it has certainly
//     seen.
//  2. On the loop, Get has the ids of the batches after that.
//  3. If Dropped is newer than the look-up, the answer is unknown, and the look-up is repeated.
package recent

// Entries kept after their commit, and for how long. They allow a task the time from its
// look-up to its turn; a later task repeats the look-up.
const (
	Max = 1 << 16
	Age = int64(1e9) // nanoseconds
)

// Table has the values of recent batches by id. An entry stays at least until its batch is
// committed, and up to Age after its time. The zero Table is empty.
type Table[K, V comparable] struct {
	byKey map[K]V
	order []entry[K, V]
	// Dropped is the newest batch of which an entry has been dropped. A look-up that may not
	// have seen this batch proves nothing.
	Dropped uint64
}

type entry[K, V comparable] struct {
	key   K
	value V
	batch uint64
	at    int64
}

// Add keeps a value of a batch, written at a time in Unix nanoseconds. Batches and times must
// not decrease.
func (t *Table[K, V]) Add(key K, value V, batch uint64, at int64) {
	if t.byKey == nil {
		t.byKey = map[K]V{}
	}
	t.byKey[key] = value
	t.order = append(t.order, entry[K, V]{key, value, batch, at})
}

// Get returns the newest value of a key, and whether there is one.
func (t *Table[K, V]) Get(key K) (V, bool) {
	v, ok := t.byKey[key]
	return v, ok
}

// Prune drops entries of batches up to committed that are too old or too many, at most most of
// them, and returns how many it dropped.
func (t *Table[K, V]) Prune(now int64, committed uint64, most int) int {
	n := 0
	for n < min(len(t.order), most) {
		o := &t.order[n]
		if o.batch > committed || o.at > now-Age && len(t.order)-n <= Max {
			break
		}
		if t.byKey[o.key] == o.value {
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

// Package ordered has immutable maps in the order of their keys. A change returns a new map that shares all but
// O(log n) nodes with the former one, which other goroutines may be reading.
package ordered

import (
	"iter"

	"github.com/tidwall/btree"
)

// Map is an immutable map. The zero value is empty.
type Map[V any] struct{ tree *btree.Map[string, V] }

// degree is small, since a change copies the nodes on a path.
const degree = 8

// Len returns the number of entries.
func (m Map[V]) Len() int {
	if m.tree == nil {
		return 0
	}
	return m.tree.Len()
}

// Get returns the value of a key; ok is false if there is none.
func (m Map[V]) Get(key string) (v V, ok bool) {
	if m.tree == nil {
		return v, false
	}
	return m.tree.Get(key)
}

// From iterates over the entries in the order of their keys, from a key on.
func (m Map[V]) From(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if m.tree != nil {
			m.tree.Ascend(key, yield)
		}
	}
}

// Edit returns a copy that may be changed, by one goroutine. Only one goroutine may make copies: copying marks nodes of
// the original as shared, which concurrent readers ignore, but which a concurrent copy would race with.
func (m Map[V]) Edit() Draft[V] {
	if m.tree == nil {
		return Draft[V]{Map[V]{btree.NewMap[string, V](degree)}}
	}
	return Draft[V]{Map[V]{m.tree.Copy()}}
}

// With returns a copy with an entry added or replaced.
func (m Map[V]) With(key string, v V) Map[V] {
	next := m.Edit()
	next.Set(key, v)
	return next.Map
}

// Without returns a copy without an entry.
func (m Map[V]) Without(key string) Map[V] {
	next := m.Edit()
	next.Delete(key)
	return next.Map
}

// Draft is a map that is being changed. Its Map must not be given away before the last change.
type Draft[V any] struct{ Map[V] }

// Set adds or replaces an entry, and returns the value that it had; known is false if it had none.
func (d Draft[V]) Set(key string, v V) (old V, known bool) { return d.tree.Set(key, v) }

// Delete removes an entry, and returns the value that it had.
func (d Draft[V]) Delete(key string) (old V, known bool) { return d.tree.Delete(key) }

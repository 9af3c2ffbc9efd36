package engine

import (
	"iter"

	"github.com/tidwall/btree"
)

// ordered is an immutable map in the order of its keys. A change makes a new one that
// shares all but a few nodes with the one before: with n entries it costs O(log n), and
// goroutines that read the old one are not disturbed. The zero value is empty.
type ordered[V any] struct{ tree *btree.Map[string, V] }

// orderedDegree makes nodes so small that copying a path of them is cheap.
const orderedDegree = 8

func (o ordered[V]) len() int {
	if o.tree == nil {
		return 0
	}
	return o.tree.Len()
}

func (o ordered[V]) get(key string) (v V, ok bool) {
	if o.tree == nil {
		return v, false
	}
	return o.tree.Get(key)
}

// edit returns a copy that may be changed until it is handed on. Only the loop may make
// one: readers do not look at what copying changes in the original, another copy would.
func (o ordered[V]) edit() ordered[V] {
	if o.tree == nil {
		return ordered[V]{tree: btree.NewMap[string, V](orderedDegree)}
	}
	return ordered[V]{tree: o.tree.Copy()}
}

// with returns a copy that has one entry more, or another value of it.
func (o ordered[V]) with(key string, v V) ordered[V] {
	next := o.edit()
	next.tree.Set(key, v)
	return next
}

// without returns a copy that lacks an entry.
func (o ordered[V]) without(key string) ordered[V] {
	next := o.edit()
	next.tree.Delete(key)
	return next
}

// from goes through the entries in the order of their keys, from a key on.
func (o ordered[V]) from(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if o.tree != nil {
			o.tree.Ascend(key, yield)
		}
	}
}

// Package rotation has the turns of lists whose elements are served one after another.
package rotation

import "slices"

// setsMax bounds the lists in memory. Beyond it, the oldest one is dropped: that list starts with its first element
// again.
const setsMax = 4096

// Rotations has the rotation of each list that was named.
type Rotations[E comparable] struct {
	bySet map[string]*Rotation[E]
	sets  []string // keys of bySet, the oldest first
}

// Rotation is the position in a list. Nil is that of a list with one element.
type Rotation[E comparable] struct {
	last E // that was served last
	any  bool
}

// Of returns the rotation of the list with a key, which it creates if there is none.
func (r *Rotations[E]) Of(key []byte) *Rotation[E] {
	if turn := r.bySet[string(key)]; turn != nil {
		return turn
	}
	if len(r.sets) >= setsMax {
		delete(r.bySet, r.sets[0])
		r.sets = r.sets[1:]
	}
	if r.bySet == nil {
		r.bySet = map[string]*Rotation[E]{}
	}
	set, turn := string(key), &Rotation[E]{}
	r.bySet[set], r.sets = turn, append(r.sets, set)
	return turn
}

// Start returns the index of the element to begin with, which may be the length of the list.
func (r *Rotation[E]) Start(list []E) int {
	if r == nil || !r.any {
		return 0
	}
	return slices.Index(list, r.last) + 1
}

// Served notes which element was served.
func (r *Rotation[E]) Served(e E) {
	if r != nil {
		r.last, r.any = e, true
	}
}

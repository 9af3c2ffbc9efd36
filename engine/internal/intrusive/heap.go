// Package intrusive has containers whose links are in their elements: an element knows its place,
// so that it can be taken out in O(1) or O(log n) without a search, and to move it allocates nothing.
// None of them may be used by several goroutines at a time.
package intrusive

// Ordered is an entry of a Heap.
type Ordered[T any] interface {
	comparable
	// Before reports whether the entry is due before another one.
	Before(o T) bool
	// Index returns where the entry stores its index in the heap, so that it can be removed in
	// O(log n). The heap maintains it, and sets it to -1 on removal.
	Index() *int
}

// Heap is a binary heap. Entries that are equal leave in an unspecified but reproducible order,
// unless Before distinguishes them. The zero value is empty.
type Heap[T Ordered[T]] struct{ h []T }

// Len returns the number of entries.
func (t *Heap[T]) Len() int { return len(t.h) }

// First returns the earliest entry without removing it; ok is false if there is none.
func (t *Heap[T]) First() (e T, ok bool) {
	if len(t.h) == 0 {
		return e, false
	}
	return t.h[0], true
}

// Push adds an entry that is in no heap.
func (t *Heap[T]) Push(e T) {
	*e.Index() = len(t.h)
	t.h = append(t.h, e)
	t.up(len(t.h) - 1)
}

// Remove removes an entry, which must be in this heap.
func (t *Heap[T]) Remove(e T) {
	i, last := *e.Index(), len(t.h)-1
	var zero T
	moved := t.h[last]
	t.h[last] = zero
	t.h = t.h[:last]
	*e.Index() = -1
	if i != last {
		t.h[i] = moved
		*moved.Index() = i
		t.down(i)
		t.up(i)
	}
	t.shrink()
}

// heapKept is the room for entries that a heap keeps, however few it has.
const heapKept = 1024

// shrink gives back the memory of a heap that has once been much larger. It takes O(1) in the mean.
func (t *Heap[T]) shrink() {
	if room := cap(t.h); room > heapKept && len(t.h) < room/4 {
		t.h = append(make([]T, 0, room/2), t.h...)
	}
}

// Fix restores the order after the time of an entry has changed.
func (t *Heap[T]) Fix(e T) {
	t.down(*e.Index())
	t.up(*e.Index())
}

// Entries returns the entries in the order of the heap, the first one at 0. The caller must not change the slice.
func (t *Heap[T]) Entries() []T { return t.h }

// Rebuild replaces the heap by entries in any order, in O(n). It takes over the slice.
func (t *Heap[T]) Rebuild(all []T) {
	t.h = all
	for i, e := range all {
		*e.Index() = i
	}
	for i := len(all)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
}

// up moves an entry towards the root until its parent is not due after it.
func (t *Heap[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.h[i].Before(t.h[parent]) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

// down moves an entry away from the root until no child is due before it.
func (t *Heap[T]) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(t.h) && t.h[c].Before(t.h[least]) {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *Heap[T]) swap(i, j int) {
	t.h[i], t.h[j] = t.h[j], t.h[i]
	*t.h[i].Index(), *t.h[j].Index() = i, j
}

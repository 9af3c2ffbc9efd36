package engine

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"
)

// timed is an entry of a timers heap.
type timed[T any] interface {
	comparable
	// before reports whether the entry is due before another one.
	before(o T) bool
	// index returns where the entry stores its index in the heap, so that it can be removed in
	// O(log n). The heap maintains it, and sets it to -1 on removal.
	index() *int
}

// timers is a binary heap by time. Entries of the same time leave in an unspecified but
// reproducible order, unless before distinguishes them. The zero value is empty.
type timers[T timed[T]] struct{ h []T }

func (t *timers[T]) len() int { return len(t.h) }

// next returns the earliest entry without removing it; ok is false if there is none.
func (t *timers[T]) next() (e T, ok bool) {
	if len(t.h) == 0 {
		return e, false
	}
	return t.h[0], true
}

// push adds an entry that is in no heap.
func (t *timers[T]) push(e T) {
	*e.index() = len(t.h)
	t.h = append(t.h, e)
	t.up(len(t.h) - 1)
}

// remove removes an entry, which must be in this heap.
func (t *timers[T]) remove(e T) {
	i, last := *e.index(), len(t.h)-1
	var zero T
	moved := t.h[last]
	t.h[last] = zero
	t.h = t.h[:last]
	*e.index() = -1
	if i == last {
		return
	}
	t.h[i] = moved
	*moved.index() = i
	t.down(i)
	t.up(i)
}

// fix restores the order after the time of an entry has changed.
func (t *timers[T]) fix(e T) {
	t.down(*e.index())
	t.up(*e.index())
}

// rebuild replaces the heap by entries in any order, in O(n). It takes over the slice.
func (t *timers[T]) rebuild(all []T) {
	t.h = all
	for i, e := range all {
		*e.index() = i
	}
	for i := len(all)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
}

// up moves an entry towards the root until its parent is not due after it.
func (t *timers[T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !t.h[i].before(t.h[parent]) {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

// down moves an entry away from the root until no child is due before it.
func (t *timers[T]) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(t.h) && t.h[c].before(t.h[least]) {
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

func (t *timers[T]) swap(i, j int) {
	t.h[i], t.h[j] = t.h[j], t.h[i]
	*t.h[i].index(), *t.h[j].index() = i, j
}

// links are a list's fields in its elements. An element embeds them, so it is in one list
// at a time, and to add or remove it allocates nothing.
type links[T any] struct{ prev, next *T }

func (l *links[T]) link() *links[T] { return l }

// linked is a pointer to an element of a list.
type linked[T any] interface {
	*T
	link() *links[T]
}

// list is a doubly linked list of elements that embed links.
//
// The calendar's keyList is one written out: through the methods of a type parameter, to
// move a key costs 13 ns instead of 3 to 5, some 3 % of a delivery.
type list[T any, P linked[T]] struct {
	first, last *T
	n           int
}

// head returns the first element, nil if there is none or no list.
func (l *list[T, P]) head() *T {
	if l == nil {
		return nil
	}
	return l.first
}

func (l *list[T, P]) pushBack(e *T) {
	in := P(e).link()
	in.prev, in.next = l.last, nil
	if l.last != nil {
		P(l.last).link().next = e
	} else {
		l.first = e
	}
	l.last = e
	l.n++
}

// remove takes an element out; it must be inside.
func (l *list[T, P]) remove(e *T) {
	in := P(e).link()
	if in.prev != nil {
		P(in.prev).link().next = in.next
	} else {
		l.first = in.next
	}
	if in.next != nil {
		P(in.next).link().prev = in.prev
	} else {
		l.last = in.prev
	}
	in.prev, in.next = nil, nil
	l.n--
}

// roster lists entries in the order of their addition, so that a cursor stays valid while
// entries are added and removed: each entry has a number that increases and is never reused,
// and a cursor is the number of the last entry visited. An entry that exists during a whole
// listing is visited exactly once.
//
// The entries are in blocks of bounded size. A removal leaves a gap; when more than half of a
// block are gaps, they are closed and the block is merged with a small neighbour. So a removal
// moves the entries of at most two blocks, and no operation moves a million entries.
type roster[T any] struct {
	blocks []rosterBlock[T] // by number
	last   uint64           // number of the newest entry
}

// rosterBlock has at least one entry that is not a gap.
type rosterBlock[T any] struct {
	first   uint64 // at most the number of the first entry, above those of the block before
	entries []rosterEntry[T]
	gaps    int // removed entries that are still in entries
}

type rosterEntry[T any] struct {
	seq  uint64
	what *T // nil: a gap
}

const (
	rosterBlockMax = 256
	// rosterMergeMax is the number of entries up to which two neighbours are merged. It is
	// below rosterBlockMax, so that a merged block does not fill up again at once.
	rosterMergeMax = rosterBlockMax / 2
)

// add appends an entry and returns its number, from 1.
func (r *roster[T]) add(what *T) uint64 {
	r.last++
	n := len(r.blocks)
	if n == 0 || len(r.blocks[n-1].entries) >= rosterBlockMax {
		r.blocks = append(r.blocks, rosterBlock[T]{first: r.last})
		n++
	}
	b := &r.blocks[n-1]
	b.entries = append(b.entries, rosterEntry[T]{r.last, what})
	return r.last
}

// block returns the index of the block that has a number, or would have it.
func (r *roster[T]) block(seq uint64) int {
	return max(sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].first > seq })-1, 0)
}

// find returns the index of the first entry with at least that number.
func (b *rosterBlock[T]) find(seq uint64) int {
	return sort.Search(len(b.entries), func(i int) bool { return b.entries[i].seq >= seq })
}

// remove removes the entry with a number, which must exist.
func (r *roster[T]) remove(seq uint64) {
	i := r.block(seq)
	b := &r.blocks[i]
	b.entries[b.find(seq)].what = nil
	b.gaps++
	if b.gaps <= len(b.entries)/2 {
		return
	}
	b.close()
	if len(b.entries) == 0 {
		r.blocks = slices.Delete(r.blocks, i, i+1)
		return
	}
	for _, at := range [2]int{i, i - 1} { // merge with the next block, else with the previous one
		if at >= 0 && at+1 < len(r.blocks) && len(r.blocks[at].entries)+len(r.blocks[at+1].entries) <= rosterMergeMax {
			left, right := &r.blocks[at], &r.blocks[at+1]
			left.entries = append(left.entries, right.entries...)
			left.gaps += right.gaps
			r.blocks = slices.Delete(r.blocks, at+1, at+2)
			return
		}
	}
}

// close closes the gaps of a block. It allocates entries of the exact size, to release memory.
func (b *rosterBlock[T]) close() {
	kept := make([]rosterEntry[T], 0, len(b.entries)-b.gaps)
	for _, e := range b.entries {
		if e.what != nil {
			kept = append(kept, e)
		}
	}
	b.entries, b.gaps = kept, 0
	if len(kept) > 0 {
		b.first = kept[0].seq
	}
}

// shift removes the first entry and returns it, nil if there is none. It is for a roster that
// is being taken apart: no other method may be used on it afterwards but all.
func (r *roster[T]) shift() (first *T) {
	for len(r.blocks) > 0 {
		b := &r.blocks[0]
		for len(b.entries) > 0 && b.entries[0].what == nil {
			b.entries = b.entries[1:]
		}
		if len(b.entries) > 0 {
			if first != nil {
				return first
			}
			first, b.entries = b.entries[0].what, b.entries[1:]
			continue // a block that is empty now is removed
		}
		r.blocks[0] = rosterBlock[T]{}
		r.blocks = r.blocks[1:]
	}
	return first
}

// all iterates over the entries in order. None may be removed meanwhile.
func (r *roster[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) { r.walkWhile(0, yield) }
}

// walk visits up to count entries after the cursor, 0 being the beginning, and returns the
// next cursor, 0 at the end.
func (r *roster[T]) walk(cursor uint64, count int, visit func(*T)) uint64 {
	return r.walkWhile(cursor, func(what *T) bool {
		if count == 0 {
			return false
		}
		count--
		visit(what)
		return true
	})
}

// walkWhile visits the entries after the cursor until visit returns false. It returns the
// cursor to continue with, at the entry for which visit has returned false, or 0 at the end.
func (r *roster[T]) walkWhile(cursor uint64, visit func(*T) bool) uint64 {
	for i := r.block(cursor + 1); i < len(r.blocks); i++ {
		b := &r.blocks[i]
		for _, e := range b.entries[b.find(cursor+1):] {
			if e.what == nil {
				continue
			}
			if !visit(e.what) {
				return cursor
			}
			cursor = e.seq
		}
	}
	return 0
}

// ordered is an immutable map in the order of its keys, for Snapshot. A change returns a new
// map that shares all but O(log n) nodes with the former one, which other goroutines may be
// reading. The zero value is empty.
type ordered[V any] struct{ tree *btree.Map[string, V] }

// orderedDegree is small, since a change copies the nodes on a path.
const orderedDegree = 8

// len returns the number of entries.
func (o ordered[V]) len() int {
	if o.tree == nil {
		return 0
	}
	return o.tree.Len()
}

// get returns the value of a key; ok is false if there is none.
func (o ordered[V]) get(key string) (v V, ok bool) {
	if o.tree == nil {
		return v, false
	}
	return o.tree.Get(key)
}

// edit returns a copy that may be changed until it is published. Only the loop may call it:
// copying marks nodes of the original as shared, which concurrent readers ignore, but which
// a concurrent copy would race with.
func (o ordered[V]) edit() ordered[V] {
	if o.tree == nil {
		return ordered[V]{tree: btree.NewMap[string, V](orderedDegree)}
	}
	return ordered[V]{tree: o.tree.Copy()}
}

// with returns a copy with an entry added or replaced.
func (o ordered[V]) with(key string, v V) ordered[V] {
	next := o.edit()
	next.tree.Set(key, v)
	return next
}

// without returns a copy without an entry.
func (o ordered[V]) without(key string) ordered[V] {
	next := o.edit()
	next.tree.Delete(key)
	return next
}

// from iterates over the entries in the order of their keys, from a key on.
func (o ordered[V]) from(key string) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if o.tree != nil {
			o.tree.Ascend(key, yield)
		}
	}
}

// topList finds the TopKeysMax keys with the greatest values, of which only positive ones count.
type topList struct {
	list  []topKey // at most twice as many
	least int64    // a value up to which no other key belongs into the list
}

type topKey struct {
	value int64
	name  string
}

// offer adds a key if it may be among those with the greatest values.
func (l *topList) offer(value int64, name string) {
	if value <= l.least {
		return
	}
	if l.list = append(l.list, topKey{value, name}); len(l.list) == 2*TopKeysMax {
		l.cut()
	}
}

// cut sorts the list, and leaves TopKeysMax keys in it.
func (l *topList) cut() {
	slices.SortFunc(l.list, func(a, b topKey) int {
		return cmp.Or(cmp.Compare(b.value, a.value), strings.Compare(a.name, b.name))
	})
	if len(l.list) > TopKeysMax {
		clear(l.list[TopKeysMax:])
		l.list = l.list[:TopKeysMax]
		l.least = l.list[TopKeysMax-1].value
	}
}

// names returns the keys, the one with the greatest value first.
func (l *topList) names() []string {
	l.cut()
	names := make([]string, len(l.list))
	for i := range l.list {
		names[i] = l.list[i].name
	}
	return names
}

package engine

import (
	"iter"
	"slices"
	"sort"

	"github.com/tidwall/btree"
)

// timed is what a timers heap holds. Its index lets it be taken out early.
type timed[T any] interface {
	comparable
	before(o T) bool
	index() *int
}

// timers is a binary heap by time. Entries of the same time leave in no
// particular but a reproducible order, unless before says more.
type timers[T timed[T]] struct{ h []T }

func (t *timers[T]) len() int { return len(t.h) }

// next returns the earliest entry; ok is false when there is none.
func (t *timers[T]) next() (e T, ok bool) {
	if len(t.h) == 0 {
		return e, false
	}
	return t.h[0], true
}

func (t *timers[T]) push(e T) {
	*e.index() = len(t.h)
	t.h = append(t.h, e)
	t.up(len(t.h) - 1)
}

// remove takes e out; it must be inside.
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

// fix restores the order after the due time of e has changed.
func (t *timers[T]) fix(e T) {
	t.down(*e.index())
	t.up(*e.index())
}

// rebuild makes a heap of entries in any order.
func (t *timers[T]) rebuild(all []T) {
	t.h = all
	for i, e := range all {
		*e.index() = i
	}
	for i := len(all)/2 - 1; i >= 0; i-- {
		t.down(i)
	}
}

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

// roster lists what exists in the order in which it came, so that a cursor stays
// good while things come and go: a cursor is a number, and whatever is listed
// after it has a larger one.
//
// The entries stand in blocks of a bounded size. A removal moves the entries of one block
// or two at most, and the list of blocks if one goes; neighbours that have become small
// are merged. So no addition and no removal goes through a million entries.
type roster[T any] struct {
	blocks []rosterBlock[T]
	last   uint64
}

// rosterBlock is never empty.
type rosterBlock[T any] struct {
	first   uint64 // number of the first entry
	entries []rosterEntry[T]
	gaps    int
}

type rosterEntry[T any] struct {
	seq  uint64
	what *T // nil: gone
}

const (
	rosterBlockMax = 256
	// rosterMergeMax is how many entries two neighbours have together at most that
	// become one block. It is below the maximum, so that few removals undo a split.
	rosterMergeMax = rosterBlockMax / 2
)

// add appends an entry and returns its number.
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

// block returns the index of the block that holds a number, or would.
func (r *roster[T]) block(seq uint64) int {
	return max(sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].first > seq })-1, 0)
}

func (b *rosterBlock[T]) find(seq uint64) int {
	return sort.Search(len(b.entries), func(i int) bool { return b.entries[i].seq >= seq })
}

// remove takes an entry out.
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
	for _, at := range [2]int{i, i - 1} { // with the one behind it, else with the one before it
		if at >= 0 && at+1 < len(r.blocks) && len(r.blocks[at].entries)+len(r.blocks[at+1].entries) <= rosterMergeMax {
			left, right := &r.blocks[at], &r.blocks[at+1]
			left.entries = append(left.entries, right.entries...)
			left.gaps += right.gaps
			r.blocks = slices.Delete(r.blocks, at+1, at+2)
			return
		}
	}
}

// close closes the gaps of a block, and gives memory back.
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

// shift takes the first entry out and returns it, nil if there is none. It is for a list
// that is given up: nothing may be removed from it otherwise any more.
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
			continue // a block that is empty now goes
		}
		r.blocks[0] = rosterBlock[T]{}
		r.blocks = r.blocks[1:]
	}
	return first
}

// all goes through the entries. None may be removed meanwhile.
func (r *roster[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) { r.walkWhile(0, yield) }
}

// walk visits up to count entries after the cursor and returns the next cursor, 0
// at the end.
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

// walkWhile goes through the entries after the cursor until visit returns false. It
// returns the cursor from which to go on with the entry that was refused, 0 at the end.
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

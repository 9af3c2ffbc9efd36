package intrusive

import (
	"iter"
	"slices"
	"sort"
)

// Roster lists entries in the order of their addition, so that a cursor stays valid while
// entries are added and removed: each entry has a number that increases and is never reused,
// and a cursor is the number of the last entry visited. An entry that exists during a whole
// listing is visited exactly once.
//
// The entries are in blocks of bounded size. A removal leaves a gap; when more than half of a
// block are gaps, they are closed and the block is merged with a small neighbour. So a removal
// moves the entries of at most two blocks, and no operation moves a million entries.
type Roster[T any] struct {
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

// Empty reports whether there are no entries.
func (r *Roster[T]) Empty() bool { return len(r.blocks) == 0 }

// Last returns the number of the newest entry that there has been, or what Skip has set.
func (r *Roster[T]) Last() uint64 { return r.last }

// Skip makes the number of the next entry one more than last, which must not be less than Last.
func (r *Roster[T]) Skip(last uint64) { r.last = last }

// Add appends an entry and returns its number, from 1.
func (r *Roster[T]) Add(what *T) uint64 {
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
func (r *Roster[T]) block(seq uint64) int {
	return max(sort.Search(len(r.blocks), func(i int) bool { return r.blocks[i].first > seq })-1, 0)
}

// find returns the index of the first entry with at least that number.
func (b *rosterBlock[T]) find(seq uint64) int {
	return sort.Search(len(b.entries), func(i int) bool { return b.entries[i].seq >= seq })
}

// Remove removes the entry with a number, which must exist.
func (r *Roster[T]) Remove(seq uint64) {
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

// Shift removes the first entry and returns it, nil if there is none. It is for a roster that
// is being taken apart: no other method may be used on it afterwards but All.
func (r *Roster[T]) Shift() (first *T) {
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

// All iterates over the entries in order. None may be removed meanwhile.
func (r *Roster[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) { r.WalkWhile(0, yield) }
}

// Walk visits up to count entries after the cursor, 0 being the beginning, and returns the
// next cursor, 0 at the end.
func (r *Roster[T]) Walk(cursor uint64, count int, visit func(*T)) uint64 {
	return r.WalkWhile(cursor, func(what *T) bool {
		if count == 0 {
			return false
		}
		count--
		visit(what)
		return true
	})
}

// WalkWhile visits the entries after the cursor until visit returns false. It returns the
// cursor to continue with, at the entry for which visit has returned false, or 0 at the end.
func (r *Roster[T]) WalkWhile(cursor uint64, visit func(*T) bool) uint64 {
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

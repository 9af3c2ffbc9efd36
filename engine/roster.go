package engine

import (
	"iter"
	"sort"
)

// roster lists what exists in the order in which it came, so that a cursor stays
// good while things come and go: a cursor is a number, and whatever is listed
// after it has a larger one.
type roster[T any] struct {
	entries []rosterEntry[T]
	last    uint64
	gaps    int
}

type rosterEntry[T any] struct {
	seq  uint64
	what *T // nil: gone
}

// add appends an entry and returns its number.
func (r *roster[T]) add(what *T) uint64 {
	r.last++
	r.entries = append(r.entries, rosterEntry[T]{r.last, what})
	return r.last
}

func (r *roster[T]) find(seq uint64) int {
	return sort.Search(len(r.entries), func(i int) bool { return r.entries[i].seq >= seq })
}

// remove takes an entry out. Its place is closed when half of the places are empty.
func (r *roster[T]) remove(seq uint64) {
	r.entries[r.find(seq)].what = nil
	r.gaps++
	const few = 32
	if r.gaps < few || r.gaps < len(r.entries)/2 {
		return
	}
	kept := r.entries[:0]
	for _, e := range r.entries {
		if e.what != nil {
			kept = append(kept, e)
		}
	}
	clear(r.entries[len(kept):])
	r.entries, r.gaps = kept, 0
	if cap(r.entries) > 4*len(r.entries)+few {
		r.entries = append([]rosterEntry[T](nil), r.entries...)
	}
}

// all goes through the entries. None may be removed meanwhile.
func (r *roster[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, e := range r.entries {
			if e.what != nil && !yield(e.what) {
				return
			}
		}
	}
}

// walk visits up to count entries after the cursor and returns the next cursor, 0
// at the end.
func (r *roster[T]) walk(cursor uint64, count int, visit func(*T)) uint64 {
	for i := r.find(cursor + 1); i < len(r.entries); i++ {
		e := r.entries[i]
		if e.what == nil {
			continue
		}
		if count == 0 {
			return cursor
		}
		count--
		cursor = e.seq
		visit(e.what)
	}
	return 0
}

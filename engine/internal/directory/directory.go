// Package directory finds values by their names, for one goroutine that adds and removes them and
// any number of others that look them up meanwhile. A look-up takes no lock and waits for nothing.
package directory

import (
	"hash/maphash"
	"sync/atomic"
)

const (
	// partsMax divides the table, so that it grows in small steps: with a million values an
	// addition moves at most 1/256 of them.
	partsMax = 256
	// slotsMin is the size of a part that has values.
	slotsMin = 8
)

// Directory is a table of values by name. With many values it takes 11 to 22 bytes for each, since
// it keeps no names. Get may be called by any goroutine, the other methods by one.
type Directory[T any] struct {
	name    func(*T) string
	seed    maphash.Seed
	removed *T // stands in the slots of values that were removed
	live    int
	parts   [partsMax]part[T]
}

// part is a hash table with open addressing. The values of a full one move to a larger one;
// look-ups that have begun finish in the table in which they began.
type part[T any] struct {
	slots atomic.Pointer[[]atomic.Pointer[T]] // a power of two of them; nil: none yet
	used  int                                 // slots that are not empty
	live  int                                 // of these, slots with a value
}

// New returns an empty directory of values whose names do not change.
func New[T any](name func(*T) string) *Directory[T] {
	return &Directory[T]{name: name, seed: maphash.MakeSeed(), removed: new(T)}
}

// Len returns the number of values.
func (d *Directory[T]) Len() int { return d.live }

// Get returns the value of a name, or nil.
func (d *Directory[T]) Get(name string) *T {
	h := maphash.String(d.seed, name)
	slots := d.parts[h%partsMax].slots.Load()
	if slots == nil {
		return nil
	}
	for i := first(h, *slots); ; i = after(i, *slots) {
		v := (*slots)[i].Load()
		if v == nil || v != d.removed && d.name(v) == name {
			return v
		}
	}
}

// first returns the slot at which a look-up begins, after the one that follows another.
func first[T any](h uint64, slots []atomic.Pointer[T]) int {
	return int(h / partsMax & uint64(len(slots)-1))
}

func after[T any](i int, slots []atomic.Pointer[T]) int { return (i + 1) & (len(slots) - 1) }

// Add adds a value whose name is not there.
func (d *Directory[T]) Add(v *T) {
	h := maphash.String(d.seed, d.name(v))
	p := &d.parts[h%partsMax]
	slots := p.slots.Load()
	if slots == nil || (p.used+1)*4 > len(*slots)*3 { // an empty slot ends each look-up
		slots = d.rebuild(p)
	}
	put(*slots, h, v)
	p.used++
	p.live++
	d.live++
}

func put[T any](slots []atomic.Pointer[T], h uint64, v *T) {
	i := first(h, slots)
	for slots[i].Load() != nil {
		i = after(i, slots)
	}
	slots[i].Store(v)
}

// rebuild moves the values of a part to a table in which an eighth of the slots can be taken
// before the next one.
func (d *Directory[T]) rebuild(p *part[T]) *[]atomic.Pointer[T] {
	size := slotsMin
	for (p.live+1)*8 > size*5 {
		size *= 2
	}
	slots := make([]atomic.Pointer[T], size)
	if old := p.slots.Load(); old != nil {
		for i := range *old {
			if v := (*old)[i].Load(); v != nil && v != d.removed {
				put(slots, maphash.String(d.seed, d.name(v)), v)
			}
		}
	}
	p.used = p.live
	p.slots.Store(&slots)
	return &slots
}

// Remove removes the value of a name, which is there.
func (d *Directory[T]) Remove(name string) {
	h := maphash.String(d.seed, name)
	p := &d.parts[h%partsMax]
	slots := *p.slots.Load()
	for i := first(h, slots); ; i = after(i, slots) {
		if v := slots[i].Load(); v != d.removed && d.name(v) == name {
			slots[i].Store(d.removed)
			p.live--
			d.live--
			return
		}
	}
}

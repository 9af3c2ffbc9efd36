package search

import (
	"cmp"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// Holder is a live lease that keeps a throttle full.
type Holder struct {
	ID                   storage.ID // of the message
	Queue, Key, Consumer string     // Consumer: as named by its lease, or empty
	Until                time.Time  // end of the lease
}

// HoldersMax bounds the holders that an explanation names: those whose leases end first.
const HoldersMax = 10

// Holders collects the leases that name one of several throttles whose slots are all in use. The zero value is empty.
type Holders struct {
	Count int64 // leases that were added

	full  map[string]bool // the throttles
	found []holding       // those that end first, at most HoldersMax, in that order
}

// holding is one delivery: the delivery number tells whether the lease still exists when the leases are listed.
type holding struct {
	Holder
	fence uint64
}

// Of looks for the leases that name a throttle, too.
func (h *Holders) Of(throttle string) {
	if h.full == nil {
		h.full = map[string]bool{}
	}
	h.full[throttle] = true
}

// Full returns the number of throttles.
func (h *Holders) Full() int { return len(h.full) }

// Named reports whether one of the throttle keys is one of the throttles.
func (h *Holders) Named(keys ...string) bool {
	return slices.ContainsFunc(keys, func(name string) bool { return h.full[name] })
}

// Add adds a lease that names one of them, with its delivery number.
func (h *Holders) Add(lease Holder, fence uint64) {
	h.Count++
	one := holding{lease, fence}
	at, _ := slices.BinarySearchFunc(h.found, one, func(a, b holding) int {
		return cmp.Or(a.Until.Compare(b.Until), slices.Compare(a.ID[:], b.ID[:]))
	})
	if at == HoldersMax {
		return
	}
	h.found = slices.Insert(h.found, at, one)
	h.found = h.found[:min(len(h.found), HoldersMax)]
}

// List returns those of the first leases that are still live, in the order of their ends.
func (h *Holders) List(live func(id storage.ID, fence uint64) bool) (list []Holder) {
	for _, one := range h.found {
		if live(one.ID, one.fence) {
			list = append(list, one.Holder)
		}
	}
	return list
}

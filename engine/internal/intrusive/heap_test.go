package intrusive

import (
	"math/rand/v2"
	"slices"
	"testing"
)

type alarm struct{ at, index int }

func (a *alarm) Before(o *alarm) bool { return a.at < o.at }
func (a *alarm) Index() *int          { return &a.index }

// A heap has its entries in order whatever is added, removed and changed, and gives its memory back when it is emptied.
func TestAHeapIsInOrderAndGivesItsMemoryBack(t *testing.T) {
	const most = 16 * heapKept
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	var (
		h   Heap[*alarm]
		all []*alarm
	)
	check := func() {
		t.Helper()
		for i, a := range h.Entries() {
			if a.index != i || i > 0 && a.Before(h.Entries()[(i-1)/2]) {
				t.Fatalf("entry %d of %d is broken", i, h.Len())
			}
		}
		if h.Len() != len(all) {
			t.Fatalf("%d entries, want %d", h.Len(), len(all))
		}
	}
	for range most {
		a := &alarm{at: rng.IntN(most)}
		h.Push(a)
		all = append(all, a)
		if b := all[rng.IntN(len(all))]; rng.IntN(4) == 0 {
			b.at = rng.IntN(most)
			h.Fix(b)
		}
	}
	check()
	for len(all) > 0 {
		i := rng.IntN(len(all))
		if rng.IntN(2) == 0 {
			first, _ := h.First()
			i = slices.Index(all, first)
		}
		h.Remove(all[i])
		if all[i].index != -1 {
			t.Fatal("an entry that was removed has an index")
		}
		all[i] = all[len(all)-1]
		if all = all[:len(all)-1]; len(all)%1000 == 0 {
			check()
		}
		if room := cap(h.h); room > max(heapKept, 4*len(all)+4) {
			t.Fatalf("%d entries have room for %d", len(all), room)
		}
	}
}

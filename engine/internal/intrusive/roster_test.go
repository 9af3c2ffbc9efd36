package intrusive

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A roster behaves like a sorted list of numbers; its blocks and its list of blocks are
// bounded by its entries.
func TestARosterListsItsEntriesInBoundedBlocks(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
		var r Roster[uint64]
		var model []uint64
		check := func() {
			t.Helper()
			var got []uint64
			for what := range r.All() {
				got = append(got, *what)
			}
			if !slices.Equal(got, model) {
				t.Fatalf("seed %d: %d are listed, want %d", seed, len(got), len(model))
			}
			for i, b := range r.blocks {
				if len(b.entries) == 0 || len(b.entries) > rosterBlockMax || b.first != b.entries[0].seq {
					t.Fatalf("seed %d: block %d has %d entries, the first is %d", seed, i, len(b.entries), b.first)
				}
			}
			if most := 2 + 8*len(model)/rosterMergeMax; len(r.blocks) > most {
				t.Fatalf("seed %d: %d entries in %d blocks, want at most %d", seed, len(model), len(r.blocks), most)
			}
		}
		for range 12 {
			adds := rng.IntN(3000)
			for range adds {
				seq := r.last + 1
				if r.Add(&seq) != seq {
					t.Fatal("numbers leave gaps")
				}
				model = append(model, seq)
			}
			old := rng.IntN(2) == 0 // the oldest, or any
			for range rng.IntN(len(model) + 1) {
				at := 0
				if !old {
					at = rng.IntN(len(model))
				}
				r.Remove(model[at])
				model = slices.Delete(model, at, at+1)
			}
			check()
			var paged []uint64
			for cursor := uint64(0); ; {
				if cursor = r.Walk(cursor, 1+rng.IntN(500), func(what *uint64) { paged = append(paged, *what) }); cursor == 0 {
					break
				}
			}
			if !slices.Equal(paged, model) {
				t.Fatalf("seed %d: pages show %d, want %d", seed, len(paged), len(model))
			}
		}
		for len(model) > 0 {
			if got := r.Shift(); got == nil || *got != model[0] {
				t.Fatalf("seed %d: the first is %v, want %d", seed, got, model[0])
			}
			model = model[1:]
			if empty := len(r.blocks) == 0; empty != (len(model) == 0) {
				t.Fatalf("seed %d: %d are left, and no block is %v", seed, len(model), empty)
			}
		}
	}
}

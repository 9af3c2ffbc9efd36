package engine

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestIDsLeadToAllKeysWithTheirHash(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // reproducible on purpose
	for _, hashes := range []int{1, 300, 1 << 22} {
		var x idIndex
		known := map[string]*fairKey{}
		check := func() {
			t.Helper()
			if err := x.check(len(known)); err != nil {
				t.Fatal(err)
			}
			for name, k := range known {
				if hashes > 1 && !slices.Contains(x.names(k.idHash), name) {
					t.Fatalf("%q cannot be found", name)
				}
			}
		}
		for _, growing := range []int{9, 2, 8, 0} { // of ten changes
			for range 20_000 {
				name := fmt.Sprint("tenant-", rng.IntN(10_000))
				k := known[name]
				switch {
				case k == nil && rng.IntN(10) < growing:
					k = &fairKey{name: name, idHash: keyHash(name) % uint32(hashes)} //nolint:gosec // small
					known[name] = k
					x.add(k)
				case k != nil && rng.IntN(10) >= growing:
					x.remove(k)
					delete(known, name)
				}
			}
			check()
		}
		for name, k := range known {
			x.remove(k)
			delete(known, name)
		}
		check()
		if x.names(0) != nil || len(x.buckets) > idBucketsFew {
			t.Errorf("an empty index has %d buckets", len(x.buckets))
		}
	}
}

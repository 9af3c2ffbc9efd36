package keytable

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// entry is a key as a caller has it.
type entry struct {
	name string
	hash Hash
}

// get returns the entry with a name, as a caller finds it.
func get(t *Table[entry], name string) *entry { return find(t, HashOf(name), name) }

func find(t *Table[entry], h Hash, name string) *entry {
	k, at := t.First(h)
	for k != nil && k.name != name {
		k, at = t.Next(h, at)
	}
	return k
}

func TestATableFindsWhatAMapFinds(t *testing.T) {
	keys := 60_000
	if testing.Short() {
		keys /= 5
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible on purpose
	var table Table[entry]
	known := map[string]*entry{}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("tenant-", i)
	}
	check := func() {
		t.Helper()
		if table.n != len(known) {
			t.Fatalf("%d keys, the table counts %d", len(known), table.n)
		}
		for _, name := range names {
			got := get(&table, name)
			if got != known[name] {
				t.Fatalf("%q: found %v, it is %v", name, got, known[name])
			}
			if slices.Contains(table.WithID(storage.KeyHash(name)), got) != (got != nil) {
				t.Fatalf("%q is %v, and its ids do not lead to it", name, got)
			}
		}
	}
	check()
	for _, growing := range []int{9, 2, 8, 0} { // of ten changes
		for range keys * 4 / 3 {
			name := names[rng.IntN(len(names))]
			k := known[name]
			switch {
			case k == nil && rng.IntN(10) < growing:
				k = &entry{name: name}
				known[name] = k
				table.Add(HashOf(name), k)
			case k != nil && rng.IntN(10) >= growing:
				if other := (&entry{name: name}); table.Remove(HashOf(name), other) {
					t.Fatalf("%q: another key of that name was taken out", name)
				}
				if !table.Remove(HashOf(name), k) {
					t.Fatalf("%q cannot be taken out", name)
				}
				delete(known, name)
			}
		}
		check()
	}
	for name, k := range known {
		table.Remove(HashOf(name), k)
	}
	if table.pages != nil || table.n != 0 {
		t.Errorf("an empty table holds %d pages and %d keys", len(table.pages), table.n)
	}
}

// One more key allocates at most two pages: no client waits while a million keys are
// rehashed.
func TestATableGrowsPageByPage(t *testing.T) {
	var table Table[entry]
	before := map[*Page[entry]]bool{}
	for i := range 20_000 {
		name := fmt.Sprint(i)
		table.Add(HashOf(name), &entry{name: name})
		now, fresh := map[*Page[entry]]bool{}, 0
		for _, p := range table.pages {
			if !now[p] && !before[p] {
				fresh++
			}
			now[p] = true
			if len(p.slots) > pageSlots || p.n > len(p.slots)/4*3 {
				t.Fatalf("a page of %d slots holds %d", len(p.slots), p.n)
			}
		}
		if fresh > 2 {
			t.Fatalf("key %d made %d pages", i, fresh)
		}
		before = now
	}
}

// A client that knows the format of ids can choose names with equal hashes.
func TestCollidingNamesSlowDownOnlyTheirOwnLookUps(t *testing.T) {
	const others, chosen = 20_000, 5000
	var table Table[entry]
	const idHash = 4711
	add := func(name string, h Hash) *entry {
		k := &entry{name: name, hash: h}
		table.Add(h, k)
		return k
	}
	var colliding []*entry
	for i := range others {
		name := fmt.Sprint("tenant-", i)
		if k := add(name, HashOf(name)); k.hash.InID() != storage.KeyHash(name) {
			t.Fatalf("the hash of %q in ids is %d, not %d", name, storage.KeyHash(name), k.hash.InID())
		}
		if i < chosen {
			name = fmt.Sprint("chosen-", i)
			colliding = append(colliding, add(name, homeOf(idHash)|HashOf(name)&(1<<(64-storage.KeyHashBits)-1)))
		}
	}
	grown := map[*Page[entry]]bool{}
	for _, p := range table.pages {
		if len(p.slots) > pageSlots {
			grown[p] = true
		}
	}
	if len(grown) != 1 || len(table.pages) > directoryFree {
		t.Errorf("%d pages have grown, in a directory of %d", len(grown), len(table.pages))
	}
	if found := len(table.WithID(idHash)); found < chosen || found > chosen+5 {
		t.Errorf("%d keys have the hash, %d are found", chosen, found)
	}
	for p := range grown {
		if p.n > chosen+others/16 {
			t.Errorf("the page has %d keys, %d belong there", p.n, chosen)
		}
	}
	far := 0 // distance of the keys from their first slot
	for _, k := range colliding {
		p := table.Page(k.hash)
		for i := p.home(k.hash); p.slots[i].key != k; i = (i + 1) & (len(p.slots) - 1) {
			far++
		}
	}
	if far > 10*chosen {
		t.Errorf("%d keys stand %d slots from where they are looked for", chosen, far)
	}
	for _, k := range colliding {
		if find(&table, k.hash, k.name) != k || !table.Remove(k.hash, k) {
			t.Fatalf("%q cannot be found", k.name)
		}
	}
	if table.n != others || len(table.WithID(storage.KeyHash("tenant-7"))) != 1 {
		t.Errorf("%d keys are left of %d, and tenant-7 is found %d times", table.n, others, len(table.WithID(storage.KeyHash("tenant-7"))))
	}
}

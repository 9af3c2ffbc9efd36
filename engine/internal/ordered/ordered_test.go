package ordered

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Each version of a map keeps its entries, whatever is changed later.
func TestVersionsKeepTheirEntries(t *testing.T) {
	type version struct {
		m    Map[int]
		want map[string]int
	}
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	at := version{want: map[string]int{}}
	var all []version
	for range 1000 {
		key, next := fmt.Sprint(rng.IntN(60)), version{want: maps.Clone(at.want)}
		switch rng.IntN(3) {
		case 0:
			next.m = at.m.Without(key)
			delete(next.want, key)
		case 1:
			draft := at.m.Edit()
			n := rng.Int()
			if old, known := draft.Set(key, n); known != contains(at.want, key) || old != at.want[key] {
				t.Fatalf("%s was %d, %v", key, old, known)
			}
			if old, known := draft.Delete("x" + key); known || old != 0 {
				t.Fatalf("a key that is missing was %d", old)
			}
			next.m, next.want[key] = draft.Map, n
		default:
			n := rng.Int()
			next.m, next.want[key] = at.m.With(key, n), n
		}
		at = next
		all = append(all, at)
	}
	for _, v := range all {
		from := slices.Sorted(maps.Keys(v.want))
		if i, _ := slices.BinarySearch(from, "3"); true {
			from = from[i:]
		}
		var keys []string
		for key, n := range v.m.From("3") {
			if n != v.want[key] {
				t.Fatalf("%s is %d", key, n)
			}
			keys = append(keys, key)
		}
		if v.m.Len() != len(v.want) || !slices.Equal(keys, from) {
			t.Fatalf("%d entries, from 3 on %v; want %d, %v", v.m.Len(), keys, len(v.want), from)
		}
	}
}

func contains(m map[string]int, key string) bool { _, is := m[key]; return is }

func TestTheZeroMapIsEmpty(t *testing.T) {
	var m Map[string]
	if _, ok := m.Get("a"); ok || m.Len() != 0 || m.Without("a").Len() != 0 {
		t.Error("it has an entry")
	}
	for key := range m.From("") {
		t.Errorf("it has %q", key)
	}
}

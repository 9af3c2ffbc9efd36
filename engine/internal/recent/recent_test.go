package recent

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

func TestAnEntryStaysUntilItsBatchIsCommittedAndOld(t *testing.T) {
	var tab Table[string, int]
	tab.Add("a", 1, 5, 0)
	tab.Add("b", 2, 6, 10)
	for _, tt := range []struct {
		now       int64
		committed uint64
		dropped   int
	}{
		{2 * Age, 4, 0}, // not committed
		{Age - 1, 6, 0}, // not old
		{Age, 6, 1},     // a is
		{Age + 9, 6, 0}, // b is not
		{Age + 10, 6, 1},
	} {
		if n := tab.Prune(tt.now, tt.committed, 10); n != tt.dropped {
			t.Errorf("%+v: %d dropped", tt, n)
		}
	}
	if v, err := tab.Find("b", nil); err != ErrStale || tab.Dropped != 6 { //nolint:errorlint // never wrapped
		t.Errorf("b is %d, %v; dropped up to batch %d, want 6", v, err, tab.Dropped)
	}
}

func TestANewerValueOutlivesAnOlderOne(t *testing.T) {
	var tab Table[string, int]
	tab.Add("a", 1, 1, 0)
	tab.Add("a", 2, 2, 1)
	if n := tab.Prune(Age, 2, 1); n != 1 {
		t.Fatalf("%d dropped", n)
	}
	if v, err := tab.Find("a", nil); err != nil || v != 2 {
		t.Errorf("a is %d, %v", v, err)
	}
}

func TestCommittedEntriesAreBounded(t *testing.T) {
	var tab Table[int, int]
	for i := range Max + 3 {
		tab.Add(i, i, 1, 0)
	}
	if n := tab.Prune(0, 0, Max+3); n != 0 {
		t.Errorf("%d of a batch that is not committed were dropped", n)
	}
	if n := tab.Prune(0, 1, 2); n != 2 {
		t.Errorf("%d dropped, want as many as the call allows", n)
	}
	if n := tab.Prune(0, 1, Max); n != 1 {
		t.Errorf("%d dropped, want those above the bound", n)
	}
}

// read is a look-up that has found a value.
func read(key string, seen uint64, found int, err error) *Lookup[string, int] {
	l := Begin[string, int](key, seen)
	l.Found, l.Err = found, err
	return &l
}

func TestTheStatesOfALookUp(t *testing.T) {
	damaged := errors.New("damaged")
	var tab Table[string, int]
	tab.Add("old", 1, 5, 0)
	tab.Add("new", 2, 6, 1)
	tab.Add("freed", 0, 6, 1)
	tab.Prune(Age, 6, 1) // batch 5 is dropped
	for _, tt := range []struct {
		name, key string
		look      *Lookup[string, int]
		want      int
		err       error
	}{
		{"recent, without a look-up", "new", nil, 2, nil},
		{"recent, and read before", "new", read("new", 5, 9, nil), 2, nil},
		{"recent, and the read has failed", "new", read("new", 5, 0, damaged), 2, nil},
		{"removed by a recent batch", "freed", read("freed", 5, 9, nil), 0, nil},
		{"not looked up", "old", nil, 0, ErrStale},
		{"the zero look-up", "old", &Lookup[string, int]{}, 0, ErrStale},
		{"read before a batch that was dropped", "old", read("old", 4, 9, nil), 0, ErrStale},
		{"failed, and too old as well", "old", read("old", 4, 0, damaged), 0, ErrStale},
		{"read with the batch that was dropped", "old", read("old", 5, 1, nil), 1, nil},
		{"read, and not found", "none", read("none", 5, 0, nil), 0, nil},
		{"failed", "old", read("old", 5, 3, damaged), 0, damaged},
		{"failed for another key", "old", read("", 5, 0, damaged), 0, damaged},
		{"read under another key", "old", read("other", 5, 9, nil), 0, nil},
		{"there was no such queue", "old", read("", 5, 0, nil), 0, nil},
	} {
		if v, err := tab.Find(tt.key, tt.look); v != tt.want || err != tt.err { //nolint:errorlint // never wrapped
			t.Errorf("%s: %d, %v; want %d, %v", tt.name, v, err, tt.want, tt.err)
		}
	}
	if (&Table[string, int]{}).Stale(read("a", 0, 0, nil)) {
		t.Error("a look-up of a store without batches is stale")
	}
}

// TestFindKnowsWhatTheLastBatchHasMade writes and removes ids at random, with look-ups of any age, commits that lag
// behind, and entries that are dropped.
func TestFindKnowsWhatTheLastBatchHasMade(t *testing.T) {
	stale := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		var tab Table[string, int]
		now, looks := map[string]int{}, map[string]*Lookup[string, int]{}
		states := []map[string]int{{}} // of the store, by the number of its last batch
		batch, at := uint64(1), int64(0)
		for step := range 300 {
			key := fmt.Sprint(r.IntN(5))
			switch r.IntN(6) {
			case 0, 1:
				value := step * r.IntN(2)
				now[key] = value
				tab.Add(key, value, batch, at)
			case 2: // the batch is cut
				states = append(states, maps.Clone(now))
				batch++
			case 3: // what is read may be newer than the batch that it has certainly seen
				seen := r.IntN(len(states))
				looks[key] = read(key, uint64(seen), states[seen+r.IntN(len(states)-seen)][key], nil)
			case 4:
				at += r.Int64N(Age)
				tab.Prune(at, uint64(len(states)-1), r.IntN(4))
			}
			v, err := tab.Find(key, looks[key])
			if err == ErrStale { //nolint:errorlint // never wrapped
				stale++
			} else if err != nil || v != now[key] {
				t.Fatalf("seed %d, step %d: %s is %d, %v; want %d", seed, step, key, v, err, now[key])
			}
		}
	}
	if stale < 2000 || stale > 30_000 {
		t.Errorf("%d of 60,000 are stale", stale)
	}
}

package recent

import "testing"

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
	if _, ok := tab.Get("b"); ok || tab.Dropped != 6 {
		t.Errorf("b is known: %v; dropped up to batch %d, want 6", ok, tab.Dropped)
	}
}

func TestANewerValueOutlivesAnOlderOne(t *testing.T) {
	var tab Table[string, int]
	tab.Add("a", 1, 1, 0)
	tab.Add("a", 2, 2, 1)
	if n := tab.Prune(Age, 2, 1); n != 1 {
		t.Fatalf("%d dropped", n)
	}
	if v, ok := tab.Get("a"); !ok || v != 2 {
		t.Errorf("a is %d, %v", v, ok)
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

package generation

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

const second = int64(time.Second)

func TestAGenerationTakesRecordsForAPeriod(t *testing.T) {
	var tab Table
	g := New(1, storage.Dedup, 10*time.Second)
	if _, ok := tab.DropAt(); ok || len(g.List()) != 0 {
		t.Error("a new group has a generation")
	}
	for _, tt := range []struct {
		now, want, dropAt int64
	}{
		{100 * second, 100 * second, 120 * second},
		{110*second - 1, 100 * second, 120 * second},
		{115 * second, 115 * second, 125 * second}, // no record of the first one came after this
		{50 * second, 115 * second, 125 * second},  // the clock was set back
		{130 * second, 130 * second, 125 * second},
	} {
		got := tab.Current(g, tt.now)
		if at, ok := tab.DropAt(); got != tt.want || at != tt.dropAt || !ok {
			t.Errorf("at %d: generation %d, dropped at %d; want %d, %d", tt.now, got, at, tt.want, tt.dropAt)
		}
	}
	f, from, to := tab.Drop()
	if want := storage.AppendDedupPrefix(nil, 1, 100*second); f != storage.Dedup || !slices.Equal(from, want) || !slices.Equal(to, storage.After(want)) {
		t.Errorf("dropped %s from %x to %x", f, from, to)
	}
	if list := g.List(); !slices.Equal(list, []int64{115 * second, 130 * second}) {
		t.Errorf("left are %v", list)
	}
}

func TestGenerationsOfVeryShortPeriodsAreFew(t *testing.T) {
	var tab Table
	g := New(1, storage.Results, time.Millisecond)
	for now := range 3 * second / 1000 {
		tab.Current(g, 1+now*1000)
	}
	if list := g.List(); len(list) != 3 {
		t.Errorf("%d in three seconds", len(list))
	}
}

func TestTheFirstGenerationIsAfterThatOfUniqueIDs(t *testing.T) {
	var tab Table
	if got := tab.Current(New(1, storage.Dedup, time.Second), storage.UniqueGeneration); got != storage.UniqueGeneration+1 {
		t.Errorf("it is %d", got)
	}
}

func TestALongerPeriodDelaysTheDrop(t *testing.T) {
	var tab Table
	a, b := New(1, storage.Dedup, 5*time.Second), New(2, storage.Results, 7*time.Second)
	tab.Add(a, 100*second)
	tab.Add(b, 100*second)
	tab.Renew(a, 9*time.Second)
	tab.Renew(nil, time.Second)
	tab.Renew(New(3, storage.Dedup, 0), time.Second) // without generations
	for _, want := range []struct {
		f  storage.Family
		at int64
	}{{storage.Results, 114 * second}, {storage.Dedup, 118 * second}} {
		at, ok := tab.DropAt()
		if f, _, _ := tab.Drop(); !ok || f != want.f || at != want.at {
			t.Errorf("dropped one of %s at %d, want %s at %d", f, at, want.f, want.at)
		}
	}
	if at, ok := tab.DropAt(); ok {
		t.Errorf("another one is dropped at %d", at)
	}
}

func TestAForgottenGroupIsNotDropped(t *testing.T) {
	var tab Table
	g := New(1, storage.Dedup, time.Second)
	tab.Current(g, second)
	tab.Forget(g)
	tab.Forget(g)
	tab.Forget(nil)
	if _, ok := tab.DropAt(); ok {
		t.Error("a forgotten group is due")
	}
}

func TestFindSearchesTheNewestFirst(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	put := func(queue uint32, began int64, id, value string) {
		b.Put(storage.Dedup, storage.AppendDedupKey(nil, queue, began, id), []byte(value))
	}
	put(1, 10, "a", "old")
	put(1, 20, "a", "new")
	put(1, 10, "b", "only")
	put(2, 20, "c", "of another queue")
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		id, want string
		began    int64
	}{{"a", "new", 20}, {"b", "only", 10}, {"c", "", 0}} {
		value, key, err := Find(store, storage.Dedup, 1, []int64{10, 20}, tt.id)
		if err != nil || string(value) != tt.want || (value == nil) != (tt.want == "") {
			t.Errorf("%s is %q, %v", tt.id, value, err)
		}
		if want := storage.AppendDedupKey(nil, 1, tt.began, tt.id); value != nil && !slices.Equal(key, want) {
			t.Errorf("%s is under %x, want %x", tt.id, key, want)
		}
	}
	if value, key, err := Find(store, storage.Dedup, 1, nil, "a"); value != nil || key != nil || err != nil {
		t.Errorf("without generations: %q, %v", value, err)
	}
	var seen []string
	err := Walk(store, storage.Dedup, func(queue uint32, began int64) { seen = append(seen, fmt.Sprint(queue, "/", began)) })
	if err != nil || fmt.Sprint(seen) != "[1/10 1/20 2/20]" {
		t.Errorf("generations %v, %v", seen, err)
	}
}

func TestWalkReportsADamagedKey(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	b.Put(storage.Dedup, []byte{1}, nil)
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	if err := Walk(store, storage.Dedup, func(uint32, int64) {}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

func TestAGroupMayBeOfNoQueue(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	prefix := storage.GroupEndsPrefix()
	for _, began := range []int64{10, 20} {
		b.Put(storage.State, storage.AppendGroupEndKey(nil, began, "a"), []byte{byte(began)})
		b.Put(storage.State, storage.AppendGroupEndKey(nil, began, "b"), []byte("b"))
	}
	b.Put(storage.State, storage.AppendStateKey(nil, "group", "another"), nil)
	b.Put(storage.State, storage.AppendStateKey(nil, "now"), nil)
	if err := store.Commit(&b, false); err != nil {
		t.Fatal(err)
	}
	var tab Table
	g := NewUnder(prefix, storage.State, time.Second)
	if err := tab.Recover(store, g); err != nil || !slices.Equal(g.List(), []int64{10, 20}) {
		t.Errorf("generations %v, %v", g.List(), err)
	}
	if value, err := g.Find(store, storage.GroupEndID("a")); err != nil || !slices.Equal(value, []byte{20}) {
		t.Errorf("a is %v, %v", value, err)
	}
	if value, err := g.Find(store, storage.GroupEndID("c")); err != nil || value != nil {
		t.Errorf("c is %v, %v", value, err)
	}
	f, from, to := tab.Drop()
	if want := storage.AppendGroupEndKey(nil, 10, ""); f != storage.State || !slices.Equal(append(from, 0, 0), want) || string(to) > string(want[:len(want)-3])+"\xff" {
		t.Errorf("dropped %s from %x to %x", f, from, to)
	}
}

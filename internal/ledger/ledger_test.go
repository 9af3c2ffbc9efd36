package ledger

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faisca/fila/storage"
)

// filled is a store with entries of two budgets of one name, and of another name, and the times
// of the entries of the second budget.
func filled(t *testing.T) (*storage.Memory, Days, []int64) {
	t.Helper()
	store := storage.NewMemory()
	var b storage.Batch
	var days Days
	var times []int64
	r := rand.New(rand.NewPCG(1, 2))
	at := 20_000 * day
	for i := range 500 {
		at += 1 + r.Int64N(day/10)
		e := storage.LedgerEntry{Made: 1, Kind: uint32(Credit), Amount: int64(i) + 1}
		if i >= 200 {
			e.Made = 2
			times = append(times, at)
		}
		b.Put(storage.Ledger, storage.AppendLedgerKey(nil, "acme", at), e.Append(nil))
		b.Put(storage.Ledger, storage.AppendLedgerKey(nil, "acme2", at), e.Append(nil))
		b.Put(storage.Ledger, storage.AppendLedgerIDKey(nil, storage.LedgerDay(at), "acme", "id"), e.Append(nil))
		days = days.With(at)
	}
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(times)
	return store, days, times
}

func TestPagesHaveEachEntryOnceAndTheNewestFirst(t *testing.T) {
	store, days, times := filled(t)
	for _, count := range []int{1, 7, 299, 300, 301} {
		var got []int64
		for before := int64(1) << 62; before != 0; {
			list, next, err := Page(store, days, "acme", 2, before, count)
			if err != nil || len(list) > count {
				t.Fatalf("%d entries, %v", len(list), err)
			}
			for _, e := range list {
				if e.Made != 2 {
					t.Fatalf("an entry of budget %d", e.Made)
				}
				got = append(got, e.At)
			}
			before = next
		}
		if !slices.Equal(got, times) {
			t.Errorf("pages of %d: %d entries, want %d", count, len(got), len(times))
		}
	}
}

func TestTheNewestOfAnIDComesFirst(t *testing.T) {
	store, days, _ := filled(t)
	found, err := Under(store, days, "acme", "id")
	if err != nil || len(found) != int(days.End-days.First) || found[0].Amount != 500 || found[len(found)-1].Made != 1 {
		t.Errorf("%d found, %v", len(found), err)
	}
	if found, err := Under(store, days, "acme", "i"); err != nil || len(found) != 0 {
		t.Errorf("%d found under another id, %v", len(found), err)
	}
}

func TestRecordedDaysAreThoseWithRecords(t *testing.T) {
	store, days, _ := filled(t)
	if got, err := Recorded(store); err != nil || got != days {
		t.Errorf("%+v, %v, want %+v", got, err, days)
	}
	if got, err := Recorded(storage.NewMemory()); err != nil || !got.Empty() {
		t.Errorf("an empty ledger: %+v, %v", got, err)
	}
}

func TestADayIsKeptForAsManyDaysAfterItsEnd(t *testing.T) {
	days := Days{100, 104}
	for _, tt := range []struct {
		now  int64
		want Days
	}{
		{0, days},
		{136*day - 1, days},
		{136 * day, Days{101, 104}},
		{139 * day, Days{104, 104}},
		{500 * day, Days{104, 104}},
	} {
		if got := days.Kept(tt.now, 35); got != tt.want {
			t.Errorf("at day %d: %+v, want %+v", tt.now/day, got, tt.want)
		}
	}
	if at := days.DropAt(35); at != 136*day {
		t.Errorf("the first day is dropped at %d", at/day)
	}
	if got := days.Kept(500*day, 35).With(7 * day); got != (Days{7, 8}) {
		t.Errorf("days of an empty ledger: %+v", got)
	}
}

package budget

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/recent"
	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// refill returns a refill by 10 at each full minute, up to 25.
func refill(t *testing.T) *Refill {
	t.Helper()
	r, err := NewRefill(10, "* * * * *", "", 25)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWhatFollowsFromEachCall begins each time with an account that has 50 of 100 credits reserved, is low below 30 and
// has settlements of 7 without an entry.
func TestWhatFollowsFromEachCall(t *testing.T) {
	low := int64(30)
	type bits struct{ stored, freed, drained, low, refilled bool }
	for name, tt := range map[string]struct {
		call    func(b *bank, a *Account) Change
		entries int
		want    bits
		free    int64
	}{
		"credit":                {func(b *bank, a *Account) Change { return b.moved(a, Move{Amount: 5}) }, 2, bits{stored: true, freed: true}, 55},
		"credit with an id":     {func(b *bank, a *Account) Change { return b.moved(a, Move{Amount: 5, ID: "i"}) }, 3, bits{stored: true, freed: true}, 55},
		"charge":                {func(b *bank, a *Account) Change { return b.moved(a, Move{Amount: 50, Charge: true}) }, 2, bits{stored: true, drained: true}, 0},
		"charge that is forced": {func(b *bank, a *Account) Change { return b.moved(a, Move{Amount: 71, Charge: true, Force: true}) }, 2, bits{stored: true, drained: true, low: true}, -21},
		"charge not covered": {func(b *bank, a *Account) Change {
			_, ch, err := b.Move(a, &Move{Amount: 51, Charge: true}, b.w)
			if !errors.Is(err, credit.ErrNotCovered) {
				t.Error(err)
			}
			return ch
		}, 0, bits{}, 50},
		"id not looked up": {func(b *bank, a *Account) Change {
			_, ch, err := b.Move(a, &Move{Amount: 5, ID: "i"}, b.w)
			if !errors.Is(err, recent.ErrStale) {
				t.Error(err)
			}
			return ch
		}, 0, bits{}, 50},
		"return":            {func(b *bank, a *Account) Change { return b.Return(a, 20, b.w) }, 0, bits{freed: true}, 70},
		"return of nothing": {func(b *bank, a *Account) Change { return b.Return(a, 0, b.w) }, 0, bits{}, 50},
		"settle the charge": {func(b *bank, a *Account) Change { return b.Settle(a, 20, 20, Work{}, b.w) }, 0, bits{stored: true, drained: true}, 50},
		"settle less":       {func(b *bank, a *Account) Change { return b.Settle(a, 20, 5, Work{}, b.w) }, 0, bits{stored: true, drained: true, freed: true}, 65},
		"settle more":       {func(b *bank, a *Account) Change { return b.Settle(a, 20, 71, Work{}, b.w) }, 0, bits{stored: true, drained: true, low: true}, -1},
		"settle nothing":    {func(b *bank, a *Account) Change { return b.Settle(a, 20, 0, Work{}, b.w) }, 0, bits{freed: true}, 70},
		"settle a minute later": {func(b *bank, a *Account) Change {
			b.advance(time.Minute)
			return b.Settle(a, 20, 20, Work{}, b.w)
		}, 1, bits{stored: true, drained: true}, 50},
		"the same settings":  {func(b *bank, a *Account) Change { return b.setAs(a, Settings{Low: &low}) }, 0, bits{stored: true}, 50},
		"more debt":          {func(b *bank, a *Account) Change { return b.setAs(a, Settings{Low: &low, Debt: 5}) }, 0, bits{stored: true, freed: true, drained: true}, 50},
		"a refill when full": {func(b *bank, a *Account) Change { return b.setAs(a, Settings{Refill: refill(t)}) }, 0, bits{stored: true}, 50},
		"a refill that fills": {func(b *bank, a *Account) Change {
			b.moved(a, Move{Amount: 80, Charge: true, Force: true})
			return b.setAs(a, Settings{Refill: refill(t)})
		}, 1, bits{stored: true, freed: true}, -25},
		"a tick": {func(b *bank, a *Account) Change {
			b.setAs(a, Settings{Refill: refill(t)})
			b.moved(a, Move{Amount: 95, Charge: true, Force: true})
			b.advance(time.Minute)
			return b.CatchUp(a, b.w)
		}, 1, bits{stored: true, freed: true, refilled: true}, -35},
		"a tick that adds nothing": {func(b *bank, a *Account) Change {
			b.setAs(a, Settings{Refill: refill(t)})
			b.advance(time.Minute)
			return b.CatchUp(a, b.w)
		}, 0, bits{stored: true, refilled: true}, 50},
		"a tick while nothing can be written": {func(b *bank, a *Account) Change {
			b.setAs(a, Settings{Refill: refill(t)})
			b.moved(a, Move{Amount: 95, Charge: true, Force: true})
			b.advance(time.Minute)
			b.w.Calendar = 0
			return b.CatchUp(a, b.w)
		}, 0, bits{}, -45},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			a, _ := b.set("acme", Settings{Low: &low})
			b.moved(a, Move{Amount: 107})
			a.Reserve(7)
			a.Reserve(50)
			b.follow(b.Settle(a, 7, 7, Work{}, b.w))
			b.cut()
			ch := tt.call(b, a)
			if got := (bits{ch.Stored, ch.Freed, ch.Drained, ch.Low, ch.Refilled}); got != tt.want || len(ch.Entries) != tt.entries || a.Available() != tt.free {
				t.Errorf("%+v with %d entries, %d available; want %+v with %d, %d", got, len(ch.Entries), a.Available(), tt.want, tt.entries, tt.free)
			}
			if freed := a.FreedIn() == b.w.Batch; ch.Freed && !freed {
				t.Errorf("freed in batch %d, it is %d", a.FreedIn(), b.w.Batch)
			}
		})
	}
}

// moved moves an account, whose id was not used before.
func (b *bank) moved(a *Account, m Move) Change {
	b.t.Helper()
	m.Name = a.name
	m.Known = b.View().Look(b.store, m.Name, m.ID, b.committed)
	_, ch, err := b.Move(a, &m, b.w)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.follow(ch)
}

func (b *bank) setAs(a *Account, s Settings) Change {
	_, ch := b.set(a.name, s)
	return ch
}

// TestSettlementsOfAMinuteShareAnEntry settles over two minutes, with a movement between, and with DETAIL.
func TestSettlementsOfAMinuteShareAnEntry(t *testing.T) {
	b := newBank(t)
	a, _ := b.set("acme", Settings{})
	b.moved(a, Move{Amount: 1000})
	settle := func(n int64) {
		a.Reserve(n)
		b.follow(b.Settle(a, n, n, Work{Queue: "q", Key: "k", Message: []byte("m")}, b.w))
	}
	settle(1)
	settle(2)
	b.advance(time.Minute)
	settle(3)
	settle(4)
	b.moved(a, Move{Amount: 5})
	settle(6)
	b.setAs(a, Settings{Detail: true})
	settle(7)
	settle(8)
	b.setAs(a, Settings{})
	settle(9)
	b.cut()
	b.recover()
	a = b.Get("acme")
	settle(10)
	var got []string
	for _, e := range b.history(a, 3) {
		got = append(got, fmt.Sprintf("%s %d %d %d %s%s%s", ledger.Kind(e.Kind), e.Amount, e.Balance, e.Count, e.Queue, e.Key, e.Message))
	}
	want := []string{"use -19 955 2 ", "use -8 974 1 qkm", "use -7 982 1 qkm", "use -6 989 1 ", "credit 5 995 0 ", "use -7 990 2 ", "use -3 997 2 ", "credit 1000 1000 0 "}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the history is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestAnIDIsThatOfOneAccount deletes an account and makes another one of its name, in memory and after a recovery.
func TestAnIDIsThatOfOneAccount(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		b := newBank(t)
		first, _ := b.set("acme", Settings{})
		if balance, _, err := b.move(first, Move{Name: "acme", Amount: 5, ID: "i"}); err != nil || balance != 5 {
			t.Fatal(balance, err)
		}
		b.Delete(first)
		if n := b.history(first, 10); len(n) != 1 {
			t.Fatalf("%d entries", len(n))
		}
		second, _ := b.set("acme", Settings{})
		b.cut()
		if restarted {
			b.recover()
			second = b.Get("acme")
		}
		for _, amount := range []int64{7, 7} {
			if balance, _, err := b.move(second, Move{Name: "acme", Amount: amount, ID: "i"}); err != nil || balance != 7 {
				t.Errorf("restarted %v: the balance is %d, %v, want 7", restarted, balance, err)
			}
		}
		if n := b.history(second, 10); len(n) != 1 || n[0].Amount != 7 {
			t.Errorf("restarted %v: the history is %v", restarted, n)
		}
		var used *UsedError
		if _, ch, err := b.move(second, Move{Name: "acme", Amount: 7, Charge: true, ID: "i"}); !errors.As(err, &used) || used.Kind != ledger.Credit || ch.Stored {
			t.Errorf("a charge under the id of a credit: %v, %+v", err, ch)
		}
	}
}

// A look-up fails with the error of the store, and a later one may succeed.
func TestALookUpThatFailsRefusesTheMovement(t *testing.T) {
	b := newBank(t)
	a, _ := b.set("acme", Settings{})
	if _, _, err := b.move(a, Move{Name: "acme", Amount: 5, ID: "i"}); err != nil {
		t.Fatal(err)
	}
	b.cut()
	b.recover()
	var damage storage.Batch
	damage.Put(storage.Ledger, storage.AppendLedgerIDKey(nil, storage.LedgerDay(b.w.Now), "acme", "i"), []byte{0xff})
	if err := b.store.Commit(&damage, true); err != nil {
		t.Fatal(err)
	}
	m := Move{Name: "acme", Amount: 5, ID: "i", Known: b.View().Look(b.store, "acme", "i", b.w.Batch)}
	if _, ch, err := b.Move(b.Get("acme"), &m, b.w); err == nil || errors.Is(err, recent.ErrStale) || ch.Stored {
		t.Errorf("%v, %+v", err, ch)
	}
}

func TestALackSaysWhenTheNextRefillCovers(t *testing.T) {
	b := newBank(t)
	a, _ := b.set("acme", Settings{Refill: refill(t), Debt: 3}) // 10 at once
	next := time.Unix(0, a.NextAt())
	for charge, want := range map[int64]Lack{
		14: {Available: 10, ReadyAt: next},
		23: {Available: 10, ReadyAt: next},
		24: {Available: 10},
		28: {Available: 10},
		29: {Available: 10, most: 25},
	} {
		want.Budget, want.Charge = "acme", charge
		if got := NewLack("acme", a, charge); a.Covers(charge) || *got != want {
			t.Errorf("%d: %+v, want %+v", charge, got, want)
		}
	}
	b.advance(time.Minute)
	if a.CoverAt(b.w.Calendar) != 23 || a.CoverAt(0) != 13 || a.Covers(14) {
		t.Errorf("a tick is due: %d are covered then, %d without it", a.CoverAt(b.w.Calendar), a.CoverAt(0))
	}
}

func TestAnAccountIsDryOnceUntilCreditsHaveComeIn(t *testing.T) {
	b := newBank(t)
	a, _ := b.set("acme", Settings{})
	got := []bool{a.RunDry(), a.RunDry()}
	a.Reserve(5)
	b.Return(a, 5, b.w)
	got = append(got, a.RunDry())
	b.moved(a, Move{Amount: 1})
	got = append(got, a.RunDry())
	if fmt.Sprint(got) != "[true false false true]" {
		t.Errorf("dry for the first time: %v", got)
	}
}

func TestARecordIsHandedOutOnceForABatch(t *testing.T) {
	b := newBank(t)
	a, _ := b.set("acme", Settings{})
	other, _ := b.set("other", Settings{})
	for range 3 {
		b.moved(a, Move{Amount: 1})
	}
	b.Delete(other)
	records := func() (n int) {
		b.Records(func(name string, record []byte) {
			var rec storage.Budget
			if err := rec.Decode(record); err != nil || name != "acme" || rec.Credited != 3 {
				t.Errorf("%q: %+v, %v", name, rec, err)
			}
			n++
		})
		return n
	}
	if first, second := records(), records(); first != 1 || second != 0 {
		t.Errorf("%d records, then %d; want 1 and none", first, second)
	}
}

// A view is replaced only where it would show something else: a snapshot of the engine is a copy.
func TestAViewIsEqualUntilADayComesOrGoes(t *testing.T) {
	b := newBank(t)
	if _, ok := (View{}).Available("acme", b.w.Now); ok {
		t.Error("no accounts have one")
	}
	a, _ := b.set("acme", Settings{})
	empty := b.View()
	b.moved(a, Move{Amount: 5})
	today := b.View()
	b.moved(a, Move{Amount: 5})
	if empty == today || today != b.View() {
		t.Error("the view is another one where nothing has come, or the same where a day has")
	}
	if n, ok := empty.Available("acme", b.w.Now); n != 10 || !ok {
		t.Errorf("%d are available, %v", n, ok)
	}
	b.cut()
	b.advance((keep + 1) * 24 * time.Hour)
	b.cut()
	if at, ok := b.DropAt(keep); ok || b.View() == today {
		t.Errorf("a day is left, it is dropped at %d", at)
	}
	if days, err := ledger.Recorded(b.store); err != nil || !days.Empty() {
		t.Errorf("the ledger has %+v, %v", days, err)
	}
}

func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, broken := range map[string]func(b *bank, a *Account){
		"28 not found":    func(b *bank, _ *Account) { b.byName.Remove("acme") },
		"28 not listed":   func(b *bank, a *Account) { b.list.Remove(a.seq) },
		"28 gone":         func(_ *bank, a *Account) { a.gone = true },
		"28 not written":  func(b *bank, _ *Account) { b.dirty = nil },
		"28 no calendar":  func(_ *bank, a *Account) { a.calendar.Store(nil) },
		"28 no refill":    func(_ *bank, a *Account) { a.sums.Refill.Amount = 0 },
		"28 a late entry": func(b *bank, a *Account) { a.lastAt = b.w.Now + int64(24*time.Hour) },
		"29 returned twice": func(_ *bank, a *Account) {
			a.sums.Return(5)
		},
		"29 not reserved": func(_ *bank, a *Account) { a.sums.Reserved = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			a, _ := b.set("acme", Settings{Refill: refill(t)})
			a.Reserve(5)
			found := 0
			bad := func(no int, _ string, _ ...any) {
				if strings.HasPrefix(name, fmt.Sprint(no)) {
					found++
				}
			}
			if b.Check(map[string]int64{"acme": 5}, func(no int, format string, args ...any) { t.Errorf("%d: "+format, append([]any{no}, args...)...) }); t.Failed() {
				return
			}
			broken(b, a)
			if b.Check(map[string]int64{"acme": 5}, bad); found == 0 {
				t.Error("nothing was found")
			}
		})
	}
}

// TestAMillionAccountsTakeAtMost256BytesEach measures 200,000 of them, in fewer blocks of memory.
func TestAMillionAccountsTakeAtMost256BytesEach(t *testing.T) {
	testkit.AtLength(t)
	const accounts = 200_000
	var s Accounts
	s.Reset()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range accounts {
		s.add(&Account{name: fmt.Sprintf("budget-%025d", i), made: uint64(i)})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := float64(after.HeapAlloc-before.HeapAlloc) / accounts; each > 256 || each < 100 {
		t.Errorf("%.0f bytes each", each)
	}
	runtime.KeepAlive(&s)
}

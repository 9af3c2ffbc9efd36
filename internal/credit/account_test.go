package credit

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/internal/schedule"
)

// naive is an account that is refilled at every tick, one at a time.
type naive struct {
	credited, spent int64
	amount, most    int64
	next            int64
}

func (n *naive) tick() {
	n.credited += min(n.amount, max(0, n.most-(n.credited-n.spent)))
}

func (n *naive) catchUp(now int64, s *schedule.Schedule) (ticks int) {
	for n.next != 0 && n.next <= now {
		n.tick()
		n.next = s.After(n.next, n.next)
		ticks++
	}
	return ticks
}

func expressions() []string {
	return []string{
		"@monthly", "@daily", "@hourly", "0 0 * * *", "*/15 * * * *", "30 2 * * *", "0 */6 * * *", "0 0 L * *", "0 9 * * MON-FRI", "@every 90m", "@every 24h", "0,30 2,3 * * SUN",
	}
}

// clock is a time that goes on by seconds to weeks, and is set back now and then.
func clock(r *rand.Rand, now int64) int64 {
	switch r.IntN(8) {
	case 0:
		return now - r.Int64N(int64(48*time.Hour))
	case 1:
		return now + r.Int64N(int64(8*24*time.Hour)) // the broker was down
	case 2:
		return now + r.Int64N(int64(40*24*time.Hour))
	default:
		return now + r.Int64N(int64(5*time.Hour))
	}
}

// TestRefillsAreThoseOfEveryTick compares 10,000 accounts, 500 in a short run, with naive ones, across changes of
// the clock of their zones, clocks that are set back, and weeks without a look.
func TestRefillsAreThoseOfEveryTick(t *testing.T) {
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"}
	start := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).UnixNano()
	r := rand.New(rand.NewPCG(17, 1))
	ticked, filled, back := 0, 0, 0
	accounts := 10_000
	if testing.Short() {
		accounts = 500
	}
	for seed := range accounts {
		expression, zone := expressions()[r.IntN(len(expressions()))], zones[r.IntN(len(zones))]
		s, err := schedule.Parse(expression, zone)
		if err != nil {
			t.Fatal(err)
		}
		amount := 1 + r.Int64N(1000)
		most := amount
		switch r.IntN(3) {
		case 0:
			most = 1 + r.Int64N(5*amount)
		case 1:
			most = Max
		}
		now := start + r.Int64N(int64(220*24*time.Hour))
		a := Account{Refill: Refill{Amount: amount, Max: most}, NextAt: s.First(now), Debt: r.Int64N(500)}
		n := naive{amount: amount, most: most, next: a.NextAt}
		for step := range 8 {
			then := clock(r, now)
			if then < now {
				back++
			}
			now = then
			added, before := a.CatchUp(now, s), n.credited
			ticked += n.catchUp(now, s)
			if added > 0 {
				filled++
			}
			if added != n.credited-before || a.NextAt != n.next {
				t.Fatalf("account %d (%s in %q), step %d at %v: added %d, next %d; want %d, %d",
					seed, expression, zone, step, time.Unix(0, now).UTC(), added, a.NextAt, n.credited-before, n.next)
			}
			take := 1 + r.Int64N(2*amount)
			if err := a.Charge(take, r.IntN(3) == 0); err == nil {
				n.spent += take
			}
			if a.Credited != n.credited || a.Spent != n.spent {
				t.Fatalf("account %d: sums %d %d, want %d %d", seed, a.Credited, a.Spent, n.credited, n.spent)
			}
		}
	}
	if ticked < 10*accounts || filled < accounts || back < accounts*4/10 {
		t.Errorf("only %d ticks, %d refills and %d clocks set back", ticked, filled, back)
	}
}

// walked counts the calls of a calendar.
type walked struct {
	*schedule.Schedule
	counts, limit int
}

func (w *walked) Count(tick, before int64, limit int) int {
	w.counts++
	w.limit = limit
	return w.Schedule.Count(tick, before, limit)
}

func TestACatchUpCountsNoMoreTicksThanTheAccountLacks(t *testing.T) {
	s, err := schedule.Parse("* * * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	w := &walked{Schedule: s}
	a := Account{Refill: Refill{Amount: 10, Max: 35}, NextAt: s.First(0)}
	week := int64(7 * 24 * time.Hour)
	if added := a.CatchUp(week, w); added != 35 || w.limit != 4 {
		t.Errorf("added %d after %d ticks at most, want 35 after 4", added, w.limit)
	}
	if added := a.CatchUp(2*week, w); added != 0 || w.counts != 1 || a.NextAt != 2*week+int64(time.Second) {
		t.Errorf("a full account: added %d, counted %d times, next %d", added, w.counts, a.NextAt)
	}
}

func TestAmountsAtTheirBounds(t *testing.T) {
	a := Account{}
	steps := []struct {
		do   func() error
		want error
	}{
		{func() error { return a.Credit(Max) }, nil},
		{func() error { return a.Credit(1) }, ErrBounds},
		{func() error { return a.Charge(Max, false) }, nil},
		{func() error { return a.Charge(1, false) }, ErrNotCovered},
		{func() error { return a.Charge(Max, true) }, nil},
		{func() error { return a.Charge(1, true) }, ErrBounds},
		{func() error { return a.Credit(Max) }, nil},
	}
	for i, s := range steps {
		before := a
		err := s.do()
		if !errors.Is(err, s.want) {
			t.Errorf("step %d: %v, want %v", i, err, s.want)
		}
		if err != nil && a != before {
			t.Errorf("step %d was refused and changed %+v to %+v", i, before, a)
		}
	}
	if a.Balance() != 0 || a.Available() != 0 {
		t.Errorf("balance %d, available %d", a.Balance(), a.Available())
	}
	full := Account{Credited: math.MaxInt64 - 1, Spent: math.MaxInt64 - 1, Refill: Refill{Amount: 10, Max: 10}}
	if err := full.Credit(2); !errors.Is(err, ErrBounds) {
		t.Errorf("a sum above 64 bits: %v", err)
	}
	if err := full.Charge(2, true); !errors.Is(err, ErrBounds) {
		t.Errorf("a sum above 64 bits: %v", err)
	}
	if added := full.Fill(); added != 1 {
		t.Errorf("a refill above 64 bits added %d", added)
	}
}

func TestCoveredIsWhatIsAvailableAndTheDebt(t *testing.T) {
	a := Account{Credited: 10, Reserved: 4, Debt: 5}
	if a.Available() != 6 || !a.Covers(11) || a.Covers(12) {
		t.Errorf("available %d, covers 11: %v, covers 12: %v", a.Available(), a.Covers(11), a.Covers(12))
	}
	a.Spent = 100
	if a.Covers(1) || !a.Covers(0) {
		t.Error("in debt, a charge of 0 alone is covered")
	}
}

func TestADebtIsPaidFromTheRefill(t *testing.T) {
	a := Account{Spent: 30, Refill: Refill{Amount: 100, Max: 100}}
	if added := a.Fill(); added != 100 || a.Balance() != 70 {
		t.Errorf("added %d, balance %d", added, a.Balance())
	}
	if added := a.Fill(); added != 30 || a.Balance() != 100 {
		t.Errorf("added %d, balance %d", added, a.Balance())
	}
}

// TestWhatIsAvailableIsThatOfTheRefilledAccount compares what others see, who change nothing, with
// an account that has been refilled.
func TestWhatIsAvailableIsThatOfTheRefilledAccount(t *testing.T) {
	start := time.Date(2026, 3, 20, 0, 0, 0, 0, time.UTC).UnixNano()
	r := rand.New(rand.NewPCG(17, 2))
	refilled := 0
	for i := range 2000 {
		s, err := schedule.Parse(expressions()[r.IntN(len(expressions()))], "Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		a := Account{Credited: r.Int64N(1000), Spent: r.Int64N(2000), Reserved: r.Int64N(100)}
		a.SetRefill(Refill{Amount: 1 + r.Int64N(500), Max: 1 + r.Int64N(5000)}, s.First(start))
		now := start + r.Int64N(int64(60*24*time.Hour))
		before := a
		got, alone := a.AvailableAt(now, s), a.AvailableAt(now, nil)
		if a != before || alone != a.Available() {
			t.Fatalf("account %d: a look has changed %+v to %+v, or sees %d without ticks", i, before, a, alone)
		}
		if a.CatchUp(now, s) > 0 {
			refilled++
		}
		if got != a.Available() {
			t.Fatalf("account %d: %d is seen to be available, %d is", i, got, a.Available())
		}
	}
	if refilled < 500 {
		t.Errorf("only %d accounts had a refill", refilled)
	}
}

// Others never see a settlement whose charge is returned and whose use is not yet spent, nor count
// a tick that the account has caught up with.
func TestOthersSeeAnAccountBetweenTwoChanges(t *testing.T) {
	const changes, minute = 50_000, int64(time.Minute)
	s, err := schedule.Parse("* * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	a := Account{Credited: 1000}
	a.SetRefill(Refill{Amount: 5, Max: Max}, minute)
	a.Reserve(100)
	var reader sync.WaitGroup
	var now atomic.Int64
	now.Store(minute)
	done := make(chan struct{})
	reader.Go(func() {
		for looks := 0; ; looks++ {
			select {
			case <-done:
				if looks == 0 {
					t.Error("nothing was looked at")
				}
				return
			default:
				if n := a.AvailableAt(now.Load(), s); n != 905 && n != 1000 && n != 900 {
					t.Errorf("%d is seen to be available", n)
					return
				}
			}
		}
	})
	for range changes {
		a.CatchUp(now.Load(), s) // 905 are available, as before
		a.Settle(100, 5)         // 1000
		a.Reserve(100)           // 900
		now.Add(minute)          // 905
	}
	close(done)
	reader.Wait()
	if a.Balance() != 1000 || a.Reserved != 100 {
		t.Errorf("%+v", a)
	}
}

func TestALookWaitsForTheEndOfAChange(t *testing.T) {
	s, err := schedule.Parse("* * * * *", "")
	if err != nil {
		t.Fatal(err)
	}
	a := Account{Credited: 1000}
	for _, x := range []struct {
		name   string
		change func()
	}{
		{"a refill", func() { a.SetRefill(Refill{Amount: 5, Max: Max}, int64(time.Minute)) }},
		{"a tick", func() { a.CatchUp(a.NextAt, s) }},
		{"a settlement", func() { a.Settle(0, 1) }},
	} {
		before := a.version
		if x.change(); a.version != before+2 {
			t.Errorf("%s is not one change for others", x.name)
		}
	}
	balance := a.Balance()
	a.begin()
	add(&a.Reserved, 100)
	started, seen := make(chan struct{}), make(chan int64)
	go func() {
		close(started)
		seen <- a.AvailableAt(0, nil)
	}()
	<-started
	for range 1000 {
		runtime.Gosched()
	}
	add(&a.Reserved, -40)
	a.end()
	if n := <-seen; n != balance-60 {
		t.Errorf("%d is seen to be available, want %d", n, balance-60)
	}
}

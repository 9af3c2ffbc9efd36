package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// A clock that was ahead, and is right again after the broker was killed.
func TestAClockThatIsBackAtAStartMakesNothingLonger(t *testing.T) {
	for _, keep := range []bool{false, true} {
		store := storage.NewMemory()
		change := func(c *Config) { c.KeepTime = keep }
		w := openWorld(t, store, time.Unix(1_700_003_600, 0), change)
		w.queue("q", QueueOptions{})
		w.enqueue("q", "k", "leased")
		if ds := w.lease("q", 1); len(ds) != 1 {
			t.Fatalf("%d deliveries", len(ds))
		}
		w.put(&Enqueue{Queue: "q", Delay: 10 * time.Second})
		w.put(&Enqueue{Queue: "q", TTL: 20 * time.Second})
		w.Advance(time.Second)
		back := openWorld(t, store.Clone(), time.Unix(1_700_000_000, 0), change)
		if got := back.core.calendar(); got > time.Unix(1_700_000_000, 0).UnixNano() {
			t.Errorf("the calendar is at %v", unix(got))
		}
		back.Advance(11 * time.Second)
		if n := back.counts("q"); n.Delayed != 0 {
			t.Errorf("KeepTime %v: after 12 s a delay of 10 s lasts", keep)
		}
		back.Advance(20 * time.Second)
		if n := back.counts("q"); n.Leased != 0 || n.Expired != 1 {
			t.Errorf("KeepTime %v: after 32 s there are %d leases of 30 s, and %d of 1 messages have expired after 20 s", keep, n.Leased, n.Expired)
		}
	}
}

func (w *world) put(req *Enqueue) {
	w.t.Helper()
	if err := w.Prepare(req); err != nil {
		w.t.Fatal(err)
	}
	w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
}

// With nothing else to do, the broker writes the time as often as what is running asks for.
func TestTheTimeIsWrittenWhileSomethingIsRunning(t *testing.T) {
	for _, c := range []struct {
		delay  time.Duration
		writes uint64 // while it is delayed, at most
		longer time.Duration
	}{
		{30 * time.Second, 31, time.Second},
		{7 * 24 * time.Hour, 700, 3 * time.Hour},
	} {
		store := storage.NewMemory()
		w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
		w.queue("q", QueueOptions{})
		w.Advance(time.Hour)
		idle := w.core.out.committed
		w.Advance(time.Hour)
		if n := w.core.out.committed - idle; n != 0 {
			t.Errorf("%d writes of an idle broker", n)
		}
		end := w.Now().Add(c.delay)
		w.put(&Enqueue{Queue: "q", Delay: c.delay})
		idle = w.core.out.committed
		w.Advance(c.delay / 2)
		back := openWorld(t, store.Clone(), time.Unix(1_600_000_000, 0), nil)
		if lost := w.Now().Sub(back.Now()); lost > c.longer {
			t.Errorf("after half of %v the store lacks %v", c.delay, lost)
		}
		w.Advance(end.Sub(w.Now()) - 1)
		if n := w.core.out.committed - idle; n == 0 || n > c.writes {
			t.Errorf("%d writes in %v", n, c.delay)
		}
	}
}

// The calendar goes by the system clock, also where that was set back while the broker ran.
func TestTheCalendarWaitsForAClockThatWasSetBack(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.cron(minutely(CatchUpAll))
	r, err := NewRefill(10, "* * * * *", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { return tx.SetBudget("b", &BudgetOptions{Refill: r}) })
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 40)
	w.core.time.SetBehind(time.Hour)
	w.Advance(time.Hour)
	wantTicks(t, w.drained("q"))
	w.put(&Enqueue{Queue: "q", At: w.Now().Add(-30 * time.Minute).UnixNano()}) // in half an hour, by the system clock
	if n := w.counts("q"); n.Delayed != 1 {
		t.Error("a message for a time of day is ready before it")
	}
	w.Advance(time.Minute)
	wantTicks(t, w.drained("q"), 100)
	w.core.time.SetBehind(0)
}

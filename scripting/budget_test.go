package scripting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// In a bubble time advances only with sleeps, which makes the clock adjustable.
func TestThePausesOfTheMachineAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig() // 10 ms
		within := cfg.bounds(hook.Bounds{})
		b := newBudget()
		run := func(pauses ...time.Duration) bool {
			b.reset(&within)
			for _, p := range pauses {
				time.Sleep(p)
				for range strideMax {
					if b.Done() != nil {
						return false
					}
				}
			}
			return true
		}
		const ms = time.Millisecond
		if !run(14 * ms) {
			t.Error("one pause of less than half the limit more was held against the script")
		}
		if run(16 * ms) {
			t.Error("a pause of more than that was forgiven")
		}
		if run(7*ms, 7*ms, 7*ms) {
			t.Error("pauses were forgiven without an end")
		}
		small := make([]time.Duration, 30)
		for i := range small {
			small[i] = ms / 2
		}
		if run(small...) {
			t.Error("what is no pause was forgiven")
		}
		b.reset(&within)
		b.noteLongString()
		time.Sleep(11 * ms)
		if b.Done() == nil {
			t.Error("with long strings an instruction of 11 ms was forgiven")
		}
	})
}

// A script in a slot yields every few microseconds; if that takes long, it then runs as
// long undisturbed. The time away is not charged to the script, up to a limit.
func TestAScriptInASlotYields(t *testing.T) {
	const us = time.Microsecond
	cfg := DefaultConfig() // 10 ms
	for _, c := range []struct {
		name        string
		slots       bool
		away        time.Duration // each time
		ran         time.Duration // when it was stopped
		times, most int
	}{
		{name: "without competition", slots: true, ran: 10_000 * us, times: 480, most: 498},
		{name: "light competition", slots: true, away: 20 * us, ran: 7500 * us, times: 365, most: 380},
		{name: "heavy competition", slots: true, away: 1000 * us, ran: 7050 * us, times: 7, most: 8},
		{name: "without slots", ran: 10_000 * us},
	} {
		synctest.Test(t, func(t *testing.T) {
			within := cfg.bounds(hook.Bounds{})
			b := newBudget()
			b.reset(&within)
			var times int
			if c.slots {
				b.slots = make(slots, 1)
				b.slots <- &slot{yield: func() {
					times++
					time.Sleep(c.away)
				}}
			}
			b.restart(1 << 40)
			start := time.Now()
			var ran time.Duration
			for b.Done() == nil {
				if b.left == 1 { // the stride's last instruction
					time.Sleep(us)
					ran += us
				}
			}
			if times < c.times || times > c.most {
				t.Errorf("%s: it gave way %d times, want %d to %d", c.name, times, c.times, c.most)
			}
			if ran < c.ran-10*us || ran > cfg.Timeout+2*us {
				t.Errorf("%s: it was stopped when it had run %v, want %v", c.name, ran, c.ran)
			}
			if took := time.Since(start); took > cfg.Timeout*3/2+c.away+2*us {
				t.Errorf("%s: it was stopped after %v", c.name, took)
			}
			b.releaseSlot()
		})
	}
}

func TestTheInstructionsAreCounted(t *testing.T) {
	cfg := DefaultConfig()
	within := cfg.bounds(hook.Bounds{})
	b := newBudget()
	b.reset(&within)
	for _, most := range []int64{64, 65, 127, 128, 1000, 10_000} {
		b.restart(most)
		var n int64
		for b.Done() == nil {
			if got := b.used(); got != n+1 {
				t.Fatalf("%d used after %d", got, n+1)
			}
			n++
		}
		if n < most-1 || n > most {
			t.Errorf("%d instructions of %d", n, most)
		}
		if b.Err() != errInstructions || b.Done() == nil { //nolint:errorlint // it is that very value
			t.Errorf("%v", b.Err())
		}
	}
}

package scripting

import (
	"testing"
	"testing/synctest"
	"time"
)

// In a bubble time stands still unless somebody sleeps, which makes a clock to
// be wound by hand.
func TestThePausesOfTheMachineAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig() // 10 ms
		b := newBudget(&cfg)
		run := func(pauses ...time.Duration) bool {
			b.reset(cfg.instructions())
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
		b.reset(cfg.instructions())
		b.long()
		time.Sleep(11 * ms)
		if b.Done() == nil {
			t.Error("with long strings an instruction of 11 ms was forgiven")
		}
	})
}

func TestTheInstructionsAreCounted(t *testing.T) {
	cfg := DefaultConfig()
	b := newBudget(&cfg)
	for _, most := range []int64{64, 65, 127, 128, 1000, 10_000} {
		b.reset(most)
		var n int64
		for b.Done() == nil {
			if got := b.used(most); got != n+1 {
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

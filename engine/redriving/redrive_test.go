package redriving

import (
	"errors"
	"testing"
	"time"

	"github.com/faisca/fila/engine/internal/refusals"
)

func TestAPageHasWhatTheRateAndTheCountAllow(t *testing.T) {
	for name, c := range map[string]struct {
		plan       State
		most, look int
	}{
		"all":               {New(0, 0, false, 100), pageMost, pageMost},
		"a count":           {New(7, 0, false, 100), 7, 7},
		"a filter":          {New(0, 0, true, 100), pageMost, LooksMax},
		"a rate":            {New(0, 10, false, 100), 1, 1},
		"a rate and filter": {New(0, 10, true, 100), 1, LooksMax},
	} {
		if most, look, due := c.plan.Page(100); most != c.most || look != c.look || !due {
			t.Errorf("%s: %d messages of %d, due %v", name, most, look, due)
		}
		if _, _, due := c.plan.Page(99); due {
			t.Errorf("%s: due before its time", name)
		}
	}
	p := New(7, 0, false, 100)
	p.Done = 4
	if most, _, _ := p.Page(100); most != 3 || !p.More([]byte("k")) || p.More(nil) {
		t.Errorf("%d of 7 messages are left after 4", most)
	}
	if p.Done = 7; p.More([]byte("k")) {
		t.Error("there is more after all were moved")
	}
	for rate, ok := range map[int]bool{-1: false, 0: true, rateMax: true, rateMax + 1: false} {
		if err := CheckRate(rate); (err == nil) != ok || err != nil && !errors.Is(err, refusals.ErrInvalid) {
			t.Errorf("rate %d: %v", rate, err)
		}
	}
}

// In no second are more messages moved than the rate, also where the redrive is late time and again.
func TestARateHoldsInAnySecond(t *testing.T) {
	const second = int64(time.Second)
	for _, rate := range []int{1, 9, 1000, rateMax} {
		p := New(0, rate, false, second)
		var moved []int64
		for now := second; now < 5*second && len(moved) < 3*rate+10; now += second / 7 {
			for {
				most, _, due := p.Page(now)
				if !due {
					break
				}
				p.Begin(now, most)
				for ; most > 0 && p.Allows(now); most-- {
					p.Moved()
					moved = append(moved, now)
				}
			}
		}
		for i := range moved {
			if j := i + rate; j < len(moved) && moved[j]-moved[i] < second {
				t.Fatalf("rate %d: %d messages within %d ms", rate, rate+1, (moved[j]-moved[i])/int64(time.Millisecond))
			}
		}
		if len(moved) == 0 || p.Looked < len(moved) || p.Info().Moved != int64(len(moved)) {
			t.Errorf("rate %d: %d messages are moved, %d looked at", rate, len(moved), p.Looked)
		}
	}
}

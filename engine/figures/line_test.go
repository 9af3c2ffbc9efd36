package figures

import (
	"math/rand/v2"
	"testing"
	"time"
)

// happen changes numbers at random, as queues may: events only grow, also beyond 32 bits.
func (n *Numbers) happen(rng *rand.Rand) {
	for _, events := range []*uint64{&n.Enqueued, &n.Delivered, &n.Acked, &n.Nacked, &n.Expired} {
		if rng.IntN(2) == 0 {
			*events += rng.Uint64N(1 << 26) // below 2^32 in ten minutes
		}
	}
	for _, messages := range []*int64{&n.Ready, &n.Delayed, &n.Leased, &n.Dead} {
		if rng.IntN(4) == 0 {
			*messages = rng.Int64N(1 << 32)
		}
	}
}

// A line has the same numbers as one that stores every step, for as far back as it goes, although it
// is not set at steps without changes before them; and never more points than steps and one.
func TestALineHasWhatWasSet(t *testing.T) {
	large := false
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // reproducible on purpose
		var l line
		var now Numbers
		all := map[uint32]Numbers{}
		const begun = 1_000_000
		step, from := uint32(begun), uint32(begun)
		for range 400 {
			for range rng.IntN(4) * rng.IntN(40) { // nothing happens, and nothing looks
				all[step] = now
				step++
			}
			all[step] = now
			l.set(from, now)
			if len(l.points) > Steps+1 {
				t.Fatalf("seed %d: %d points", seed, len(l.points))
			}
			for back := range uint32(Steps) {
				if at := step - back; at >= begun && l.at(at, now) != all[at] {
					t.Fatalf("seed %d: %d steps back %v, want %v", seed, back, l.at(at, now), all[at])
				}
			}
			step++
			from = step
			if rng.IntN(3) > 0 {
				now.happen(rng)
			}
			large = large || now.Enqueued > 1<<32
		}
	}
	if !large {
		t.Error("no counter went beyond 32 bits")
	}
}

func TestALineThatDoesNotChangeTakesNoMemory(t *testing.T) {
	var l line
	for step := range uint32(10 * Steps) {
		l.set(step, Numbers{})
	}
	if l.points != nil {
		t.Errorf("%d points of nothing", len(l.points))
	}
	n := Numbers{Flow: Flow{Acked: 1}}
	for step := range uint32(3 * Steps) {
		n.Acked++
		l.set(step, n)
	}
	if len(l.points) < Steps || len(l.points) > Steps+1 {
		t.Errorf("%d points of %d steps", len(l.points), Steps)
	}
	for step := uint32(3 * Steps); step < 5*Steps; step++ {
		l.set(step, n)
	}
	if len(l.points) != 1 || cap(l.points) != 1 || l.at(4*Steps, n) != n {
		t.Errorf("%d points, room for %d, %v", len(l.points), cap(l.points), l.at(4*Steps, n))
	}
}

func TestMoreMessagesThanFitAreTheMostThatDo(t *testing.T) {
	var l line
	n := Numbers{ByStatus: ByStatus{Ready: 1 << 40, Delayed: -1, Leased: 1<<32 - 1}}
	l.set(1, n)
	if got, want := l.at(1, n), (Numbers{ByStatus: ByStatus{Ready: 1<<32 - 1, Leased: 1<<32 - 1}}); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestStepsBeginAtTheirLength(t *testing.T) {
	at := time.Date(2026, 1, 31, 14, 0, 9, 999, time.UTC)
	if got := time.Unix(0, beginOf(StepAt(at.UnixNano()))).UTC(); !got.Equal(time.Date(2026, 1, 31, 14, 0, 0, 0, time.UTC)) {
		t.Errorf("%v is in the step of %v", at, got)
	}
	if Steps*Length != 10*time.Minute {
		t.Errorf("a line goes back %v", Steps*Length)
	}
}

package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/internal/proc"
)

// This file repeatedly fills and drains a queue with keys that never occurred before, one per
// message, and reports whether memory grows from round to round.

func prepareChurn(flags *flag.FlagSet, c *common) func(context.Context) error {
	t := newTrial(flags, c)
	flags.DurationVar(&t.churn, "t", 10*time.Minute, "`duration` of the run")
	flags.BoolVar(&t.target, "target", false, "fail if later rounds use more than 1.3 times the memory of the first")
	return func(ctx context.Context) error {
		say("%d messages of %d bytes per round, each with its own key, storage.sync=%s", t.n, t.size, t.sync)
		return t.run(ctx, t.rounds)
	}
}

// growthMax is the maximum memory of a later round relative to the first.
const growthMax = 1.3

// round is the broker's resident memory in a round: its peak, and its value at the end.
type round struct{ peak, end int64 }

// rounds fills and drains the queue until the time is over, and compares the memory of the rounds
// with that of the first.
func (t *trial) rounds(ctx context.Context) error {
	w, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	var all []round
	for begun := time.Now(); len(all) < 2 || time.Since(begun) < t.churn; t.before += t.n {
		r, err := t.round(ctx)
		if err != nil {
			return err
		}
		all = append(all, r)
		if err := t.counted(ctx, w, 0); err != nil {
			return err
		}
		note(fmt.Sprintf("round %d, %s", len(all), time.Since(begun).Round(time.Second)), "peak %d MB resident, %d MB at the end", r.peak>>20, r.end>>20)
	}
	var peaks, ends []int64
	for _, r := range all {
		peaks, ends = append(peaks, r.peak), append(ends, r.end)
	}
	t.growth("at its peak", peaks)
	t.growth("after a round", ends)
	return nil
}

// round fills the queue with new keys and drains it.
func (t *trial) round(ctx context.Context) (round, error) {
	filled, err := t.inParallel(ctx, "enqueued", t.n, t.enqueue)
	if err != nil {
		return round{}, err
	}
	drained, err := t.inParallel(ctx, "drained", t.n, t.drainPart)
	if err != nil {
		return round{}, err
	}
	u, err := proc.UseOf(t.PID())
	return round{peak: max(filled, drained, u.Resident), end: u.Resident}, err
}

// growth compares the memory of the later half of the rounds with the first round. It uses their
// median, since the memory of a single round depends on the timing of garbage collection.
func (t *trial) growth(when string, rounds []int64) {
	later := slices.Sorted(slices.Values(rounds[len(rounds)/2:]))
	ratio := func(bytes int64) float64 { return float64(bytes) / float64(max(rounds[0], 1)) }
	usual, worst := ratio(later[len(later)/2]), ratio(later[len(later)-1])
	note("resident "+when, "%d MB in the first round; %.2f times as much later, %.2f at worst", rounds[0]>>20, usual, worst)
	if usual > growthMax {
		t.breaches = append(t.breaches, fmt.Sprintf("resident memory %s: %.2f times that of the first round", when, usual))
	}
}

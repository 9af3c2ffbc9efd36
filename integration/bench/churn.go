package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/internal/proc"
)

// This file fills and drains a queue again and again, each message with a key of its own that was
// never there before, and reports whether memory grows from round to round.

func prepareChurn(flags *flag.FlagSet, c *common) func(context.Context) error {
	t := newTrial(flags, c)
	flags.DurationVar(&t.churn, "t", 10*time.Minute, "how `long` it fills and drains")
	flags.BoolVar(&t.target, "target", false, "fail when a later round takes more than 1.3 times the memory of the first")
	return func(ctx context.Context) error {
		say("%d messages of %d bytes a round, each with a key of its own, storage.sync=%s", t.n, t.size, t.sync)
		return t.run(ctx, t.rounds)
	}
}

// growthMax is how many times the memory of the first round a later one may take.
const growthMax = 1.3

// round is what the broker had resident in a round: at the most, and when it was over.
type round struct{ peak, end int64 }

// rounds fills and drains the queue until the time is over, and compares the memory of
// each round with that of the first one.
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
		note(fmt.Sprintf("round %d, %s", len(all), time.Since(begun).Round(time.Second)), "%d MB resident at the most, %d MB in the end", r.peak>>20, r.end>>20)
	}
	var peaks, ends []int64
	for _, r := range all {
		peaks, ends = append(peaks, r.peak), append(ends, r.end)
	}
	t.growth("at the most", peaks)
	t.growth("after a round", ends)
	return nil
}

// round fills the queue with keys that were never there, and drains it.
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

// growth compares the memory of the later half of the rounds with that of the first one.
// What a single round takes depends on when the garbage collector has run: so it is the
// median of them that counts.
func (t *trial) growth(when string, rounds []int64) {
	later := slices.Sorted(slices.Values(rounds[len(rounds)/2:]))
	ratio := func(bytes int64) float64 { return float64(bytes) / float64(max(rounds[0], 1)) }
	usual, worst := ratio(later[len(later)/2]), ratio(later[len(later)-1])
	note("resident "+when, "%d MB in the first round; later %.2f times that, %.2f in the worst", rounds[0]>>20, usual, worst)
	if usual > growthMax {
		t.breaches = append(t.breaches, fmt.Sprintf("resident memory %s: %.2f times that of the first round", when, usual))
	}
}

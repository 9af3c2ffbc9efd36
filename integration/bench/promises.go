package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// This file measures what Fila promises of its own speed, beside itself: the cycle with a hook, with
// very many fairness keys and with a large backlog, each in turns with the same work without; how
// long a message takes to a consumer that waits; and whether the rate holds for minutes and without
// pauses.

// pledge is what the flags of the benchmark say.
type pledge struct {
	*common

	only    string
	hook    string
	rounds  int
	time    time.Duration
	long    time.Duration
	backlog int64
	keys    int
}

func preparePromises(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &pledge{common: c}
	flags.StringVar(&o.only, "only", "hook,keys,backlog,wait", "`promises` to measure, separated by commas; long is one more")
	flags.StringVar(&o.hook, "hook", "integration/testdata/tenants.lua", "`file` with the on_enqueue hook")
	flags.IntVar(&o.rounds, "rounds", 5, "how `often` each side is measured")
	flags.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flags.DurationVar(&o.long, "long", 10*time.Minute, "`duration` of long")
	flags.Int64Var(&o.backlog, "backlog", 10_000_000, "`messages` of the large backlog")
	flags.IntVar(&o.keys, "keys", 1_000_000, "`keys` when there are very many")
	return o.run
}

// promise is one that can be measured.
type promise struct {
	name    string
	measure func(context.Context) error
}

func (o *pledge) promises() []promise {
	return []promise{
		{"hook", o.measureHook}, {"keys", o.measureKeys}, {"backlog", o.measureBacklog}, {"wait", o.measureWait}, {"long", o.measureLong},
	}
}

func (o *pledge) run(ctx context.Context) error {
	all := o.promises()
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(all, func(p promise) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("no promise is named %q", name)
		}
		if err := all[i].measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// cycleOf is the cycle with messages of 256 bytes. Most is measured with 64 connections and 16
// messages at once.
func cycleOf(conns, pipeline int, length time.Duration, keys int) bench.Options {
	return bench.Options{
		Workload: bench.Cycle, Conns: conns, Pipeline: pipeline, Duration: length, Warmup: time.Second, Rounds: 1,
		Shape: bench.Shape{Payload: 256, Keys: keys},
	}
}

func (o *pledge) cycle(keys int) bench.Options { return cycleOf(64, 16, o.time, keys) }

// compare measures two sides in turns and prints the ratio of the second to the first.
func (o *pledge) compare(ctx context.Context, promised float64, names [2]string, loads [2]bench.Options) error {
	var sides []*side
	defer func() { endAll(sides) }()
	for i, name := range names {
		s, err := o.preparedSide(ctx, o.bin, name, loads[i])
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	if err := inTurns(o.rounds, sides, func(s *side) error { return s.round(ctx) }); err != nil {
		return err
	}
	base, other := sides[0].report(), sides[1].report()
	ratio := other.Rate / base.Rate
	say("%s: %.2f of the rate, promised at least %.2f: %s\n", names[1], ratio, promised, kept(ratio >= promised))
	return nil
}

func (o *pledge) measureHook(ctx context.Context) error {
	source, err := os.ReadFile(o.hook)
	if err != nil {
		return err
	}
	plain, hooked := o.cycle(100), o.cycle(100)
	hooked.Shape.Hook = string(source)
	return o.compare(ctx, 0.85, [2]string{"keys given", "with " + filepath.Base(o.hook)}, [2]bench.Options{plain, hooked})
}

func (o *pledge) measureKeys(ctx context.Context) error {
	return o.compare(ctx, 0.9, [2]string{"10 keys", fmt.Sprintf("%d keys", o.keys)}, [2]bench.Options{o.cycle(10), o.cycle(o.keys)})
}

func (o *pledge) measureBacklog(ctx context.Context) error {
	empty, full := o.cycle(100), o.cycle(100)
	full.Backlog = o.backlog
	return o.compare(ctx, 0.9, [2]string{"nothing stored", fmt.Sprintf("%d messages stored", o.backlog)}, [2]bench.Options{empty, full})
}

// measureWait measures one message at a time, and batches.
func (o *pledge) measureWait(ctx context.Context) error {
	for _, pipeline := range []int{1, 16} {
		if err := o.measureWaitWith(ctx, pipeline); err != nil {
			return err
		}
	}
	return nil
}

func (o *pledge) measureWaitWith(ctx context.Context, pipeline int) error {
	s, err := o.preparedSide(ctx, o.bin, "wait", bench.Options{
		Workload: bench.Wait, Conns: 16, Pipeline: pipeline, Rate: bench.Rate{Share: 0.5}, Duration: o.time, Warmup: time.Second, Rounds: 1,
		Shape: bench.Shape{Payload: 256, Keys: 100},
	})
	if err != nil {
		return err
	}
	defer s.end()
	if err := inTurns(o.rounds, []*side{s}, func(s *side) error { return s.round(ctx) }); err != nil {
		return err
	}
	m := s.median()
	l := m.Latency["deliver"]
	say("to a waiting consumer, 16 producers × %d and 16 consumers, %.0f/s (half of the most): p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.1f ms; "+
		"promised below 0.5 and 2: %s\n", pipeline, m.Asked, l.P50, l.P99, l.P999, l.Max, kept(l.P50 < 0.5 && l.P99 < 2))
	return nil
}

// measureLong measures whether the rate holds.
func (o *pledge) measureLong(ctx context.Context) error {
	load := o.cycle(100)
	load.Rate, load.Duration = bench.Rate{Share: 0.7}, o.long
	s, err := o.preparedSide(ctx, o.bin, "long", load)
	if err != nil {
		return err
	}
	defer s.end()
	r, err := s.load.Round(ctx, "long")
	if err != nil {
		return err
	}
	minute := min(60, len(r.PerSecond))
	first, last := mean(r.PerSecond[:minute]), mean(r.PerSecond[len(r.PerSecond)-minute:])
	l := r.Latency["cycle"]
	say("%s at %.0f/s (70 %% of the most): %.0f/s in the first minute, %.0f/s in the last, %d messages unsent; cycle p50 %.1f, p99 %.1f, max %.1f ms; "+
		"the longest time without any reply %.1f ms; %.1f µs of CPU a message, %d MiB",
		o.long, r.Asked, first, last, r.Unsent, l.P50, l.P99, l.Max, r.Pause, r.CPU, r.Peak>>20)
	say("rates within 5 %%: %s; no pause above 20 ms: %s", kept(last >= 0.95*first && r.Unsent == 0), kept(r.Pause <= 20))
	return nil
}

func mean(counts []int64) float64 {
	sum := int64(0)
	for _, n := range counts {
		sum += n
	}
	return float64(sum) / float64(max(len(counts), 1))
}

func kept(yes bool) string {
	if yes {
		return "kept"
	}
	return "missed"
}

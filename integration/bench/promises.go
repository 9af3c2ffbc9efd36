package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// This file measures Fila's performance targets: the cycle with a hook, with many fairness keys and
// with a large backlog, each measured alternately with the plain cycle; throttles of tenants that a
// pattern covers, members of a group and records of done messages, likewise; the latency from a
// producer to a waiting consumer; and whether the rate is sustained for minutes without pauses.

// promiseBench holds the flags of the benchmark.
type promiseBench struct {
	*common

	only    string
	hook    string
	rounds  int
	time    time.Duration
	long    time.Duration
	backlog int64
	members int64
	keys    int
}

func preparePromises(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &promiseBench{common: c}
	flags.StringVar(&o.only, "only", "hook,keys,backlog,tenants,group,done,wait", "`promises` to measure, separated by commas; long is not among the defaults")
	flags.StringVar(&o.hook, "hook", "integration/testdata/tenants.lua", "`file` with the on_enqueue hook")
	flags.IntVar(&o.rounds, "rounds", 5, "`rounds` of each side")
	flags.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flags.DurationVar(&o.long, "long", 10*time.Minute, "`duration` of the promise long")
	flags.Int64Var(&o.backlog, "backlog", 10_000_000, "`messages` of the large backlog")
	flags.Int64Var(&o.members, "members", 1_000_000, "`members` of the group")
	flags.IntVar(&o.keys, "keys", 1_000_000, "number of `keys` of the promises keys and tenants")
	return o.run
}

// promise is a measurable target.
type promise struct {
	name    string
	measure func(context.Context) error
}

func (o *promiseBench) promises() []promise {
	return []promise{
		{"hook", o.measureHook}, {"keys", o.measureKeys}, {"backlog", o.measureBacklog},
		{"tenants", o.measureTenants}, {"group", o.measureGroup}, {"done", o.measureDone},
		{"wait", o.measureWait}, {"long", o.measureLong},
	}
}

func (o *promiseBench) run(ctx context.Context) error {
	some, err := chosen(o.only, o.promises(), func(p promise) string { return p.name })
	if err != nil {
		return err
	}
	for _, p := range some {
		if err := p.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// cycleOf is the cycle with messages of 256 bytes. Most measurements use 64 connections and
// pipelines of 16 messages.
func cycleOf(conns, pipeline int, length time.Duration, keys int) bench.Options {
	return bench.Options{
		Workload: bench.Cycle, Conns: conns, Pipeline: pipeline, Duration: length, Warmup: time.Second, Rounds: 1,
		Shape: bench.Shape{Payload: 256, Keys: keys},
	}
}

func (o *promiseBench) cycle(keys int) bench.Options { return cycleOf(64, 16, o.time, keys) }

// compare measures two sides alternately and prints the ratios of the second to the first.
func (o *promiseBench) compare(ctx context.Context, promised float64, names [2]string, loads [2]bench.Options) error {
	var sides []*side
	defer func() { endAll(sides) }()
	start, round := o.preparedSide, (*side).round
	if loads[0].Workload == bench.Drain { // each round takes what was prepared
		start, round = func(ctx context.Context, bin, name string, l bench.Options) (*side, error) {
			return o.newSide(ctx, bin, name, l)
		}, (*side).freshRound
	}
	for i, name := range names {
		s, err := start(ctx, o.bin, name, loads[i])
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	if err := inTurns(o.rounds, sides, func(s *side) error { return round(s, ctx) }); err != nil {
		return err
	}
	for _, s := range sides {
		s.report()
	}
	rate := 1 + changed(sides, func(r *bench.Round) float64 { return r.Rate })/100
	cpu := 1 + changed(sides, func(r *bench.Round) float64 { return r.CPU })/100
	say("%s: %.2f of the rate, %.2f of the CPU (medians of the rounds' ratios), promised at least %.2f of the rate: %s\n", names[1], rate, cpu, promised, kept(rate >= promised))
	return nil
}

func (o *promiseBench) measureHook(ctx context.Context) error {
	source, err := os.ReadFile(o.hook)
	if err != nil {
		return err
	}
	plain, hooked := o.cycle(100), o.cycle(100)
	hooked.Shape.Hook = string(source)
	return o.compare(ctx, 0.85, [2]string{"keys given", "with " + filepath.Base(o.hook)}, [2]bench.Options{plain, hooked})
}

func (o *promiseBench) measureKeys(ctx context.Context) error {
	return o.compare(ctx, 0.9, [2]string{"10 keys", fmt.Sprintf("%d keys", o.keys)}, [2]bench.Options{o.cycle(10), o.cycle(o.keys)})
}

func (o *promiseBench) measureBacklog(ctx context.Context) error {
	empty, full := o.cycle(100), o.cycle(100)
	full.Backlog = o.backlog
	return o.compare(ctx, 0.9, [2]string{"nothing stored", fmt.Sprintf("%d messages stored", o.backlog)}, [2]bench.Options{empty, full})
}

// measureTenants compares the throttle of each key, all covered by one pattern, with one throttle for all. As many
// messages as there are keys are stored, so that most instances are in use.
func (o *promiseBench) measureTenants(ctx context.Context) error {
	shared, own := o.cycle(o.keys), o.cycle(o.keys)
	shared.Shape.Throttles, own.Shape.Tenants = 1, true
	shared.Backlog, own.Backlog = int64(o.keys), int64(o.keys)
	return o.compare(ctx, 0.95, [2]string{"one throttle", fmt.Sprintf("%d tenants of a pattern", o.keys)}, [2]bench.Options{shared, own})
}

// measureGroup compares lease and ack of the members of a group with those of other messages.
func (o *promiseBench) measureGroup(ctx context.Context) error {
	plain := o.cycle(100)
	plain.Workload, plain.Backlog = bench.Drain, o.members
	grouped := plain
	grouped.Shape.Grouped = true
	return o.compare(ctx, 0.85, [2]string{"acks", "acks of members"}, [2]bench.Options{plain, grouped})
}

func (o *promiseBench) measureDone(ctx context.Context) error {
	plain, done := o.cycle(100), o.cycle(100)
	done.Shape.KeepDone = true
	return o.compare(ctx, 0.85, [2]string{"nothing kept", "done messages kept"}, [2]bench.Options{plain, done})
}

// measureWait measures single messages and batches.
func (o *promiseBench) measureWait(ctx context.Context) error {
	for _, pipeline := range []int{1, 16} {
		if err := o.measureWaitWith(ctx, pipeline); err != nil {
			return err
		}
	}
	return nil
}

func (o *promiseBench) measureWaitWith(ctx context.Context, pipeline int) error {
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
	say("to a waiting consumer, 16 producers × %d and 16 consumers, %.0f/s (half of the maximum): p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.1f ms; "+
		"promised below 0.5 and 2: %s\n", pipeline, m.Asked, l.P50, l.P99, l.P999, l.Max, kept(l.P50 < 0.5 && l.P99 < 2))
	return nil
}

// measureLong measures whether the rate is sustained.
func (o *promiseBench) measureLong(ctx context.Context) error {
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
	say("%s at %.0f/s (70 %% of the maximum): %.0f/s in the first minute, %.0f/s in the last, %d messages unsent; cycle p50 %.1f, p99 %.1f, max %.1f ms; "+
		"longest time without a reply %.1f ms; %.1f µs of CPU a message, %d MiB",
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

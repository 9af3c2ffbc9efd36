package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/faisca/fila/internal/bench"
)

// This file measures a binary under the loads by which Fila is compared with earlier versions and
// other brokers. With -against, another binary is measured alternately. Changes are judged by the
// ratio within a round, because the machine's speed varies over time.

// cycleBench holds the flags of the benchmark.
type cycleBench struct {
	*common

	against string
	only    string
	hook    string
	rounds  int
	time    time.Duration
	keys    int
	scrape  time.Duration
	signals bool
	budgets int
}

func prepareCycle(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &cycleBench{common: c}
	flags.StringVar(&o.against, "against", "", "another `binary` to measure alternately with this one")
	flags.StringVar(&o.only, "only", "", "`loads` to measure, separated by commas: 64x16, 16x1, enqueue, keys, hook; all of them if empty")
	flags.StringVar(&o.hook, "hook", "integration/testdata/tenants.lua", "`file` with the on_enqueue hook")
	flags.IntVar(&o.rounds, "rounds", 7, "`rounds` of each binary")
	flags.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flags.IntVar(&o.keys, "keys", 1_000_000, "number of `keys` of the load keys")
	flags.DurationVar(&o.scrape, "scrape", 0, "have the admin listener of -bin on, scraped so `often`, beside the same binary, or -against, without it; 0: not")
	flags.BoolVar(&o.signals, "signals", false, "have the queue of -bin record signals, beside the same binary, or -against, without")
	flags.IntVar(&o.budgets, "budgets", 0, "have one of so many `budgets` pay for each message of -bin, that of its key, beside the same binary, or -against, without; the loads have as many keys")
	return o.run
}

// cycleLoad is a load of both binaries.
type cycleLoad struct {
	name    string
	options bench.Options
}

func (o *cycleBench) loads() ([]cycleLoad, error) {
	source, err := os.ReadFile(o.hook)
	if err != nil {
		return nil, err
	}
	enqueue, hooked := cycleOf(50, 16, o.time, 100), cycleOf(64, 16, o.time, 100)
	enqueue.Workload = bench.Enqueue
	hooked.Shape.Hook = string(source)
	all := []cycleLoad{
		{"64x16", cycleOf(64, 16, o.time, 100)}, {"16x1", cycleOf(16, 1, o.time, 100)}, {"enqueue", enqueue},
		{"keys", cycleOf(64, 16, o.time, o.keys)}, {"hook", hooked},
	}
	if o.budgets > 0 {
		for i := range all {
			all[i].options.Shape.Keys = o.budgets
		}
	}
	return chosen(o.only, all, func(l cycleLoad) string { return l.name })
}

func (o *cycleBench) run(ctx context.Context) error {
	loads, err := o.loads()
	if err != nil {
		return err
	}
	say("| load, binary | messages | CPU each | memory |\n|---|---|---|---|")
	for _, l := range loads {
		if err := o.measure(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// measure runs one load on each binary alternately.
func (o *cycleBench) measure(ctx context.Context, l cycleLoad) (err error) {
	var sides []*side
	defer func() { endAll(sides) }()
	if o.against != "" || o.scrape > 0 || o.signals || o.budgets > 0 {
		bin := cmp.Or(o.against, o.bin)
		s, err := o.newSide(ctx, bin, l.name+", "+bin, l.options)
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	name, addr, args := l.name+", "+o.bin, "", []string(nil)
	if o.scrape > 0 {
		name += ", scraped"
		if addr, args, err = scrapeArgs(); err != nil {
			return err
		}
	}
	if o.signals {
		name += ", signals"
		l.options.Shape.Signals = true
	}
	if o.budgets > 0 {
		name += fmt.Sprintf(", %d budgets", o.budgets)
		l.options.Shape.Budgets = o.budgets
	}
	s, err := o.newSide(ctx, o.bin, name, l.options, args...)
	if err != nil {
		return err
	}
	sides = append(sides, s)
	scraped := &scraper{addr: addr, every: o.scrape}
	err = inTurns(o.rounds, sides, func(s *side) error {
		if o.scrape > 0 && s == sides[1] {
			return scraped.during(ctx, s.freshRound)
		}
		return s.freshRound(ctx)
	})
	if err != nil {
		return err
	}
	for _, s := range sides {
		s.report()
	}
	if o.scrape > 0 {
		scraped.report()
	}
	if len(sides) > 1 {
		say("%s: rate %s, CPU %s (medians of the rounds' ratios)", l.name,
			percent(changed(sides, func(r *bench.Round) float64 { return r.Rate })),
			percent(changed(sides, func(r *bench.Round) float64 { return r.CPU })))
	}
	return nil
}

// changed returns by how many percent a figure of the second side exceeds that of the first: the
// median over the rounds, each of which measured both.
func changed(sides []*side, figure func(*bench.Round) float64) float64 {
	var ratios []float64
	for i := range sides[0].rounds {
		ratios = append(ratios, 100*(figure(&sides[1].rounds[i])/figure(&sides[0].rounds[i])-1))
	}
	return bench.Median(ratios)
}

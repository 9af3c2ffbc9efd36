package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/proc"
)

// This file measures the cost of scheduling from outside: enqueues and leases with one fairness
// key, with many, and with throttles on every message. Each variant has its own broker, since the
// queues of a broker share its memory. They are measured alternately, each when the machine is idle
// again.

// schedule holds the flags of the benchmark.
type schedule struct {
	*common

	rounds  int
	n       int
	backlog int
	warm    int
	keys    int
	only    string
	engine  string
	pprof   bool
}

func prepareScheduler(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &schedule{common: c}
	flags.IntVar(&o.rounds, "rounds", 5, "`rounds` of each side")
	flags.IntVar(&o.n, "n", 100_000, "`messages` per round")
	flags.IntVar(&o.backlog, "backlog", 1_500_000, "`messages` in each queue before the first round")
	flags.IntVar(&o.warm, "warm", 300_000, "`messages` to lease before the first round: more than remain in memory from their enqueue")
	flags.IntVar(&o.keys, "keys", 1_000_000, "number of `keys` of the side many")
	flags.StringVar(&o.only, "only", "", "the `sides` to measure, of 1, 10, 100, many and throttles, separated by commas; all of them if empty")
	flags.StringVar(&o.engine, "engine", "", "`file` with the output of the engine's own benchmarks, for the table at the end")
	flags.BoolVar(&o.pprof, "pprof", false, "serve profiles from the brokers, and print their addresses")
	return o.run
}

// contender is a broker and its load.
type contender struct {
	*server

	side      string // name in schedule.only
	name      string
	keys      int
	throttles []string
	base      string // the side to compare with if it is measured; "": none

	enqueue, lease phase
}

// phase holds the measurements by round: messages per second, and the broker's CPU time per
// message.
type phase struct {
	rates []float64
	cpu   []time.Duration
}

func (o *schedule) contenders() ([]*contender, error) {
	all := []*contender{
		{side: "1", name: "1 key", keys: 1},
		{side: "10", name: "10 keys", keys: 10},
		{side: "many", name: fmt.Sprintf("%d keys", o.keys), keys: o.keys, base: "10"},
		{side: "100", name: "100 keys", keys: 100},
		{side: "throttles", name: "100 keys, 2 throttles", keys: 100, throttles: []string{"provider:x", "tenant:y"}, base: "100"},
	}
	return chosen(o.only, all, func(c *contender) string { return c.side })
}

func (o *schedule) run(ctx context.Context) error {
	all, err := o.contenders()
	if err != nil {
		return err
	}
	alone, err := readEngine(o.engine)
	if err != nil {
		return err
	}
	defer endAll(all)
	for _, c := range all {
		if c.server, err = o.startServer(ctx, o.bin, o.profile(c.name)...); err != nil {
			return err
		}
		if err := c.prepare(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	err = inTurns(o.rounds, all, func(c *contender) error {
		if err := rest(ctx, all); err != nil {
			return err
		}
		if err := c.measure(ctx, o.n); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.report(all)
	return o.verdicts(os.Stdout, all, alone)
}

// profile returns the arguments with which a broker serves profiles, if requested.
func (o *schedule) profile(name string) []string {
	if !o.pprof {
		return nil
	}
	addr, err := harness.Reserve()
	if err != nil {
		say("%s: no profiles: %v", name, err)
		return nil
	}
	say("%s: http://%s/debug/pprof/profile", name, addr)
	return []string{"--server.pprof_addr", addr}
}

// rest waits, for a limited time, until the brokers are idle, in particular until compactions have
// finished.
func rest(ctx context.Context, all []*contender) error {
	const (
		look  = 200 * time.Millisecond
		idle  = 20 * time.Millisecond // CPU time within the interval
		while = 15 * time.Second
	)
	used := func() (sum time.Duration, err error) {
		for _, c := range all {
			u, err := proc.UseOf(c.PID())
			if err != nil {
				return 0, err
			}
			sum += u.CPU
		}
		return sum, nil
	}
	before, err := used()
	for end := time.Now().Add(while); err == nil && time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(look):
		}
		var now time.Duration
		if now, err = used(); err == nil && now-before <= idle {
			return nil
		}
		before = now
	}
	return err
}

// prepare creates the queue, its backlog, and throttles that never reach their limits.
func (c *contender) prepare(ctx context.Context, o *schedule) error {
	client := redis.NewClient(&redis.Options{Addr: c.Addr(), ReadTimeout: time.Minute})
	defer client.Close()
	// Nothing is acked: leases outlast the run, so messages are not delivered again.
	if err := client.Do(ctx, "FILA.QUEUE", "CREATE", benchQueue, "VISIBILITY", 24*3600*1000, "NODLQ").Err(); err != nil {
		return err
	}
	for _, t := range c.throttles {
		if err := client.Do(ctx, "FILA.THROTTLE", "SET", t, "RATE", 1e9, "CONCURRENCY", 1_000_000_000).Err(); err != nil {
			return err
		}
	}
	if _, err := c.benchmark(ctx, o.backlog, c.enqueueing()); err != nil {
		return err
	}
	stats, err := client.Do(ctx, "FILA.STATS", benchQueue).Result()
	if err != nil {
		return err
	}
	if s, ok := stats.(map[any]any); ok {
		say("%s: %d messages of %v keys", c.name, o.backlog, s["keys"])
	}
	_, err = c.benchmark(ctx, o.warm/leaseCount, leasing())
	return err
}

const (
	benchQueue = "bench"
	leaseCount = 10
)

func leasing() []string { return []string{"FILA.LEASE", benchQueue, "COUNT", strconv.Itoa(leaseCount)} }

// enqueueing returns the command; redis-benchmark substitutes a random number into the key.
func (c *contender) enqueueing() []string {
	args := []string{"-r", strconv.Itoa(c.keys), "FILA.ENQUEUE", benchQueue, strings.Repeat("x", 256), "KEY", "tenant-__rand_int__"}
	for _, t := range c.throttles {
		args = append(args, "THROTTLE", t)
	}
	return args
}

func (c *contender) measure(ctx context.Context, n int) error {
	steps := []struct {
		p    *phase
		n    int
		each float64
		args []string
	}{
		{&c.enqueue, n, 1, c.enqueueing()},
		{&c.lease, n / leaseCount, leaseCount, leasing()},
	}
	for _, s := range steps {
		before, err := proc.UseOf(c.PID())
		if err != nil {
			return err
		}
		rate, err := c.benchmark(ctx, s.n, s.args)
		if err != nil {
			return err
		}
		after, err := proc.UseOf(c.PID())
		if err != nil {
			return err
		}
		s.p.rates = append(s.p.rates, rate*s.each)
		s.p.cpu = append(s.p.cpu, (after.CPU-before.CPU)/time.Duration(float64(s.n)*s.each))
	}
	return nil
}

// benchmark sends a command n times and returns the number of replies per second.
func (c *contender) benchmark(ctx context.Context, n int, args []string) (float64, error) {
	host, port, err := net.SplitHostPort(c.Addr())
	if err != nil {
		return 0, err
	}
	args = append([]string{"-h", host, "-p", port, "--csv", "-c", "50", "-P", "16", "-n", strconv.Itoa(n)}, args...)
	out, err := exec.CommandContext(ctx, "redis-benchmark", args...).Output()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w", err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark printed %q: %w", out, err)
	}
	last := rows[len(rows)-1]
	if len(last) < 2 {
		return 0, errors.New("redis-benchmark printed no rate")
	}
	return strconv.ParseFloat(last[1], 64)
}

func (o *schedule) report(all []*contender) {
	say("\nstorage.sync %s, 50 connections, 16 commands at once, 256 bytes; medians of %d rounds of %d messages, in turns\n", o.sync, o.rounds, o.n)
	say("%s", "| queue | enqueue/s | CPU | lease/s | CPU | against | enqueue rate | lease rate |\n|---|---|---|---|---|---|---|---|")
	for _, c := range all {
		against, enqueue, lease := "", "", ""
		if base := contenderOf(all, c.base); base != nil {
			against = base.name
			enqueue, lease = percent(aboveBase(&c.enqueue, &base.enqueue)), percent(aboveBase(&c.lease, &base.lease))
		}
		say("| %s | %.0f | %.1f µs | %.0f | %.1f µs | %s | %s | %s |", c.name, bench.Median(c.enqueue.rates), micros(&c.enqueue),
			bench.Median(c.lease.rates), micros(&c.lease), against, enqueue, lease)
	}
}

// contenderOf returns the measured side of that name, or nil.
func contenderOf(all []*contender, name string) *contender {
	i := slices.IndexFunc(all, func(c *contender) bool { return c.side == name })
	if i < 0 {
		return nil
	}
	return all[i]
}

// aboveBase returns by how many percent the rates exceed the base: the median over the rounds, each
// of which measured both.
func aboveBase(p, base *phase) float64 {
	ratios := make([]float64, 0, len(p.rates))
	for i := range p.rates {
		ratios = append(ratios, 100*(p.rates[i]/base.rates[i]-1))
	}
	return bench.Median(ratios)
}

func micros(p *phase) float64 { return float64(bench.Median(p.cpu).Nanoseconds()) / 1000 }

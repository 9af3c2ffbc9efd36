package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/internal/proc"
)

// This file measures what very many budgets cost: memory, and the time that a start takes longer; and
// how soon a credit gives a message to a waiting consumer. `cycle -budgets` measures the rate.

// budgetBench holds the flags of the benchmark.
type budgetBench struct {
	*common

	n      int
	wakes  int
	starts int
}

func prepareBudgets(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &budgetBench{common: c}
	flags.IntVar(&o.n, "n", 1_000_000, "number of `budgets`")
	flags.IntVar(&o.wakes, "wakes", 1000, "`credits` that each wake a consumer")
	flags.IntVar(&o.starts, "starts", 3, "`starts` without and with the budgets")
	return o.run
}

// What the budgets may cost.
const (
	budgetsBytes = 256 << 20
	budgetsStart = 3 * time.Second
	budgetsWake  = 50 * time.Millisecond
)

func (o *budgetBench) run(ctx context.Context) error {
	if o.n < 1 || o.n > 1_000_000 || o.wakes < 1 || o.starts < 1 {
		return fmt.Errorf("-n %d -wakes %d -starts %d: want at least one of each, and at most 1000000 budgets", o.n, o.wakes, o.starts)
	}
	s, err := o.startServer(ctx, o.bin, "--limits.budgets", strconv.Itoa(o.n))
	if err != nil {
		return err
	}
	defer s.end()
	empty, before, err := o.restarts(ctx, s)
	if err != nil {
		return err
	}
	if err := o.fill(ctx, s); err != nil {
		return err
	}
	full, after, err := o.restarts(ctx, s)
	if err != nil {
		return err
	}
	say("%d budgets with names of 32 bytes and a refill: %d MiB (%.0f bytes each) more after a start, at most %d: %s",
		o.n, (after-before)>>20, float64(after-before)/float64(o.n), budgetsBytes>>20, kept(after-before <= budgetsBytes))
	say("a start takes %s, without them %s (medians of %d), at most %s more: %s",
		full.Round(time.Millisecond), empty.Round(time.Millisecond), o.starts, budgetsStart, kept(full-empty <= budgetsStart))
	return o.wake(ctx, s)
}

// restarts stops and starts the broker and returns the median of the times until it serves, and the
// least resident memory after it.
func (o *budgetBench) restarts(ctx context.Context, s *server) (took time.Duration, resident int64, err error) {
	var times []time.Duration
	for range o.starts {
		if err := s.Stop(); err != nil {
			return 0, 0, err
		}
		begun := time.Now()
		if err := s.serve(ctx); err != nil {
			return 0, 0, err
		}
		times = append(times, time.Since(begun))
		u, err := proc.UseOf(s.PID())
		if err != nil {
			return 0, 0, err
		}
		if resident == 0 || u.Resident < resident {
			resident = u.Resident
		}
	}
	slices.Sort(times)
	return times[len(times)/2], resident, nil
}

// budgetNo is the name of a budget.
func budgetNo(i int) string { return fmt.Sprintf("budget-%025d", i) }

// fill creates the budgets.
func (o *budgetBench) fill(ctx context.Context, s *server) error {
	const batch = 2000
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
	defer c.Close()
	for from := 0; from < o.n; from += batch {
		p := c.Pipeline()
		for i := from; i < min(from+batch, o.n); i++ {
			p.Do(ctx, "FILA.BUDGET", "SET", budgetNo(i), "REFILL", 100_000, "EVERY", "@monthly")
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// wake has a consumer wait for a message of a budget without credits, and measures from sending the
// credit to the message.
func (o *budgetBench) wake(ctx context.Context, s *server) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	defer c.Close()
	const paying = "without credits"
	for _, args := range [][]any{{"FILA.BUDGET", "DEL", budgetNo(0)}, {"FILA.QUEUE", "CREATE", benchQueue}, {"FILA.BUDGET", "SET", paying}} {
		if err := c.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	var times []time.Duration
	for range o.wakes {
		if err := c.Do(ctx, "FILA.ENQUEUE", benchQueue, "x", "BUDGET", paying, "CHARGE", 5).Err(); err != nil {
			return err
		}
		came := make(chan error, 1)
		go func() { came <- c.Do(ctx, "FILA.LEASE", benchQueue, "BLOCK", 2000).Err() }()
		for waits := false; !waits; {
			stats, err := c.Do(ctx, "FILA.STATS", benchQueue).Result()
			if err != nil {
				return err
			}
			m, ok := stats.(map[any]any)
			waits = !ok || m["waiters"] != int64(0)
		}
		begun := time.Now()
		if err := c.Do(ctx, "FILA.BUDGET", "CREDIT", paying, 5).Err(); err != nil {
			return err
		}
		if err := <-came; err != nil {
			return err
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	at := func(p float64) time.Duration { return times[int(float64(len(times)-1)*p)].Round(10 * time.Microsecond) }
	say("from a credit to the message that it pays for, at a waiting consumer, storage.sync %s: median %s, p99 %s, most %s (%d), at most %s: %s",
		o.sync, at(0.5), at(0.99), at(1), len(times), budgetsWake, kept(at(1) <= budgetsWake))
	return nil
}

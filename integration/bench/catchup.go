package main

import (
	"context"
	"errors"
	"flag"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// This file measures what a node that comes back costs the leader. Producers send to the leader all the
// time; a follower is killed until they have sent a given volume, and comes back. Reported are the rates
// before, without it, while it catches up and after, and how large the logs became.

// catchupBench holds the flags of the benchmark.
type catchupBench struct {
	*common

	behind  int64
	log     int64
	size    int
	conns   int
	pipe    int
	time    time.Duration
	rest    time.Duration
	target  bool
	sent    atomic.Int64 // messages that were acknowledged
	refused atomic.Int64 // pipelines of which some were not
	largest int64        // bytes of the log of a node
}

func prepareCatchup(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &catchupBench{common: c}
	flags.Int64Var(&o.behind, "behind", 1<<30, "`bytes` of messages that the follower misses")
	flags.Int64Var(&o.log, "log", 4<<30, "cluster.log_bytes in `bytes`; less than -behind: the follower gets a copy of the data")
	flags.IntVar(&o.size, "size", 4<<10, "`bytes` of a message")
	flags.IntVar(&o.conns, "conns", 16, "`connections` of producers")
	flags.IntVar(&o.pipe, "pipe", 16, "`messages` under way on each")
	flags.DurationVar(&o.time, "time", 15*time.Second, "`duration` of the rounds before and after")
	flags.DurationVar(&o.rest, "rest", 0, "`pause` of a producer after each pipeline: the load is not the greatest")
	flags.BoolVar(&o.target, "target", false, "fail if the leader has less than 80 % of its rate meanwhile, or a log is larger than twice -log")
	return o.run
}

func (o *catchupBench) run(ctx context.Context) error {
	t, err := o.startTrio(ctx, "--cluster.log_bytes", strconv.FormatInt(o.log, 10))
	if err != nil {
		return err
	}
	defer t.end()
	leader := t.leader()
	follower := t.Others(leader.ID)[0]
	c := redis.NewClient(&redis.Options{Addr: leader.Addr(), MaxRetries: -1})
	defer c.Close()
	if err := c.Do(ctx, "FILA.QUEUE", "CREATE", benchQueue).Err(); err != nil {
		return err
	}
	stop := o.produce(ctx, leader)
	rates, err := o.stages(ctx, t, leader, follower)
	stop()
	if err != nil {
		return err
	}
	if t.leader() != leader || o.refused.Load() > 0 {
		return errors.New("the leader has changed meanwhile: the machine is too busy to measure anything")
	}
	kept := rates["catching up"] / min(rates["before"], rates["after"])
	note("while it catches up", "%.2f of the lesser rate of before and after", kept)
	note("largest log of a node", "%d MiB, cluster.log_bytes is %d MiB", o.largest>>20, o.log>>20)
	if o.target && (kept < 0.8 || o.largest > 2*o.log) {
		return errors.New("a target was missed")
	}
	return nil
}

// stages takes the follower away and brings it back, and returns the rates.
func (o *catchupBench) stages(ctx context.Context, t *trio, leader, follower *harness.Node) (map[string]float64, error) {
	rates := map[string]float64{}
	during := func(what string, over func() (bool, error)) error {
		r, err := o.rate(ctx, t, what, over)
		rates[what] = r
		return err
	}
	elapsed := func() func() (bool, error) {
		end := time.Now().Add(o.time)
		return func() (bool, error) { return time.Now().After(end), nil }
	}
	if err := during("before", elapsed()); err != nil {
		return nil, err
	}
	if err := follower.Kill(); err != nil {
		return nil, err
	}
	enough := o.sent.Load() + o.behind/int64(o.size)
	if err := during("without it", func() (bool, error) { return o.sent.Load() >= enough, nil }); err != nil {
		return nil, err
	}
	if err := follower.Start(); err != nil {
		return nil, err
	}
	if err := during("catching up", func() (bool, error) { return o.caughtUp(ctx, leader, follower) }); err != nil {
		return nil, err
	}
	return rates, during("after", elapsed())
}

// rate measures the rate of the producers until a stage is over.
func (o *catchupBench) rate(ctx context.Context, t *trio, what string, over func() (bool, error)) (float64, error) {
	from, begun := o.sent.Load(), time.Now()
	for {
		done, err := over()
		if err != nil {
			return 0, err
		}
		for _, n := range t.Nodes {
			o.largest = max(o.largest, sizeOf(n.ClusterPath()))
		}
		if done {
			break
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	n, took := o.sent.Load()-from, time.Since(begun).Seconds()
	note(what, "%.0f/s, %.1f MiB/s, %.1f s", float64(n)/took, float64(n)*float64(o.size)/took/(1<<20), took)
	return float64(n) / took, nil
}

// caughtUp reports whether a follower is no more than a moment behind the leader.
func (o *catchupBench) caughtUp(ctx context.Context, leader, follower *harness.Node) (bool, error) {
	has, err := follower.Status(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // it is starting
	}
	wants, err := leader.Status(ctx)
	const moment = 200 // entries
	return has.Applied > 0 && has.Applied+moment > wants.Last, err
}

// produce sends messages to a node until stop is called.
func (o *catchupBench) produce(ctx context.Context, to *harness.Node) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	payload := make([]byte, o.size)
	for i := range payload {
		payload[i] = byte(i * i)
	}
	var all sync.WaitGroup
	for range o.conns {
		all.Go(func() {
			c := redis.NewClient(&redis.Options{Addr: to.Addr(), MaxRetries: -1, PoolSize: 1})
			defer c.Close()
			for ctx.Err() == nil {
				p := c.Pipeline()
				for range o.pipe {
					p.Do(context.WithoutCancel(ctx), "FILA.ENQUEUE", benchQueue, payload)
				}
				if _, err := p.Exec(context.WithoutCancel(ctx)); err != nil {
					o.refused.Add(1) // another node leads, or none
					time.Sleep(10 * time.Millisecond)
					continue
				}
				o.sent.Add(int64(o.pipe))
				time.Sleep(o.rest)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

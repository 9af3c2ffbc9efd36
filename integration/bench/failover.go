package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// This file measures for how long clients of the other nodes get no answer when the leader of a cluster is
// killed, ends in order, or is told to hand over.

// failoverBench holds the flags of the benchmark.
type failoverBench struct {
	*common

	kills     int
	transfers int
	keys      int
}

func prepareFailover(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &failoverBench{common: c}
	flags.IntVar(&o.kills, "kills", 50, "how `often` the leader is killed")
	flags.IntVar(&o.transfers, "transfers", 10, "how `often` it ends in order, and how often it is told to hand over")
	flags.IntVar(&o.keys, "keys", 100_000, "number of fairness `keys` with a message when leaders hand over")
	return o.run
}

func (o *failoverBench) run(ctx context.Context) error {
	t, err := o.startTrio(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	c := redis.NewClient(&redis.Options{Addr: t.Nodes[0].Addr(), MaxRetries: -1})
	defer c.Close()
	if err := c.Do(ctx, "FILA.QUEUE", "CREATE", benchQueue).Err(); err != nil {
		return err
	}
	if err := o.series(ctx, t, o.kills, "kill -9 of the leader", (*harness.Node).Kill); err != nil {
		return err
	}
	if err := o.fill(ctx, c); err != nil {
		return err
	}
	behind := fmt.Sprintf(", %d keys", o.keys)
	if err := o.series(ctx, t, o.transfers, "SIGTERM of the leader"+behind, (*harness.Node).Stop); err != nil {
		return err
	}
	return o.series(ctx, t, o.transfers, "FILA.CLUSTER TRANSFER"+behind, func(n *harness.Node) error {
		to := redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		defer to.Close()
		return to.Do(ctx, "FILA.CLUSTER", "TRANSFER").Err()
	})
}

// fill enqueues one message for each key.
func (o *failoverBench) fill(ctx context.Context, c *redis.Client) error {
	const batch = 1000
	for from := 0; from < o.keys; from += batch {
		p := c.Pipeline()
		for key := from; key < min(from+batch, o.keys); key++ {
			p.Do(ctx, "FILA.ENQUEUE", benchQueue, "x", "KEY", "key-"+strconv.Itoa(key))
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// series does something to the leader again and again, and reports the pauses of clients of the others.
func (o *failoverBench) series(ctx context.Context, t *trio, times int, name string, do func(*harness.Node) error) error {
	var pauses []time.Duration
	refused := map[string]int{}
	for range times {
		leader := t.leader()
		pause, err := o.once(ctx, t, leader, do, refused)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		pauses = append(pauses, pause)
	}
	if times == 0 {
		return nil
	}
	slices.Sort(pauses)
	say("%s, %d times: pause %v in the median, %v at most", name, times, pauses[len(pauses)/2].Round(time.Millisecond), pauses[len(pauses)-1].Round(time.Millisecond))
	for what, n := range refused {
		say("  %d commands were answered %q", n, what)
	}
	return nil
}

// once does something to the leader, and returns the longest time without an answer to a client of one of the
// other nodes.
func (o *failoverBench) once(ctx context.Context, t *trio, leader *harness.Node, do func(*harness.Node) error, refused map[string]int) (time.Duration, error) {
	probing, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	var probes []*enqueuer
	for _, n := range t.Others(leader.ID) {
		p := &enqueuer{addr: n.Addr()}
		probes = append(probes, p)
		running.Go(func() { p.run(probing) })
	}
	before := len(t.watch.Leaderships())
	wait := func(what string, limit time.Duration, yes func() bool) error {
		for end := time.Now().Add(limit); !yes(); <-time.After(time.Millisecond) {
			if ctx.Err() != nil || time.Now().After(end) {
				return errors.Join(ctx.Err(), errors.New("waited in vain for "+what))
			}
		}
		return nil
	}
	<-time.After(300 * time.Millisecond)
	begun := time.Now()
	if err := do(leader); err != nil {
		return 0, err
	}
	if err := wait("another leader", 30*time.Second, func() bool { return len(t.watch.Leaderships()) > before }); err != nil {
		return 0, err
	}
	// Until each has sent a command after that, and got an answer.
	led := time.Now()
	for _, p := range probes {
		if err := wait("an answer", 30*time.Second, func() bool { return p.answeredSince(led) }); err != nil {
			return 0, err
		}
	}
	stop()
	running.Wait()
	longest := time.Duration(0)
	for _, p := range probes {
		longest = max(longest, p.longest(begun))
		for what, n := range p.refused {
			refused[what] += n
		}
	}
	if leader.PID() == 0 {
		if err := leader.Start(); err != nil {
			return 0, err
		}
	}
	readiness, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, n := range t.Nodes {
		if err := n.Ready(readiness); err != nil {
			return 0, err
		}
	}
	<-time.After(500 * time.Millisecond) // the node has caught up
	return longest, nil
}

// enqueuer is a client that enqueues one message after another.
type enqueuer struct {
	addr string

	mu      sync.Mutex
	answers []time.Time
	calls   []time.Time // of the answers
	refused map[string]int
}

func (p *enqueuer) run(ctx context.Context) {
	c := redis.NewClient(&redis.Options{Addr: p.addr, MaxRetries: -1, PoolSize: 1, ReadTimeout: 30 * time.Second})
	defer c.Close()
	p.refused = map[string]int{}
	for ctx.Err() == nil {
		called := time.Now()
		err := c.Do(context.WithoutCancel(ctx), "FILA.ENQUEUE", benchQueue, "x", "KEY", "probe").Err()
		p.mu.Lock()
		if err == nil {
			p.answers, p.calls = append(p.answers, time.Now()), append(p.calls, called)
		} else {
			p.refused[err.Error()]++
		}
		p.mu.Unlock()
		<-time.After(time.Millisecond)
	}
}

// answeredSince reports whether a command that was sent after a time was executed.
func (p *enqueuer) answeredSince(at time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) > 0 && p.calls[len(p.calls)-1].After(at)
}

// longest returns the longest time between two answers, of which the later came after begun.
func (p *enqueuer) longest(begun time.Time) time.Duration {
	longest := time.Duration(0)
	for i := 1; i < len(p.answers); i++ {
		if p.answers[i].After(begun) {
			longest = max(longest, p.answers[i].Sub(p.answers[i-1]))
		}
	}
	return longest
}

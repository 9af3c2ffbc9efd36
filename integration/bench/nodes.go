package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/proc"
)

// This file compares a cluster of three nodes, all on this machine, with a broker alone: directly on the
// leader, and through a follower. It also measures what a cluster without work takes.

// trio is a cluster of three nodes without a network in between, below a directory of its own.
type trio struct {
	*harness.Cluster

	watch *harness.Watch
	root  string
}

// startTrio starts a cluster and waits until it serves.
func (c *common) startTrio(ctx context.Context, args ...string) (t *trio, err error) {
	root, err := os.MkdirTemp(c.dir, "fila-bench-")
	if err != nil {
		return nil, err
	}
	t = &trio{root: root}
	defer func() {
		if err != nil {
			t.end()
		}
	}()
	var homes []string
	for _, id := range []string{"a", "b", "c"} {
		home := filepath.Join(root, id)
		if err := os.Mkdir(home, 0o750); err != nil {
			return nil, err
		}
		homes = append(homes, home)
	}
	if t.Cluster, err = harness.NewDirectCluster(c.bin, homes, harness.Same(args...)); err != nil {
		return nil, err
	}
	t.watch = harness.NewWatch(t.Nodes)
	if err := t.Start(ctx); err != nil {
		return nil, err
	}
	if err := t.watch.Formed(ctx, t.Nodes); err != nil {
		return nil, err
	}
	return t, nil
}

// leader returns the node that leads.
func (t *trio) leader() *harness.Node { return t.Node(t.watch.Leader()) }

// end kills the nodes and removes their data.
func (t *trio) end() {
	if t.watch != nil {
		t.watch.Close()
	}
	if t.Cluster != nil {
		_ = t.Close() // the data is removed anyway
	}
	_ = os.RemoveAll(t.root)
}

// nodesBench holds the flags of the benchmark.
type nodesBench struct {
	*common

	against string
	only    string
	rounds  int
	time    time.Duration
	idle    time.Duration
}

func prepareNodes(flags *flag.FlagSet, c *common) func(context.Context) error {
	o := &nodesBench{common: c}
	flags.StringVar(&o.against, "against", "", "another `binary` of which three nodes are measured, too, in turns with those of -bin")
	flags.StringVar(&o.only, "only", "", "`measurements`, separated by commas: 64x16, 16x1, idle; all of them if empty")
	flags.IntVar(&o.rounds, "rounds", 7, "`rounds` of each side")
	flags.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flags.DurationVar(&o.idle, "idle", 30*time.Second, "`duration` for which the cluster has nothing to do")
	return o.run
}

func (o *nodesBench) run(ctx context.Context) error {
	say("| load, side | messages | CPU each | memory | enqueue p50 | lease p50 |\n|---|---|---|---|---|---|")
	for _, l := range []cycleLoad{{"64x16", cycleOf(64, 16, o.time, 100)}, {"16x1", cycleOf(16, 1, o.time, 100)}} {
		if !o.wants(l.name) {
			continue
		}
		if err := o.measure(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	if !o.wants("idle") {
		return nil
	}
	return o.idles(ctx)
}

// wants reports whether -only names a measurement.
func (o *nodesBench) wants(name string) bool {
	return o.only == "" || slices.Contains(strings.Split(o.only, ","), name)
}

// measure runs one load on a broker alone, on the leader, and through a follower, in turns.
func (o *nodesBench) measure(ctx context.Context, l cycleLoad) error {
	alone, err := o.newSide(ctx, o.bin, l.name+", alone", l.options)
	if err != nil {
		return err
	}
	defer alone.end()
	t, err := o.startTrio(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	leader := t.leader()
	directly, err := o.nodeSide(ctx, leader, l.name+", three nodes", l.options, leader.PID())
	if err != nil {
		return err
	}
	through, err := o.nodeSide(ctx, t.Others(leader.ID)[0], l.name+", through a follower", l.options, leader.PID())
	if err != nil {
		return err
	}
	sides := []*side{alone, directly, through}
	if o.against != "" {
		other := *o.common
		other.bin = o.against
		t, err := other.startTrio(ctx)
		if err != nil {
			return err
		}
		defer t.end()
		s, err := o.nodeSide(ctx, t.leader(), l.name+", three nodes of "+o.against, l.options, t.leader().PID())
		if err != nil {
			return err
		}
		sides = append(sides, s)
	}
	if err := inTurns(o.rounds, sides, func(s *side) error { return s.freshRound(ctx) }); err != nil {
		return err
	}
	if t.leader() != leader {
		return errors.New("the leader has changed meanwhile: the machine is too busy to measure anything")
	}
	for _, s := range sides {
		m := bench.NewReport(s.name, "", &s.load.Options, s.rounds).Median
		say("| %s | %.0f/s | %.1f µs | %d MiB | %.2f ms | %.2f ms |", s.name, m.Rate, m.CPU, m.Peak>>20, m.Latency["enqueue"].P50, m.Latency["lease"].P50)
	}
	rate, cpu := func(r *bench.Round) float64 { return r.Rate }, func(r *bench.Round) float64 { return r.CPU }
	say("%s: %.2f of the rate alone, %.2f of its CPU a message at the leader; through a follower %.2f of the rate directly",
		l.name, ratio(alone, directly, rate), ratio(alone, directly, cpu), ratio(directly, through, rate))
	if o.against != "" {
		say("%s: %.2f of the rate of three nodes of %s, %.2f of the CPU a message at the leader", l.name, ratio(sides[3], directly, rate), o.against, ratio(sides[3], directly, cpu))
	}
	return nil
}

// ratio returns the median over the rounds of a figure of the second side in relation to the first.
func ratio(a, b *side, figure func(*bench.Round) float64) float64 {
	return 1 + changed([]*side{a, b}, figure)/100
}

// nodeSide is a side of a cluster. CPU and memory are those of the leader.
func (o *nodesBench) nodeSide(ctx context.Context, n *harness.Node, name string, options bench.Options, pid int) (*side, error) {
	peer, _, _, err := bench.Server{Addr: n.Addr()}.Connect(ctx)
	if err != nil {
		return nil, err
	}
	options.Shape.Queue = benchQueue + "-" + n.ID
	return &side{name: name, load: bench.Load{Peer: peer, PID: pid, Options: options, Watch: watch(name)}}, nil
}

// idles measures what each node takes of a core without work.
func (o *nodesBench) idles(ctx context.Context) error {
	t, err := o.startTrio(ctx)
	if err != nil {
		return err
	}
	defer t.end()
	before := map[string]time.Duration{}
	for _, n := range t.Nodes {
		u, err := proc.UseOf(n.PID())
		if err != nil {
			return err
		}
		before[n.ID] = u.CPU
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.idle):
	}
	for _, n := range t.Nodes {
		u, err := proc.UseOf(n.PID())
		if err != nil {
			return err
		}
		what := "follower"
		if n == t.leader() {
			what = "leader"
		}
		say("idle, %s: %.2f %% of a core", what, 100*(u.CPU-before[n.ID]).Seconds()/o.idle.Seconds())
	}
	return nil
}

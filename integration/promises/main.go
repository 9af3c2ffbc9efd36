// Promises measures what Fila promises of its own speed, beside itself: the cycle with a
// hook, with very many fairness keys and with a large backlog, each in turns with the
// same work without; how long a message takes to a consumer that waits; and whether
// the rate holds for minutes and without pauses.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/progress"
)

// options is what the flags say.
type options struct {
	bin     string
	only    string
	hook    string
	rounds  int
	time    time.Duration
	long    time.Duration
	backlog int64
	keys    int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.StringVar(&o.only, "only", "hook,keys,backlog,wait", "`promises` to measure, separated by commas; long is one more")
	flag.StringVar(&o.hook, "hook", "integration/testdata/tenants.lua", "`file` with the on_enqueue hook")
	flag.IntVar(&o.rounds, "rounds", 5, "how `often` each side is measured")
	flag.DurationVar(&o.time, "time", 4*time.Second, "`duration` of a round")
	flag.DurationVar(&o.long, "long", 10*time.Minute, "`duration` of long")
	flag.Int64Var(&o.backlog, "backlog", 10_000_000, "`messages` of the large backlog")
	flag.IntVar(&o.keys, "keys", 1_000_000, "`keys` when there are very many")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, &o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "promises: %v\n", err)
		os.Exit(1)
	}
}

// promise is one that can be measured.
type promise struct {
	name    string
	measure func(context.Context, *options) error
}

func promises() []promise {
	return []promise{
		{"hook", hook}, {"keys", manyKeys}, {"backlog", backlog}, {"wait", wait}, {"long", long},
	}
}

func run(ctx context.Context, o *options) error {
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(promises(), func(p promise) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("no promise is named %q", name)
		}
		if err := promises()[i].measure(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// side is a broker of its own under a load: what it holds must not be in the other's
// memory.
type side struct {
	name   string
	load   bench.Load
	broker *harness.Broker
	dir    string
	rounds []bench.Round
}

// newSide starts the broker; end has to be called.
func newSide(ctx context.Context, bin, name string, o bench.Options) (*side, error) {
	dir, err := os.MkdirTemp("", "fila-promises-")
	if err != nil {
		return nil, err
	}
	s := &side{name: name, dir: dir}
	if s.broker, err = harness.New(bin, dir, "--storage.sync", "always"); err != nil {
		return s, err
	}
	if err := s.broker.Start(); err != nil {
		return s, err
	}
	if err := s.broker.Ready(ctx); err != nil {
		return s, err
	}
	peer, _, pid, err := bench.Server{Addr: s.broker.Addr()}.Connect(ctx)
	if err != nil {
		return s, err
	}
	if o.Shape.Queue == "" {
		o.Shape.Queue = "promises"
	}
	s.load = bench.Load{Peer: peer, PID: pid, Options: o, Watch: watch(name)}
	return s, s.load.Prepare(ctx)
}

// watch shows how a backlog grows: it takes minutes.
func watch(name string) func(stage string, done, total int64, timed bool) {
	var bar *progress.Bar
	return func(stage string, done, total int64, timed bool) {
		if timed || total == 0 {
			return
		}
		if bar == nil {
			bar = progress.New(os.Stderr, name+", "+stage, total)
		}
		bar.Set(done)
		if done >= total {
			bar.Done()
		}
	}
}

func (s *side) end() {
	if s.broker != nil {
		_ = s.broker.Kill() // its directory goes anyway
	}
	_ = os.RemoveAll(s.dir)
}

// cycle is the load of most: 64 connections, 16 messages at once, 256 bytes.
func cycle(o *options, keys int) bench.Options {
	return bench.Options{
		Workload: bench.Cycle, Conns: 64, Pipeline: 16, Duration: o.time, Warmup: time.Second, Rounds: 1,
		Shape: bench.Shape{Payload: 256, Keys: keys},
	}
}

// compare measures two sides in turns and prints the ratio of the second to the first.
func compare(ctx context.Context, o *options, promised float64, names [2]string, loads [2]bench.Options) error {
	var sides []*side
	defer func() {
		for _, s := range sides {
			s.end()
		}
	}()
	for i, name := range names {
		s, err := newSide(ctx, o.bin, name, loads[i])
		if s != nil {
			sides = append(sides, s)
		}
		if err != nil {
			return err
		}
	}
	for round := range o.rounds {
		order := slices.Clone(sides)
		if round%2 == 1 { // who goes first changes
			slices.Reverse(order)
		}
		for _, s := range order {
			r, err := s.load.Round(ctx, s.name)
			if err != nil {
				return err
			}
			s.rounds = append(s.rounds, r)
		}
	}
	var medians []bench.Round
	for _, s := range sides {
		r := bench.NewReport(s.name, s.broker.Addr(), &s.load.Options, s.rounds)
		medians = append(medians, r.Median)
		say("| %s | %.0f/s | %.1f µs | %d MiB |", s.name, r.Median.Rate, r.Median.CPU, r.Median.Peak>>20)
	}
	ratio := medians[1].Rate / medians[0].Rate
	say("%s: %.2f of the rate, promised at least %.2f: %s\n", names[1], ratio, promised, kept(ratio >= promised))
	return nil
}

func hook(ctx context.Context, o *options) error {
	source, err := os.ReadFile(o.hook)
	if err != nil {
		return err
	}
	plain, hooked := cycle(o, 100), cycle(o, 100)
	hooked.Shape.Hook = string(source)
	return compare(ctx, o, 0.85, [2]string{"keys given", "with " + filepath.Base(o.hook)}, [2]bench.Options{plain, hooked})
}

func manyKeys(ctx context.Context, o *options) error {
	return compare(ctx, o, 0.9, [2]string{"10 keys", fmt.Sprintf("%d keys", o.keys)}, [2]bench.Options{cycle(o, 10), cycle(o, o.keys)})
}

func backlog(ctx context.Context, o *options) error {
	empty, full := cycle(o, 100), cycle(o, 100)
	full.Backlog = o.backlog
	return compare(ctx, o, 0.9, [2]string{"nothing stored", fmt.Sprintf("%d messages stored", o.backlog)}, [2]bench.Options{empty, full})
}

// wait measures one message at a time, and batches.
func wait(ctx context.Context, o *options) error {
	for _, pipeline := range []int{1, 16} {
		if err := waitWith(ctx, o, pipeline); err != nil {
			return err
		}
	}
	return nil
}

func waitWith(ctx context.Context, o *options, pipeline int) error {
	s, err := newSide(ctx, o.bin, "wait", bench.Options{
		Workload: bench.Wait, Conns: 16, Pipeline: pipeline, Rate: bench.Rate{Share: 0.5}, Duration: o.time, Warmup: time.Second, Rounds: 1,
		Shape: bench.Shape{Payload: 256, Keys: 100},
	})
	if s != nil {
		defer s.end()
	}
	if err != nil {
		return err
	}
	for range o.rounds {
		r, err := s.load.Round(ctx, "wait")
		if err != nil {
			return err
		}
		s.rounds = append(s.rounds, r)
	}
	r := bench.NewReport("wait", "", &s.load.Options, s.rounds)
	l := r.Median.Latency["deliver"]
	say("to a waiting consumer, 16 producers × %d and 16 consumers, %.0f/s (half of the most): p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, max %.1f ms; "+
		"promised below 0.5 and 2: %s\n", pipeline, r.Median.Asked, l.P50, l.P99, l.P999, l.Max, kept(l.P50 < 0.5 && l.P99 < 2))
	return nil
}

// long measures whether the rate holds.
func long(ctx context.Context, o *options) error {
	load := cycle(o, 100)
	load.Rate, load.Duration = bench.Rate{Share: 0.7}, o.long
	s, err := newSide(ctx, o.bin, "long", load)
	if s != nil {
		defer s.end()
	}
	if err != nil {
		return err
	}
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

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// Peers puts Fila and other brokers under the same load on the same machine, alternately, and
// compares them. It starts every server itself, on loopback and in a temporary directory, and
// touches no other. Systems that are not installed are listed and skipped.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/progress"
)

// options are the values of the flags.
type options struct {
	bin    string
	plain  string
	natsd  string
	source string // directory of this program's source, for drivers in other languages
	out    string
	rounds int
	time   time.Duration
	warmup time.Duration
	nodes  bool
	only   string
	cases  string
	quick  bool
	// backlog is the number of messages in the queues of systems that store some.
	backlog int64
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.StringVar(&o.plain, "plain", "bin/fila-plain", "the `binary` of the broker's plain build")
	flag.StringVar(&o.natsd, "natsd", "bin/natsd", "the `binary` of the NATS server")
	flag.StringVar(&o.source, "source", "integration/peers", "`directory` of this program's source")
	flag.StringVar(&o.out, "out", "", "`directory` for peers.json, peers.md and plots; nothing is written if empty")
	flag.IntVar(&o.rounds, "rounds", 5, "`rounds` of each system")
	flag.DurationVar(&o.time, "time", 5*time.Second, "`duration` of a round")
	flag.DurationVar(&o.warmup, "warmup", time.Second, "`duration` of the warm-up before a round")
	flag.BoolVar(&o.nodes, "nodes", false, "compare clusters of three nodes in place of single servers")
	flag.StringVar(&o.only, "only", "", "`systems` to measure, separated by commas; all if empty")
	flag.StringVar(&o.cases, "cases", "", "`cases` to measure, separated by commas; all if empty, which takes about 40 minutes")
	flag.Int64Var(&o.backlog, "backlog", 1_000_000, "`messages` that are stored in Fila and in Redis in the case backlog-64x16")
	flag.BoolVar(&o.quick, "quick", false, "three rounds of two seconds; without -cases only those with a *, at most five minutes in total")
	flag.Usage = func() { usage(&o) }
	flag.Parse()
	if o.quick {
		o.rounds, o.time, o.warmup = 3, 2*time.Second, 500*time.Millisecond
	}
	harness.Main("peers", func(ctx context.Context) (int, error) { return harness.Done(measureAll(ctx, o, os.Stdout)) })
}

// usage writes the help.
func usage(o *options) {
	w := flag.CommandLine.Output()
	fmt.Fprintf(w, `peers puts Fila and other brokers under the same load, in turns, and compares them.
It starts every server that a chosen case needs, and ends with what is promised, what
was seen and whether it was kept.

  peers -quick                                        within five minutes
  peers -only fila,redis-always -rounds 7             beside Redis alone
  peers -cases cycle-1k,cycle-16k,cycle-256k          sizes of messages
  peers -cases weak-cycle-64x16,weak-enqueue-50x16    synced after the reply
  peers -cases wait-200,wait-5000 -time 20s           latency and CPU at low rates
  peers -cases backlog-64x16 -backlog 10000000        with 10,000,000 messages stored

`)
	flag.PrintDefaults()
	listCases(w, o)
}

func measureAll(ctx context.Context, o options, w io.Writer) error {
	cases, err := chosenCases(&o)
	if err != nil {
		return err
	}
	if o.rounds < 1 || o.backlog < 1 {
		return fmt.Errorf("-rounds %d and -backlog %d must be at least 1", o.rounds, o.backlog)
	}
	root, err := os.MkdirTemp("", "fila-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	r := &run{options: o, root: root, redis: map[string]*redisServer{}}
	defer r.end()
	all, absent, err := r.startAll(ctx, cases)
	if err != nil {
		return err
	}
	cases = slices.DeleteFunc(cases, func(c testCase) bool { return len(c.of(all)) == 0 })
	results := newResults(&o, absent)
	for i := range cases {
		c := &cases[i]
		if err = results.measure(ctx, c, c.of(all), &o, fmt.Sprintf("%s (%d of %d)", c.Name, i+1, len(cases))); err != nil {
			results.Cases = results.Cases[:i] // the cases before are complete
			break
		}
	}
	results.writeTable(w)
	results.writeSummary(w)
	if err != nil || o.out == "" {
		return err
	}
	return results.write(o.out)
}

// of returns the systems that the case is for.
func (c *testCase) of(all []*running) []*running {
	return slices.DeleteFunc(slices.Clone(all), func(s *running) bool { return !c.has(s.system.ID) })
}

// measure measures all rounds of a case, its systems in turns.
func (r *results) measure(ctx context.Context, c *testCase, systems []*running, o *options, title string) error {
	for _, s := range systems {
		if !s.system.stored {
			continue
		}
		if err := s.fill(ctx, c, o); err != nil {
			return fmt.Errorf("%s, %s: fill the queue: %w", s.system.ID, c.Name, err)
		}
	}
	defer empty(ctx, systems)
	bar := progress.New(os.Stderr, title, int64(o.rounds*len(systems)))
	defer bar.Done()
	taken := r.add(c)
	done := int64(0)
	for round := range o.rounds {
		// The order varies, since the disk's speed varies over time.
		order := slices.Clone(systems)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			one, err := s.measure(ctx, c, o)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", s.system.ID, c.Name, err)
			}
			taken[s.system.ID] = append(taken[s.system.ID], one)
			done++
			bar.Set(done)
		}
	}
	r.sum(c, systems, taken)
	return nil
}

// startAll starts the chosen systems that a case needs, as far as they are installed, and lists the others.
func (r *run) startAll(ctx context.Context, cases []testCase) (all []*running, absent []string, err error) {
	table := allSystems(&r.options)
	var ids []string
	for i := range table {
		ids = append(ids, table[i].ID)
	}
	if err := checkNames("-only", r.only, ids); err != nil {
		return nil, nil, err
	}
	for i := range table {
		s := &table[i]
		if !chosen(r.only, s.ID) || !slices.ContainsFunc(cases, func(c testCase) bool { return c.has(s.ID) }) {
			continue
		}
		one, err := s.start(ctx, r)
		if err != nil && isMissing(err) {
			absent = append(absent, fmt.Sprintf("%s (%s): %v", s.Name, s.Settings, err))
			fmt.Fprintf(os.Stderr, "left out: %s\n", absent[len(absent)-1])
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.ID, err)
		}
		one.system = s
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, nil, errors.New("no system to measure: none of -only that is installed is in a case of -cases; see -help")
	}
	return all, absent, nil
}

// measure runs one round of one system.
func (s *running) measure(ctx context.Context, c *testCase, o *options) (bench.Round, error) {
	if s.round != nil {
		return s.round(ctx, c, o)
	}
	if s.load != nil {
		return s.load.Round(ctx, c.Name)
	}
	rounds, err := s.loadOf(c, o).Run(ctx)
	if err != nil {
		return bench.Round{}, err
	}
	return rounds[0], nil
}

// loadOf returns the load of a case.
func (s *running) loadOf(c *testCase, o *options) *bench.Load {
	return &bench.Load{Peer: s.peer, PID: s.pid, Options: bench.Options{
		Workload: c.Workload, Conns: c.Conns, Pipeline: c.Pipeline, Rate: bench.Rate{PerSecond: c.Rate},
		Duration: o.time, Warmup: o.warmup, Rounds: 1,
		Shape: bench.Shape{Queue: "fila-peers", Payload: c.Payload, Keys: keys},
	}}
}

// settled is how long a server may take to finish what filling its queue has caused.
const settled = time.Minute

// fill stores messages in the queue, which keeps them from round to round.
func (s *running) fill(ctx context.Context, c *testCase, o *options) error {
	l := s.loadOf(c, o)
	l.Options.Backlog = o.backlog
	bar := progress.New(os.Stderr, s.system.ID+", messages stored", o.backlog)
	defer bar.Done()
	l.Watch = func(_ string, done, _ int64, _ bool) { bar.Set(done) }
	if err := l.Prepare(ctx); err != nil {
		return err
	}
	l.Watch = nil
	s.load = l
	return bench.Settle(ctx, s.pid, settled)
}

// empty removes the queues that were filled. Their servers end with the run, so that an error has no
// consequence.
func empty(ctx context.Context, systems []*running) {
	for _, s := range systems {
		if s.load != nil {
			_ = s.load.Clean(ctx)
			s.load = nil
		}
	}
}

// moduleVersion returns the version of a module built into this program.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return ""
}

// packageVersion returns the version of an installed npm package.
func packageVersion(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return ""
	}
	var p struct{ Version string }
	if err := json.Unmarshal(text, &p); err != nil {
		return ""
	}
	return p.Version
}

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
	flag.StringVar(&o.cases, "cases", "", "`cases` to measure, separated by commas; all if empty")
	quick := flag.Bool("quick", false, "three rounds of two seconds, at most five minutes in total")
	flag.Parse()
	if *quick {
		o.rounds, o.time, o.warmup = 3, 2*time.Second, 500*time.Millisecond
	}
	harness.Main("peers", func(ctx context.Context) (int, error) { return harness.Done(measureAll(ctx, o)) })
}

// testCase is a load for all systems.
type testCase struct {
	Name     string `json:"name"`
	What     string `json:"what"`
	workload bench.Workload
	conns    int
	pipeline int
}

// payload is the size of a message in bytes; keys is the number of fairness keys, which only Fila
// has.
const (
	payload = 256
	keys    = 100
)

func testCases() []testCase {
	return []testCase{
		{"cycle-64x16", "enqueue, lease and ack: 64 connections, 16 messages at once", bench.Cycle, 64, 16},
		{"cycle-16x1", "enqueue, lease and ack: 16 connections, one message at a time", bench.Cycle, 16, 1},
		{"enqueue-50x16", "enqueue alone: 50 connections, 16 messages at once", bench.Enqueue, 50, 16},
		{"enqueue-50x1", "enqueue alone: 50 connections, one message at a time", bench.Enqueue, 50, 1},
	}
}

// chosen reports whether a comma-separated list contains a name; an empty list contains all.
func chosen(list, name string) bool {
	return list == "" || slices.Contains(strings.Split(list, ","), name)
}

func measureAll(ctx context.Context, o options) error {
	root, err := os.MkdirTemp("", "fila-peers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	r := &run{options: o, root: root, redis: map[string]*redisServer{}}
	defer r.end()
	all, absent, err := r.startAll(ctx)
	if err != nil {
		return err
	}
	results := newResults(&o, absent)
	bar := progress.New(os.Stderr, "rounds", int64(countRounds(all, &o)))
	defer bar.Done()
	done := int64(0)
	for _, c := range testCases() {
		if !chosen(o.cases, c.Name) || !slices.ContainsFunc(all, func(s *running) bool { return s.system.does(&c) }) {
			continue
		}
		taken := results.add(&c)
		for round := range o.rounds {
			// The order varies, since the disk's speed varies over time.
			order := slices.Clone(all)
			slices.Reverse(order[:len(order)*(round%2)])
			for _, s := range order {
				if !s.system.does(&c) {
					continue
				}
				one, err := s.measure(ctx, &c, &o)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.system.ID, c.Name, err)
				}
				taken[s.system.ID] = append(taken[s.system.ID], one)
				done++
				bar.Set(done)
			}
		}
		results.sum(&c, all, taken)
	}
	bar.Done()
	if err := results.writeTable(os.Stdout); err != nil {
		return err
	}
	if o.out == "" {
		return nil
	}
	return results.write(o.out)
}

func countRounds(all []*running, o *options) int {
	n := 0
	for _, c := range testCases() {
		for _, s := range all {
			if s.system.does(&c) && chosen(o.cases, c.Name) {
				n += o.rounds
			}
		}
	}
	return n
}

func (s *system) does(c *testCase) bool { return s.only == nil || slices.Contains(s.only, c.Name) }

// startAll starts the installed systems and lists the others.
func (r *run) startAll(ctx context.Context) (all []*running, absent []string, err error) {
	table := systems()
	if r.nodes {
		table = clusters()
	}
	for i := range table {
		s := &table[i]
		if !chosen(r.only, s.ID) {
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
		return nil, nil, errors.New("no system to measure; see -only")
	}
	return all, absent, nil
}

// measure runs one round of one system.
func (s *running) measure(ctx context.Context, c *testCase, o *options) (bench.Round, error) {
	if s.round != nil {
		return s.round(ctx, c, o)
	}
	l := bench.Load{Peer: s.peer, PID: s.pid, Options: bench.Options{
		Workload: c.workload, Conns: c.conns, Pipeline: c.pipeline, Duration: o.time, Warmup: o.warmup, Rounds: 1,
		Shape: bench.Shape{Queue: "fila-peers", Payload: payload, Keys: keys},
	}}
	rounds, err := l.Run(ctx)
	if err != nil {
		return bench.Round{}, err
	}
	return rounds[0], nil
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

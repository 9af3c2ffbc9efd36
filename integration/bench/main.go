// Bench measures a broker from outside. Each benchmark has a name:
//
//	go run ./integration/bench backlog -n 10000000
//
// It starts the binary itself, on loopback and in temporary directories. Alternatives are measured
// alternately, each with its own broker. `fila bench` is the same load for users; integration/peers
// puts it on other brokers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/faisca/fila/integration/harness"
)

// benchmark is a subcommand: prepare registers its flags and returns the function that runs it.
type benchmark struct {
	name, what string
	sync       string // default of -sync
	prepare    func(flags *flag.FlagSet, c *common) func(context.Context) error
}

func benchmarks() []benchmark {
	return []benchmark{
		{"backlog", "fill a long queue, restart the broker after a kill and after a stop, drain a part", "never", prepareBacklog},
		{"budgets", "memory and start with a million budgets, and the time from a credit to a waiting consumer", "always", prepareBudgets},
		{"catchup", "the rate of a leader while a follower that was away gets what it has missed; the size of the logs", "always", prepareCatchup},
		{"churn", "fill and drain repeatedly with new keys, and check whether memory grows", "never", prepareChurn},
		{"connections", "memory of blocked and idle connections, and their effect on the latency of others", "always", prepareConnections},
		{"cycle", "rates of one binary, or of two measured alternately", "always", prepareCycle},
		{"failover", "for how long clients wait when the leader of a cluster is killed, ends in order, or hands over", "always", prepareFailover},
		{"nodes", "the cycle on three nodes beside that of a broker alone, directly and through a follower; a cluster without work", "always", prepareNodes},
		{"operators", "what other clients wait for while operators watch, search and redrive at a million keys", "never", prepareOperators},
		{"promises", "the cycle with a hook, many keys and a large backlog, each compared with the cycle without; latency to waiting consumers; sustained load", "always", preparePromises},
		{"scheduler", "enqueue and lease with one key, many keys and throttles; needs redis-benchmark", "always", prepareScheduler},
		{"topics", "a publish to several queues beside as many enqueues, an ordered queue beside another, and what both cost other messages", "always", prepareTopics},
	}
}

func main() {
	harness.Main("bench", func(ctx context.Context) (int, error) {
		run, err := parse(os.Args[1:], os.Stderr)
		if errors.Is(err, flag.ErrHelp) {
			return harness.Kept, nil
		}
		if err != nil {
			return harness.Failed, err
		}
		return harness.Done(run(ctx))
	})
}

// parse returns the function that runs the benchmark named by the arguments. Help is written to
// help.
func parse(args []string, help io.Writer) (func(context.Context) error, error) {
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		usage(help)
		return nil, flag.ErrHelp
	}
	i := slices.IndexFunc(benchmarks(), func(b benchmark) bool { return b.name == args[0] })
	if i < 0 {
		usage(help)
		return nil, fmt.Errorf("unknown benchmark %q", args[0])
	}
	b := benchmarks()[i]
	flags := flag.NewFlagSet(b.name, flag.ContinueOnError)
	flags.SetOutput(help)
	c := &common{}
	flags.StringVar(&c.bin, "bin", "bin/fila", "the broker's `binary`")
	flags.StringVar(&c.dir, "dir", "", "`directory` for the data, removed at the end (default: a temporary one)")
	flags.StringVar(&c.sync, "sync", b.sync, "storage.sync of the `broker`")
	run := b.prepare(flags, c)
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%s takes no argument %q", b.name, flags.Arg(0))
	}
	return run, nil
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "usage: bench <benchmark> [flags]; bench <benchmark> -help lists its flags")
	for _, b := range benchmarks() {
		fmt.Fprintf(w, "  %-12s %s\n", b.name, b.what)
	}
}

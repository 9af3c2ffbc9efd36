package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faisca/fila/cli/remote"
	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/progress"
)

// benchFlags are what `fila bench` is told.
type benchFlags struct {
	addr  string
	rate  string
	hook  string
	json  bool
	queue string
	bench.Options
}

func benchCommand(proc Process) *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench [cycle|enqueue|wait|drain]",
		Short: "Put a running broker under load and measure it",
		Long: `Measures the broker at --addr: throughput, latency, and what the server's process
used. It makes a queue of its own, and removes it when it is done or stopped. It
talks to no other address.

  cycle     enqueue a batch, lease as many messages, ack them (what a broker is for)
  enqueue   enqueue only
  wait      enqueue to consumers that wait: how long until a message is there
  drain     lease and ack a --backlog until it is gone

Without --rate each connection sends its next batch when the last is done, which
finds the greatest throughput; its latencies are those of a server that is never
left idle. With --rate batches are due at that rate, and latency counts from when a
batch was due, so that a pause of the server counts for all that it kept waiting: the
latencies to believe. Measure them below the greatest rate, as with --rate 70%.

A Redis server at --addr is measured as well, by the same client: its streams, with
XADD, XREADGROUP, and XACK with XDEL.

CPU is that of all of the server's threads, for a message, compaction and other
rest until it is idle again included. It is known for a server on this machine only.
At a low --rate it shows what one message costs that meets an idle server.

A --backlog of cycle is enqueued before the first round and stays: each cycle takes
the oldest messages and adds as many. To compare, measure the same without it, and a
Redis server with and without. With large messages lower -c and -P: so many are in
memory at once.

The password, if there is one, is taken from FILA_AUTH__PASSWORD.`,
		Example: `  fila bench                                  64 connections, 16 messages at once, 100 keys
  fila bench cycle -c 16 -P 1                 without pipelining
  fila bench enqueue -c 50 -P 16 -d 1024      enqueueing alone, 1 KiB
  fila bench cycle -c 16 -P 4 -d 262144       messages of 256 KiB, 64 of them at once
  fila bench wait -c 16 -P 1 --rate 50%       latency at half of the greatest rate
  fila bench wait -c 16 -P 1 --rate 200       latency and CPU of a message at 200 a second
  fila bench --rate 70% -t 10m --rounds 1     ten minutes: does the rate hold, how long is a pause?
  fila bench --backlog 10000000               with 10,000,000 messages in the queue
  fila bench --keys 1000000                   with as many fairness keys
  fila bench --hook tenants.lua               with an on_enqueue hook (keys go in the header tenant)
  fila bench --addr 127.0.0.1:6379            Redis streams, to compare
  fila bench --json | jq .median.rate         for programs`,
		Args: func(_ *cobra.Command, args []string) error { return f.setWorkload(args) },
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), proc) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.addr, "addr", "127.0.0.1:5555", "`host:port` of the server")
	fs.IntVarP(&f.Conns, "connections", "c", 64, "`connections`; of wait as many producers and as many consumers")
	fs.IntVarP(&f.Pipeline, "pipeline", "P", 16, "`messages` that a connection sends, leases and acks at once")
	fs.IntVarP(&f.Shape.Payload, "payload", "d", 256, "`bytes` of a message")
	fs.IntVarP(&f.Shape.Keys, "keys", "k", 100, "fairness `keys`, one by chance for each message; 0: none is given")
	fs.IntVar(&f.Shape.Throttles, "throttles", 0, "throttle `keys` of each message, which hold nothing back")
	fs.StringVar(&f.hook, "hook", "", "`file` with an on_enqueue hook; each message then has its key in the header tenant")
	fs.Int64Var(&f.Backlog, "backlog", 0, "`messages` that are in the queue before; not with wait")
	fs.StringVar(&f.rate, "rate", "", "messages a second, or a share of the greatest `rate` as in 70%; empty: as fast as can be")
	fs.DurationVarP(&f.Duration, "time", "t", 5*time.Second, "`duration` of a round")
	fs.DurationVar(&f.Warmup, "warmup", time.Second, "`duration` of what comes before and does not count")
	fs.IntVarP(&f.Rounds, "rounds", "r", 3, "`times` it is measured; medians are shown")
	fs.StringVar(&f.queue, "queue", "", "`name` of the queue, which must not exist; empty: fila-bench- and a number")
	fs.BoolVar(&f.json, "json", false, "print JSON, with every round and second")
	return cmd
}

func (f *benchFlags) setWorkload(args []string) error {
	f.Workload = bench.Cycle
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, w := range bench.Workloads() {
		names = append(names, string(w))
		if len(args) == 1 && args[0] == string(w) {
			f.Workload = w
			return nil
		}
	}
	return UsageError{Err: fmt.Errorf("bench measures one of %s, not %q", strings.Join(names, ", "), strings.Join(args, " "))}
}

// check makes the options of what the flags say.
func (f *benchFlags) check() error {
	var err error
	if err = remote.CheckAddr(f.addr); err != nil {
		return fmt.Errorf("--addr %w", err)
	}
	if f.Rate, err = bench.ParseRate(f.rate); err != nil {
		return fmt.Errorf("--rate: %w", err)
	}
	if f.hook != "" {
		source, err := os.ReadFile(f.hook)
		if err != nil {
			return fmt.Errorf("--hook: %w", err)
		}
		f.Shape.Hook = string(source)
	}
	f.Shape.Queue = f.queue
	if f.queue == "" {
		f.Shape.Queue = "fila-bench-" + strconv.FormatInt(time.Now().UnixMilli(), 10)
	}
	return f.Check()
}

func (f *benchFlags) run(ctx context.Context, proc Process) error {
	if err := f.check(); err != nil {
		return UsageError{Err: err}
	}
	server := bench.Server{Addr: f.addr, Password: envOf(proc.Environ, envPrefix+"AUTH__PASSWORD")}
	peer, name, pid, err := server.Connect(ctx)
	if err != nil {
		return err
	}
	load := bench.Load{Peer: peer, PID: pid, Options: f.Options}
	done := func() {}
	if w, ok := proc.Stderr.(*os.File); ok {
		load.Watch, done = watch(w)
	}
	rounds, err := load.Run(ctx)
	done()
	if err != nil {
		return err
	}
	r := bench.NewReport(name, f.addr, &f.Options, rounds)
	return f.write(proc.Stdout, &r)
}

func (f *benchFlags) write(w io.Writer, r *bench.Report) error {
	if f.json {
		return r.WriteJSON(w)
	}
	return r.WriteTable(w)
}

// watch shows each stage as a bar of its own, on a terminal. done ends the last one.
func watch(w *os.File) (set func(stage string, done, total int64, timed bool), done func()) {
	if !onTerminal(w) {
		return func(string, int64, int64, bool) {}, func() {}
	}
	var bar *progress.Bar
	shown := ""
	done = func() {
		if bar != nil {
			bar.Done()
		}
	}
	return func(stage string, at, total int64, timed bool) {
		if stage != shown {
			done()
			shown = stage
			if timed {
				bar = progress.NewTimed(w, stage, total)
			} else {
				bar = progress.New(w, stage, total)
			}
		}
		bar.Set(at)
	}, done
}

// envOf is a variable's value, empty when there is none.
func envOf(environ []string, name string) string {
	for _, v := range environ {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

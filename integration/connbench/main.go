// Connbench measures what connections cost that have nothing to do: memory for
// each, and how long the others wait. Half of them wait in a lease, half are idle.
// The same load runs without them and beside them, in turns, at a fixed rate.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/proc"
)

type options struct {
	bin    string
	sync   string
	n      int
	rate   int
	rounds int
	for1   time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/fila", "the broker's `binary`")
	flag.StringVar(&o.sync, "sync", "always", "the broker's storage.sync")
	flag.IntVar(&o.n, "n", 10_000, "`connections` besides those of the load")
	flag.IntVar(&o.rate, "rate", 1000, "`messages` a second, each enqueued, leased and acked")
	flag.IntVar(&o.rounds, "rounds", 3, "how `often` each is measured")
	flag.DurationVar(&o.for1, "for", 5*time.Second, "how `long` a round takes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "connbench: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if err := openFiles(o.n + 500); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fila-connbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := harness.New(o.bin, dir, "--storage.sync", o.sync, "--server.maxclients", fmt.Sprint(o.n+500))
	if err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := b.Ready(ctx); err != nil {
		return err
	}
	l := &load{client: redis.NewClient(&redis.Options{Addr: b.Addr(), PoolSize: workers, MinIdleConns: workers, MaxRetries: -1}), o: o}
	defer l.client.Close()
	for _, queue := range []string{"busy", "idle"} {
		if err := l.client.Do(ctx, "FILA.QUEUE", "CREATE", queue).Err(); err != nil {
			return err
		}
	}
	if _, err := l.measure(ctx); err != nil { // warms up
		return err
	}
	var alone, loaded []time.Duration
	var bytes int64
	for range o.rounds {
		times, err := l.measure(ctx)
		if err != nil {
			return err
		}
		alone = append(alone, times...)
		times, each, err := l.loaded(ctx, b)
		if err != nil {
			return err
		}
		loaded = append(loaded, times...)
		bytes = max(bytes, each)
	}
	report(o, bytes, alone, loaded)
	return nil
}

func report(o options, bytes int64, alone, loaded []time.Duration) {
	fmt.Printf("%d connections, half of them in FILA.LEASE with BLOCK 0: at most %.1f KiB resident each\n", o.n, float64(bytes)/1024)
	fmt.Printf("enqueue, lease and ack, %d a second over %d connections, storage.sync %s:\n", o.rate, workers, o.sync)
	for _, r := range []struct {
		name  string
		times []time.Duration
	}{{"alone", alone}, {"beside them", loaded}} {
		slices.Sort(r.times)
		at := func(p float64) time.Duration {
			return r.times[int(float64(len(r.times)-1)*p)].Round(10 * time.Microsecond)
		}
		fmt.Printf("  %-12s median %8s  p99 %8s  most %8s  (%d)\n", r.name, at(0.5), at(0.99), at(1), len(r.times))
	}
}

// workers is how many connections share the load.
const workers = 32

type load struct {
	client *redis.Client
	o      options
}

// measure puts the load on the broker and returns how long each message took,
// from when it was due.
func (l *load) measure(ctx context.Context) ([]time.Duration, error) {
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	var all sync.WaitGroup
	begun := time.Now()
	every := time.Second * workers / time.Duration(l.o.rate)
	for w := range workers {
		all.Go(func() {
			own := make([]time.Duration, 0, l.o.for1/every+1)
			for due := begun.Add(every * time.Duration(w) / workers); due.Sub(begun) < l.o.for1; due = due.Add(every) {
				time.Sleep(time.Until(due))
				if err := l.cycle(ctx); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
					return
				}
				own = append(own, time.Since(due))
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	all.Wait()
	return times, failed
}

// cycle sends a message through its life. It may lease another's message, which
// is the same work.
func (l *load) cycle(ctx context.Context) error {
	if err := l.client.Do(ctx, "FILA.ENQUEUE", "busy", "hello").Err(); err != nil {
		return err
	}
	messages, err := l.client.Do(ctx, "FILA.LEASE", "busy", "BLOCK", 1000).Slice()
	if err != nil {
		return err
	}
	for _, m := range messages {
		if fields, ok := m.([]any); ok && len(fields) > 0 {
			if err := l.client.Do(ctx, "FILA.ACK", "busy", fields[0]).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// loaded measures while the connections are there, and what each of them has
// added to the memory of the broker.
func (l *load) loaded(ctx context.Context, b *harness.Broker) (times []time.Duration, each int64, err error) {
	before, err := proc.UseOf(b.PID())
	if err != nil {
		return nil, 0, err
	}
	conns, err := connectAll(ctx, b.Addr(), l.o.n)
	if err == nil {
		err = l.waiting(ctx, l.o.n/2)
	}
	if err == nil {
		times, err = l.measure(ctx)
	}
	after, useErr := proc.UseOf(b.PID())
	for _, c := range conns {
		_ = c.Close() // nothing was to come on it
	}
	if err = errors.Join(err, useErr); err == nil {
		err = l.waiting(ctx, 0)
	}
	return times, (int64(after.Resident) - int64(before.Resident)) / int64(l.o.n), err
}

// waiting waits until so many connections wait for the idle queue.
func (l *load) waiting(ctx context.Context, n int) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stats, err := l.client.Do(ctx, "FILA.STATS", "idle").Result()
		if err != nil {
			return err
		}
		if m, ok := stats.(map[any]any); ok && m["waiters"] == int64(n) {
			return nil
		}
	}
	return fmt.Errorf("not %d connections wait", n)
}

// connectAll opens connections; every other one waits in a lease.
func connectAll(ctx context.Context, addr string, n int) (conns []net.Conn, err error) {
	var d net.Dialer
	for i := range n {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return conns, fmt.Errorf("connection %d: %w", i+1, err)
		}
		conns = append(conns, c)
		command := "FILA.LEASE idle BLOCK 0\r\n"
		if i%2 == 1 {
			command = "PING\r\n" // one that has been used
		}
		if _, err := c.Write([]byte(command)); err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// openFiles raises the limit of open files, which the broker inherits.
func openFiles(n int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	need := uint64(n)
	if limit.Cur >= need {
		return nil
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: max(need, limit.Max)}); err != nil {
		return fmt.Errorf("%d open files are needed (ulimit -n): %w", n, err)
	}
	return nil
}

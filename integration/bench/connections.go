package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/internal/proc"
)

// This file measures the cost of connections without traffic: the memory of each, and the latency
// of other clients. Half of them block in a lease, half are idle. The same load at a fixed rate is
// measured alternately without and with them.

// connectionBench holds the flags and the state of the benchmark.
type connectionBench struct {
	*common

	n      int
	rate   int
	rounds int
	length time.Duration

	client *redis.Client
}

func prepareConnections(flags *flag.FlagSet, c *common) func(context.Context) error {
	l := &connectionBench{common: c}
	flags.IntVar(&l.n, "n", 10_000, "`connections` in addition to those of the load")
	flags.IntVar(&l.rate, "rate", 1000, "`messages` per second, each enqueued, leased and acked")
	flags.IntVar(&l.rounds, "rounds", 3, "`rounds` of each measurement")
	flags.DurationVar(&l.length, "for", 5*time.Second, "`duration` of a round")
	return l.run
}

func (l *connectionBench) run(ctx context.Context) error {
	if l.n < 1 || l.rounds < 1 {
		return fmt.Errorf("-n %d -rounds %d: want at least one of each", l.n, l.rounds)
	}
	if err := openFiles(l.n + 500); err != nil {
		return err
	}
	s, err := l.startServer(ctx, l.bin, "--server.maxclients", strconv.Itoa(l.n+500))
	if err != nil {
		return err
	}
	defer s.end()
	l.client = redis.NewClient(&redis.Options{Addr: s.Addr(), PoolSize: workers, MinIdleConns: workers, MaxRetries: -1})
	defer l.client.Close()
	for _, queue := range []string{"busy", "idle"} {
		if err := l.client.Do(ctx, "FILA.QUEUE", "CREATE", queue).Err(); err != nil {
			return err
		}
	}
	if _, err := l.measure(ctx); err != nil { // warm-up
		return err
	}
	var alone, loaded []time.Duration
	var bytes int64
	for range l.rounds {
		times, err := l.measure(ctx)
		if err != nil {
			return err
		}
		alone = append(alone, times...)
		times, each, err := l.loaded(ctx, s)
		if err != nil {
			return err
		}
		loaded = append(loaded, times...)
		bytes = max(bytes, each)
	}
	l.report(bytes, alone, loaded)
	return s.Stop()
}

func (l *connectionBench) report(bytes int64, alone, loaded []time.Duration) {
	say("%d connections, half of them in FILA.LEASE with BLOCK 0: at most %.1f KiB resident each", l.n, float64(bytes)/1024)
	say("enqueue, lease and ack, %d a second over %d connections, storage.sync %s:", l.rate, workers, l.sync)
	for _, r := range []struct {
		name  string
		times []time.Duration
	}{{"alone", alone}, {"beside them", loaded}} {
		slices.Sort(r.times)
		at := func(p float64) time.Duration {
			return r.times[int(float64(len(r.times)-1)*p)].Round(10 * time.Microsecond)
		}
		say("  %-12s median %8s  p99 %8s  most %8s  (%d)", r.name, at(0.5), at(0.99), at(1), len(r.times))
	}
}

// workers is the number of connections of the load.
const workers = 32

// measure runs the load and returns the latency of each message, counted from the time at which it
// was due.
func (l *connectionBench) measure(ctx context.Context) ([]time.Duration, error) {
	var mu sync.Mutex
	var times []time.Duration
	var failed error
	var all sync.WaitGroup
	begun := time.Now()
	every := time.Second * workers / time.Duration(l.rate)
	for w := range workers {
		all.Go(func() {
			own := make([]time.Duration, 0, l.length/every+1)
			for due := begun.Add(every * time.Duration(w) / workers); due.Sub(begun) < l.length; due = due.Add(every) {
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

// cycle enqueues, leases and acks a message. It may lease a message of another worker, which is the
// same work.
func (l *connectionBench) cycle(ctx context.Context) error {
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

// loaded runs the load while the connections are open, and measures the memory that each of them
// adds.
func (l *connectionBench) loaded(ctx context.Context, b *server) (times []time.Duration, each int64, err error) {
	before, err := proc.UseOf(b.PID())
	if err != nil {
		return nil, 0, err
	}
	conns, err := connectAll(ctx, b.Addr(), l.n)
	if err == nil {
		err = l.waiting(ctx, l.n/2)
	}
	if err == nil {
		times, err = l.measure(ctx)
	}
	after, useErr := proc.UseOf(b.PID())
	for _, c := range conns {
		_ = c.Close() // no reply is outstanding
	}
	if err = errors.Join(err, useErr); err == nil {
		err = l.waiting(ctx, 0)
	}
	return times, (int64(after.Resident) - int64(before.Resident)) / int64(l.n), err
}

// waiting waits until n connections block on the idle queue.
func (l *connectionBench) waiting(ctx context.Context, n int) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stats, err := l.client.Do(ctx, "FILA.STATS", "idle").Result()
		if err != nil {
			return err
		}
		if m, ok := stats.(map[any]any); ok && m["waiters"] == int64(n) {
			return nil
		}
	}
	return fmt.Errorf("fewer than %d connections block in a lease", n)
}

// connectAll opens connections; every other one blocks in a lease.
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
			command = "PING\r\n" // a connection that has been used
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

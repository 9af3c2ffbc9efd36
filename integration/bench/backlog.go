package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/proc"
)

// This file measures the cost of a long queue. It fills one and reports the rate and the broker's
// resident memory; it restarts the broker, after a kill and after a stop, and reports the time from
// exec until the first lease is answered; finally it drains a part of the queue. storage.sync is
// never by default, since the cost of the queue's length is measured, not the disk's fsync.

// longQueue is the name of the queue.
const longQueue = "backlog"

// Maximum costs of a long queue.
const (
	residentMax   = 512 << 20 // bytes
	firstLeaseMax = time.Second
)

// trial is a run of backlog or churn.
type trial struct {
	*common
	*server

	n      int64
	keys   int
	size   int
	conns  int
	drain  int64
	target bool
	churn  time.Duration

	noise    bench.Noise
	breaches []string // missed targets
	before   int64    // messages of earlier rounds of churn
}

// newTrial registers the flags common to backlog and churn.
func newTrial(flags *flag.FlagSet, c *common) *trial {
	t := &trial{common: c}
	flags.Int64Var(&t.n, "n", 1_000_000, "`messages`")
	flags.IntVar(&t.size, "size", 256, "`bytes` of a message, at least 8")
	flags.IntVar(&t.conns, "conns", 4, "`connections` that fill and drain the queue")
	return t
}

func prepareBacklog(flags *flag.FlagSet, c *common) func(context.Context) error {
	t := newTrial(flags, c)
	flags.IntVar(&t.keys, "keys", 100, "fairness `keys`")
	flags.Int64Var(&t.drain, "drain", 200_000, "`messages` to lease and ack at the end")
	flags.BoolVar(&t.target, "target", false, "fail if resident memory exceeds 512 MB or the first lease takes longer than 1 s")
	return func(ctx context.Context) error {
		say("%d messages of %d bytes over %d keys, storage.sync=%s", t.n, t.size, t.keys, t.sync)
		return t.run(ctx, t.fill, t.afterKill, t.afterStop, t.empty)
	}
}

// run executes the steps with a broker and fails if a target was missed.
func (t *trial) run(ctx context.Context, steps ...func(context.Context) error) error {
	if t.size < stampBytes {
		return fmt.Errorf("-size %d: want at least %d bytes", t.size, stampBytes)
	}
	t.noise = bench.NewNoise(t.size)
	// Leases outlast the trial, so messages are leased only once.
	var err error
	if t.server, err = t.prepareServer(t.bin, "--scheduler.visibility_timeout_ms", "3600000"); err != nil {
		return err
	}
	defer t.end()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := t.Stop(); err != nil {
		return err
	}
	for _, breach := range t.breaches {
		say("target missed: %s", breach)
	}
	if len(t.breaches) > 0 && t.target {
		return errors.New("a target was missed")
	}
	return nil
}

// begin starts the broker and creates the queue.
func (t *trial) begin(ctx context.Context) (*bench.Conn, error) {
	if err := t.serve(ctx); err != nil {
		return nil, err
	}
	w, err := bench.Dial(ctx, t.Addr())
	if err != nil {
		return nil, err
	}
	if _, err := w.Do("FILA.QUEUE", "CREATE", longQueue); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// fill enqueues all messages and measures the broker's peak memory.
func (t *trial) fill(ctx context.Context) error {
	w, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	before, err := proc.UseOf(t.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	peak, err := t.inParallel(ctx, "enqueued", t.n, t.enqueue)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	note("memory while enqueued", "%d MB peak resident", peak>>20)
	after, err := proc.UseOf(t.PID())
	if err != nil {
		return err
	}
	cpu := float64((after.CPU - before.CPU).Microseconds()) / float64(t.n)
	note("filled", "%.1f s, %.0f/s, %.1f µs of the broker's CPU each", took.Seconds(), float64(t.n)/took.Seconds(), cpu)
	if err := t.counted(ctx, w, t.n); err != nil {
		return err
	}
	if err := t.memory("memory after filling"); err != nil {
		return err
	}
	note("on disk", "%.2f GB", float64(sizeOf(t.root))/1e9)
	return nil
}

func (t *trial) afterKill(ctx context.Context) error {
	if err := t.Kill(); err != nil {
		return err
	}
	return t.restart(ctx, "after kill -9", t.n-1)
}

func (t *trial) afterStop(ctx context.Context) error {
	begun := time.Now()
	if err := t.Stop(); err != nil {
		return err
	}
	note("stopped", "%.2f s", time.Since(begun).Seconds())
	return t.restart(ctx, "after a stop", t.n-2)
}

// restart starts the broker and measures the time until a lease returns a message. ready is the
// expected number of ready messages.
func (t *trial) restart(ctx context.Context, when string, ready int64) error {
	begun := time.Now()
	if err := t.Start(); err != nil {
		return err
	}
	w, err := t.firstLease(ctx)
	if err != nil {
		return err
	}
	defer w.Close()
	took := time.Since(begun)
	note("first lease "+when, "%d ms after exec", took.Milliseconds())
	if took > firstLeaseMax {
		t.breaches = append(t.breaches, fmt.Sprintf("the first lease %s took %s", when, took))
	}
	if err := t.memory("memory then"); err != nil {
		return err
	}
	begun = time.Now()
	if err := t.counted(ctx, w, ready); err != nil {
		return err
	}
	note("exact counts", "%.2f s later", time.Since(begun).Seconds())
	return t.memory("memory after counting")
}

// firstLease retries until a lease returns a message.
func (t *trial) firstLease(ctx context.Context) (*bench.Conn, error) {
	for ctx.Err() == nil {
		w, err := bench.Dial(ctx, t.Addr())
		if err == nil {
			reply, err := w.Do("FILA.LEASE", longQueue)
			if messages, ok := reply.([]any); ok && len(messages) == 1 {
				return w, nil
			}
			w.Close()
			if err == nil {
				return nil, fmt.Errorf("unexpected reply to the first lease: %v", reply)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil, ctx.Err()
}

// counted waits until the broker's counts are exact and verifies them.
func (t *trial) counted(ctx context.Context, w *bench.Conn, ready int64) error {
	for ctx.Err() == nil {
		reply, err := w.Do("FILA.STATS", longQueue)
		if err != nil {
			return err
		}
		list, _ := reply.([]any)
		stats := map[any]any{}
		for i := 0; i+1 < len(list); i += 2 {
			stats[list[i]] = list[i+1]
		}
		if stats["counting"] == int64(0) {
			if stats["ready"] != ready {
				return fmt.Errorf("%v messages are ready, want %d", stats["ready"], ready)
			}
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// memory reports the broker's memory.
func (t *trial) memory(when string) error {
	u, err := proc.UseOf(t.PID())
	if err != nil {
		return err
	}
	note(when, "%d MB resident (%d MB anonymous), peak %d MB", u.Resident>>20, u.Anon>>20, u.Peak>>20)
	if u.Peak > residentMax {
		t.breaches = append(t.breaches, fmt.Sprintf("%s: peak of %d MB resident", when, u.Peak>>20))
	}
	return nil
}

// note prints a figure.
func note(what, format string, args ...any) {
	say("%-28s %s", what, fmt.Sprintf(format, args...))
}

// sizeOf returns the total size of the files below dir.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that compaction has removed in the meantime
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}

func (t *trial) key(n int64) string {
	if t.churn > 0 {
		return "key-" + strconv.FormatInt(t.before+n, 10)
	}
	return "key-" + strconv.FormatInt(n%int64(t.keys), 10)
}

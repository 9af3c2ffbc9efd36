package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/proc"
)

// queue is the one that is filled.
const queue = "backlog"

// What a long queue may cost at most.
const (
	residentMax   = 512 << 20 // bytes
	firstLeaseMax = time.Second
)

// trial is a run: the broker and the report.
type trial struct {
	options
	broker   *harness.Broker
	breaches []string // of the targets
	before   int64    // messages of the rounds before, when it churns
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp(o.dir, "fila-backlog-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// A lease here lasts longer than the trial, so that what is drained is only what
	// was leased once.
	b, err := harness.New(o.bin, dir, "--storage.sync", o.sync, "--scheduler.visibility_timeout_ms", "3600000")
	if err != nil {
		return err
	}
	defer func() { _ = b.Kill() }()
	t := &trial{options: o, broker: b}
	steps := []func(context.Context, string) error{t.fill, t.afterKill, t.afterStop, t.empty}
	if o.churn > 0 {
		fmt.Printf("%d messages of %d bytes a round, each with a key of its own, storage.sync=%s\n", o.n, o.size, o.sync)
		steps = []func(context.Context, string) error{t.rounds}
	} else {
		fmt.Printf("%d messages of %d bytes over %d keys, storage.sync=%s\n", o.n, o.size, o.keys, o.sync)
	}
	for _, step := range steps {
		if err := step(ctx, dir); err != nil {
			return err
		}
	}
	if err := b.Stop(); err != nil {
		return err
	}
	for _, breach := range t.breaches {
		fmt.Println("target missed: " + breach)
	}
	if len(t.breaches) > 0 && o.target {
		return errors.New("a target was missed")
	}
	return nil
}

// begin starts the broker and makes the queue.
func (t *trial) begin(ctx context.Context) (*wire, error) {
	if err := t.broker.Start(); err != nil {
		return nil, err
	}
	if err := t.broker.Ready(ctx); err != nil {
		return nil, err
	}
	w, err := dial(t.broker.Addr())
	if err != nil {
		return nil, err
	}
	if _, err := w.do("FILA.QUEUE", "CREATE", queue); err != nil {
		w.conn.Close()
		return nil, err
	}
	return w, nil
}

// fill enqueues all messages and watches the broker's memory meanwhile.
func (t *trial) fill(ctx context.Context, dir string) error {
	w, err := t.begin(ctx)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	before, err := proc.UseOf(t.broker.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	peak, err := t.inParallel(ctx, "enqueued", t.n, t.enqueue)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	report("memory while enqueued", "%d MB resident at the most", peak>>20)
	after, err := proc.UseOf(t.broker.PID())
	if err != nil {
		return err
	}
	cpu := float64((after.CPU - before.CPU).Microseconds()) / float64(t.n)
	report("filled", "%.1f s, %.0f/s, %.1f µs of the broker's CPU each", took.Seconds(), float64(t.n)/took.Seconds(), cpu)
	if err := t.counted(ctx, w, t.n); err != nil {
		return err
	}
	if err := t.memory("memory after filling"); err != nil {
		return err
	}
	report("on disk", "%.2f GB", float64(size(dir))/1e9)
	return nil
}

func (t *trial) afterKill(ctx context.Context, _ string) error {
	if err := t.broker.Kill(); err != nil {
		return err
	}
	return t.restart(ctx, "after kill -9", t.n-1)
}

func (t *trial) afterStop(ctx context.Context, _ string) error {
	begun := time.Now()
	if err := t.broker.Stop(); err != nil {
		return err
	}
	report("stopped", "%.2f s", time.Since(begun).Seconds())
	return t.restart(ctx, "after a stop", t.n-2)
}

// restart starts the broker and measures the time until it answers a lease with a
// message. ready is how many messages must be ready after that.
func (t *trial) restart(ctx context.Context, when string, ready int64) error {
	begun := time.Now()
	if err := t.broker.Start(); err != nil {
		return err
	}
	w, err := t.firstLease(ctx)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	took := time.Since(begun)
	report("first lease "+when, "%d ms after exec", took.Milliseconds())
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
	report("exact counts", "%.2f s later", time.Since(begun).Seconds())
	return t.memory("memory after counting")
}

// firstLease tries until a lease is answered with a message.
func (t *trial) firstLease(ctx context.Context) (*wire, error) {
	for ctx.Err() == nil {
		w, err := dial(t.broker.Addr())
		if err == nil {
			reply, err := w.do("FILA.LEASE", queue)
			if messages, ok := reply.([]any); ok && len(messages) == 1 {
				return w, nil
			}
			w.conn.Close()
			if err == nil {
				return nil, fmt.Errorf("the first lease was answered %v", reply)
			}
		}
		time.Sleep(time.Millisecond)
	}
	return nil, ctx.Err()
}

// counted waits until the broker's counts are exact and compares them.
func (t *trial) counted(ctx context.Context, w *wire, ready int64) error {
	for ctx.Err() == nil {
		reply, err := w.do("FILA.STATS", queue)
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
				return fmt.Errorf("%v messages are ready, %d should be", stats["ready"], ready)
			}
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// memory reports what the broker has resident.
func (t *trial) memory(when string) error {
	u, err := proc.UseOf(t.broker.PID())
	if err != nil {
		return err
	}
	report(when, "%d MB resident (%d MB anonymous), %d MB at the most so far", u.Resident>>20, u.Anon>>20, u.Peak>>20)
	if u.Peak > residentMax {
		t.breaches = append(t.breaches, fmt.Sprintf("%s: %d MB resident at the most", when, u.Peak>>20))
	}
	return nil
}

func report(what, format string, args ...any) {
	fmt.Printf("%-28s %s\n", what, fmt.Sprintf(format, args...))
}

// size is how much the files below dir hold together.
func size(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // a file that was compacted away meanwhile
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

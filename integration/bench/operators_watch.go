package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// watched measures the other client without and with what watches the broker: a scrape each
// second, the streams of a dashboard, and fila top of the queues and of the keys.
func (o *operatorBench) watched(ctx context.Context) error {
	var alone, busy probe
	s := &scraper{addr: o.admin, every: time.Second}
	w := &watchers{operatorBench: o}
	turns := turnCounts{}
	for range o.rounds {
		if err := alone.during(ctx, o.Addr(), o.wait); err != nil {
			return err
		}
		before, err := o.turns(ctx)
		if err != nil {
			return err
		}
		err = busy.during(ctx, o.Addr(), func(ctx context.Context) error {
			return s.during(ctx, func(ctx context.Context) error { return w.during(ctx, o.wait) })
		})
		if err != nil {
			return err
		}
		after, err := o.turns(ctx)
		if err != nil {
			return err
		}
		turns.add(after, 1)
		turns.add(before, -1)
	}
	say("watched by a scrape each second, /v1/live of the broker and of a queue, fila top of the queues and of the keys:")
	alone.report("alone")
	busy.report("watched")
	s.report()
	say("%d events of live figures, %d pictures; turns meanwhile: p99 below %s, the longest below %s", w.events.Load(), w.pictures.Load(), turns.below(0.99), turns.below(1))
	if w.events.Load() == 0 || w.pictures.Load() == 0 {
		return errors.New("nothing watched the broker")
	}
	return nil
}

// wait waits for a round.
func (o *operatorBench) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.length):
		return nil
	}
}

// watchers are a dashboard's streams and fila top.
type watchers struct {
	*operatorBench

	events, pictures atomic.Int64
}

// during runs act while they watch.
func (w *watchers) during(ctx context.Context, act func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	ended := make(chan error, 4)
	for _, watch := range []func(context.Context) error{
		func(ctx context.Context) error { return w.live(ctx, "") },
		func(ctx context.Context) error { return w.live(ctx, "?queue="+manyQueue) },
		func(ctx context.Context) error { return w.top(ctx) },
		func(ctx context.Context) error { return w.top(ctx, manyQueue) },
	} {
		all.Go(func() {
			if err := watch(watching); watching.Err() == nil {
				ended <- fmt.Errorf("what watches has ended: %w", err)
			}
		})
	}
	err := act(ctx)
	stop()
	all.Wait()
	select {
	case lost := <-ended:
		return errors.Join(err, lost)
	default:
		return err
	}
}

// live reads a stream of figures.
func (w *watchers) live(ctx context.Context, query string) error {
	return w.get(ctx, "/v1/live"+query, func(line string) {
		if line == "event: figures" {
			w.events.Add(1)
		}
	})
}

// get passes on the lines of a reply of the admin listener.
func (o *operatorBench) get(ctx context.Context, path string, each func(line string)) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.admin+path, http.NoBody)
	if err != nil {
		return err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, r.Status)
	}
	lines := bufio.NewReader(r.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		each(strings.TrimSuffix(line, "\n"))
	}
}

// top reads the pictures of fila top, one each second.
func (w *watchers) top(ctx context.Context, queue ...string) error {
	cmd := w.command(ctx, append([]string{"top", "--batch"}, queue...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "fila top") {
			w.pictures.Add(1)
		}
	}
	return cmd.Wait()
}

func (o *operatorBench) command(ctx context.Context, args ...string) *exec.Cmd {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		bin = o.bin
	}
	return exec.CommandContext(ctx, bin, append(args, "--url", "fila://"+o.Addr())...)
}

// once measures fila top --once, when the figures of the keys are recent and when they are not.
func (o *operatorBench) once(ctx context.Context) error {
	for _, x := range []struct {
		name  string
		after time.Duration
	}{{"old figures", 6 * time.Second}, {"recent figures", 0}} {
		time.Sleep(x.after)
		began := time.Now()
		if out, err := o.command(ctx, "top", "--once").CombinedOutput(); err != nil {
			return fmt.Errorf("fila top --once: %w: %s", err, out)
		}
		say("fila top --once, %s: %v, of which 300 ms are between its two samples", x.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// turnCounts are the numbers of turns up to each duration, in seconds.
type turnCounts map[float64]float64

func (t turnCounts) add(o turnCounts, sign float64) {
	for le, n := range o {
		t[le] += sign * n
	}
}

// below returns a bound of the durations of a part of the turns.
func (t turnCounts) below(part float64) string {
	bound := math.Inf(1)
	for le, n := range t {
		if n >= part*t[math.Inf(1)] {
			bound = min(bound, le)
		}
	}
	return fmt.Sprintf("%.3g ms", bound*1000)
}

// turns returns how long the turns of the broker have taken, as its metrics say.
func (o *operatorBench) turns(ctx context.Context) (turnCounts, error) {
	t := turnCounts{}
	err := o.get(ctx, "/metrics", func(line string) {
		rest, ok := strings.CutPrefix(line, `fila_engine_turn_seconds_bucket{le="`)
		bound, count, cut := strings.Cut(rest, `"} `)
		le, leErr := strconv.ParseFloat(bound, 64)
		n, nErr := strconv.ParseFloat(count, 64)
		if ok && cut && leErr == nil && nErr == nil {
			t[le] = n
		}
	})
	if err == nil && len(t) == 0 {
		err = errors.New("the metrics have no fila_engine_turn_seconds")
	}
	return t, err
}

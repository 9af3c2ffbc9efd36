package integration_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// latencies sends messages through a queue, one at a time, and returns the sorted times from
// enqueue to ack.
func latencies(t *testing.T, c *redis.Client, queue string, length time.Duration) []time.Duration {
	t.Helper()
	var all []time.Duration
	for end := time.Now().Add(length); time.Now().Before(end); {
		start := time.Now()
		kit.Do(t, c, "FILA.ENQUEUE", queue, "x", "HEADER", "tenant", "acme")
		d := one(t, c, queue)
		kit.Do(t, c, "FILA.ACK", queue, d.receipt)
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all
}

var attackClasses = flag.String("attacks", "*", "`patterns` of file names in the corpus of attacks, separated by commas: each is a class of attacks that is measured by itself")

// attackScripts returns the hostile scripts of a class.
func attackScripts(t *testing.T, class string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "scripting", "testdata", "attacks", class+".lua"))
	if least := 40; err != nil || len(files) == 0 || class == "*" && len(files) < least {
		t.Fatalf("%d attacks, %v", len(files), err)
	}
	sources := make([]string, len(files))
	for i, f := range files {
		sources[i] = script(t, f)
	}
	return sources
}

func script(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// busyWith keeps a queue busy until the context ends: it keeps loading scripts, so that no breaker
// stays open, while clients enqueue as fast as they can.
func busyWith(ctx context.Context, t *testing.T, b *harness.Broker, queue string, sources []string) *sync.WaitGroup {
	t.Helper()
	const clients = 3
	admin := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", queue)
	var group sync.WaitGroup
	group.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			// Some scripts are refused, as they should be.
			_ = admin.Do(ctx, "FILA.SCRIPT", "LOAD", queue, "ON_ENQUEUE", sources[i%len(sources)]).Err()
			time.Sleep(10 * time.Millisecond)
		}
	})
	for range clients {
		c := kit.Connect(t, b.Addr(), 3)
		group.Go(func() {
			for ctx.Err() == nil {
				err := c.Do(ctx, "FILA.ENQUEUE", queue, "x", "HEADER", "tenant", "mallory").Err()
				if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
					t.Errorf("an enqueue to a busy queue failed: %v", err)
					return
				}
			}
		})
	}
	return &group
}

// busyProcesses runs as many busy processes as scripts may use processors, until the context ends.
// They measure what any busy machine costs a queue.
func busyProcesses(ctx context.Context, t *testing.T) *sync.WaitGroup {
	t.Helper()
	var group sync.WaitGroup
	for range max(1, runtime.NumCPU()-1) {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		group.Go(func() { _ = cmd.Wait() }) // the error states that it was killed
	}
	return &group
}

// TestHostileScriptsCostTheirOwnQueue: while the scripts of one queue try to take all of the
// processor, another queue with its own script is served. Its latency is compared with that under
// the same clients with a harmless script, and on a machine busy with other processes, since with
// more than one queue each client has neighbours. -args -attacks='table_*,nesting*' measures
// classes of attacks separately.
// It is not parallel: it compares latencies with those of the machine when it does nothing else.
func TestHostileScriptsCostTheirOwnQueue(t *testing.T) {
	testkit.AtLength(t)
	b := kit.Serve(t, "--lua.timeout_ms", "10")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "quiet", "LUATIMEOUT", 60_000) // other processes may stop its script as well
	tenants := script(t, filepath.Join("testdata", "tenants.lua"))
	kit.Do(t, c, "FILA.SCRIPT", "LOAD", "quiet", "ON_ENQUEUE", tenants)
	const length = 2 * time.Second
	at := func(list []time.Duration, percent int) time.Duration { return list[len(list)*percent/100] }
	during := func(what string, work func(context.Context) *sync.WaitGroup) (p99 time.Duration) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		group := work(ctx)
		all := latencies(t, c, "quiet", length)
		cancel()
		group.Wait()
		t.Logf("enqueue, lease and ack %s: %d, p50 %v, p90 %v, p99 %v", what, len(all), at(all, 50), at(all, 90), at(all, 99))
		return at(all, 99)
	}
	alone := during("alone", func(context.Context) *sync.WaitGroup { return new(sync.WaitGroup) })
	busy := during("beside busy processes", func(ctx context.Context) *sync.WaitGroup { return busyProcesses(ctx, t) })
	harmless := during("beside harmless scripts", func(ctx context.Context) *sync.WaitGroup {
		return busyWith(ctx, t, b, "other", []string{tenants})
	})
	for i, class := range strings.Split(*attackClasses, ",") {
		attacked := during("beside attacks "+class, func(ctx context.Context) *sync.WaitGroup {
			return busyWith(ctx, t, b, "loud"+strconv.Itoa(i), attackScripts(t, class))
		})
		// Other load on the machine adds to all measurements, by different amounts.
		if most := 20*max(alone, busy, harmless) + 100*time.Millisecond; attacked > most {
			t.Errorf("p99 is %v while another queue's scripts attack, %v with harmless ones, %v alone", attacked, harmless, alone)
		}
	}
	if errs, _ := c.Do(t.Context(), "FILA.SCRIPT", "STATS", "quiet").Result(); kit.Mapped(t, errs.([]any)[0])["errors"] != int64(0) {
		t.Errorf("the quiet queue's script has suffered: %v", errs)
	}
}

// Package metrics_test scrapes the binary: by FILA.METRICS, and with a real Prometheus by way of
// the admin listener.
package metrics_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
)

// serve starts the binary for a test.
func serve(t *testing.T, args ...string) *harness.Broker {
	t.Helper()
	bin, err := harness.Build(t.Context(), "fila", ".")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b, err := harness.New(bin, dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Errorf("it did not stop in order: %v", err)
		}
		log, err := os.ReadFile(filepath.Join(dir, "fila.log"))
		if err != nil || t.Failed() || strings.Contains(string(log), "panic") {
			t.Errorf("the broker's log (%v):\n%s", err, log[max(0, len(log)-10_000):])
		}
	})
	if err := b.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := b.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return b
}

func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 3, MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// do sends a command that must succeed.
func do(t *testing.T, c *redis.Client, args ...any) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// try sends a command that may be refused.
func try(t *testing.T, c *redis.Client, args ...any) any {
	t.Helper()
	v, err := c.Do(t.Context(), args...).Result()
	if e := redis.Error(nil); err != nil && !errors.As(err, &e) {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

// lease leases messages and returns their receipts.
func lease(t *testing.T, c *redis.Client, queue string, more ...any) []string {
	t.Helper()
	list, _ := do(t, c, append([]any{"FILA.LEASE", queue}, more...)...).([]any)
	var receipts []string
	for _, m := range list {
		receipts = append(receipts, fmt.Sprint(m.([]any)[0])) //nolint:forcetypeassert // else the test fails
	}
	return receipts
}

// metrics returns the series of FILA.METRICS in text, by name and labels.
func metrics(t *testing.T, c *redis.Client) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(fmt.Sprint(do(t, c, "FILA.METRICS"))))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = v
	}
	return all
}

// stats returns the numbers of FILA.STATS.
func stats(t *testing.T, c *redis.Client, queue ...any) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	m, _ := do(t, c, append([]any{"FILA.STATS"}, queue...)...).(map[any]any)
	for name, v := range m {
		if n, ok := v.(int64); ok {
			all[fmt.Sprint(name)] = n
		}
	}
	if len(all) == 0 {
		t.Fatalf("FILA.STATS %v: nothing", queue)
	}
	return all
}

// Package metrics_test scrapes the binary: by FILA.METRICS, and with a real Prometheus by way of
// the admin listener.
package metrics_test

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
)

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
	list, _ := kit.Do(t, c, append([]any{"FILA.LEASE", queue}, more...)...).([]any)
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
	lines := bufio.NewScanner(strings.NewReader(fmt.Sprint(kit.Do(t, c, "FILA.METRICS"))))
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
	m, _ := kit.Do(t, c, append([]any{"FILA.STATS"}, queue...)...).(map[any]any)
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

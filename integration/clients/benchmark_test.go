package clients_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
)

// tryBenchmark runs redis-benchmark with its usual options. It repeats one command and checks
// replies only for errors, so most rows do not apply to it.
func tryBenchmark(t *testing.T, addr string, admin *redis.Client) *result {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	bench := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "redis-benchmark", append([]string{"-h", host, "-p", port, "-q"}, args...)...).CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) {
		t.Helper()
		if out, err := bench(args...); err != nil || strings.Contains(out, "rror") {
			t.Fatalf("redis-benchmark %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	depths := func(field string) int64 {
		info, _ := kit.Do(t, admin, "FILA.QUEUE", "INFO", "bench").(map[any]any)
		n, _ := info[field].(int64)
		return n
	}
	version, err := exec.CommandContext(t.Context(), "redis-benchmark", "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "bench", "VISIBILITY", "600000")
	must("-n", "1000", "PING")
	const n = 2000
	enqueue := []string{"-n", "2000", "-c", "20", "-P", "16", "-r", "1000", "FILA.ENQUEUE", "bench", "hello", "KEY", "tenant:__rand_int__"}
	must(enqueue...)
	if left := depths("ready"); left != n {
		t.Fatalf("%d messages are ready, want %d", left, n)
	}
	must("-n", "200", "FILA.LEASE", "bench", "COUNT", "10")
	if left := depths("leased"); left != n {
		t.Fatalf("%d messages are leased, want %d", left, n)
	}
	must(append([]string{"-3"}, enqueue...)...)
	if left := depths("ready"); left != n {
		t.Fatalf("%d messages are ready, want %d", left, n)
	}
	if out, err := bench("-n", "1", "FILA.LEASE", "nosuch"); !strings.Contains(out, "NOQUEUE no such queue") {
		t.Fatalf("redis-benchmark shows no error: %v\n%s", err, out)
	}
	cells := map[string]string{"connect": "RESP2", "batches": works, "errors": works, "RESP2": works, "RESP3": works}
	for _, name := range columns() {
		if cells[name] == "" {
			cells[name] = none
		}
	}
	return &result{version: strings.Fields(string(version))[1], cells: cells}
}

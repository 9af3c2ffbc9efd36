package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestRedisInsightConnects sends what RedisInsight sends when it connects and when its browser,
// slow log and workbench are opened. Errors of CLUSTER and SENTINEL are accepted, since Fila has
// neither.
func TestRedisInsightConnects(t *testing.T) {
	t.Parallel()
	c := kit.Connect(t, kit.Serve(t).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "orders")
	kit.Do(t, c, "FILA.ENQUEUE", "orders", "hello")
	for _, refused := range []string{"CLUSTER SLOTS", "CLUSTER INFO", "SENTINEL MASTERS"} {
		if err := c.Do(t.Context(), args(refused)...).Err(); err == nil {
			t.Errorf("%s: no error: it would be taken for a cluster", refused)
		}
	}
	for _, command := range []string{
		"HELLO", "MODULE LIST", "COMMAND", "COMMAND INFO fila.lease", "ACL CAT dangerous", "ACL WHOAMI", "CONFIG GET databases", "CLIENT LIST", "DBSIZE",
		"SCAN 0 MATCH * COUNT 10000", "SCAN 0 MATCH * COUNT 500 TYPE fila-queue", "TYPE orders", "TTL orders", "MEMORY USAGE orders", "OBJECT ENCODING orders",
		"SLOWLOG GET 50", "SLOWLOG LEN", "CONFIG GET slowlog*", "CONFIG SET slowlog-log-slower-than 50000", "LATENCY LATEST",
		"COMMAND DOCS", "PUBSUB CHANNELS *",
	} {
		kit.Do(t, c, args(command)...)
	}
	info := infoOf(t, c)
	for _, field := range []string{
		"redis_version", "redis_mode", "role", "uptime_in_seconds", "connected_clients", "used_memory", "used_memory_human", "instantaneous_ops_per_sec",
		"instantaneous_input_kbps", "instantaneous_output_kbps", "total_commands_processed", "total_connections_received", "keyspace_hits",
		"keyspace_misses", "used_cpu_sys", "used_cpu_user", "mem_fragmentation_ratio", "maxmemory", "cluster_enabled", "db0",
	} {
		if info[field] == "" {
			t.Errorf("INFO has no %s", field)
		}
	}
}

// TestExportersRead sends what redis_exporter sends at each scrape, and parses INFO by its rules.
func TestExportersRead(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 2)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "orders")
	kit.Do(t, c, "FILA.ENQUEUE", "orders", "hello")
	if err := c.Do(t.Context(), "FILA.LEASE", "nosuch").Err(); err == nil {
		t.Fatal("a queue out of nowhere")
	}
	for _, command := range []string{
		"CLIENT SETNAME redis_exporter", "PING", "INFO ALL", "CONFIG GET *", "SLOWLOG LEN", "SLOWLOG GET 1", "LATENCY LATEST", "LATENCY HISTOGRAM",
		"CLIENT LIST", "MODULE LIST", "SCAN 0 MATCH * COUNT 1000", "TYPE orders", "MEMORY USAGE orders",
	} {
		kit.Do(t, c, args(command)...)
	}
	if err := c.Do(t.Context(), "CLUSTER", "INFO").Err(); err == nil {
		t.Error("CLUSTER INFO has no error: it would be taken for a cluster")
	}
	info := infoOf(t, c)
	for field, form := range map[string]string{
		"uptime_in_seconds": `^\d+$`, "connected_clients": `^\d+$`, "blocked_clients": `^\d+$`, "used_memory": `^\d+$`, "used_memory_rss": `^\d+$`,
		"used_memory_peak": `^\d+$`, "total_system_memory": `^\d+$`, "maxmemory": `^\d+$`, "mem_fragmentation_ratio": `^\d+\.\d+$`, "loading": "^0$",
		"rdb_changes_since_last_save": `^\d+$`, "aof_enabled": "^1$", "aof_last_write_status": "^ok$", "total_connections_received": `^\d+$`,
		"total_commands_processed": `^\d+$`, "instantaneous_ops_per_sec": `^\d+$`, "total_net_input_bytes": `^\d+$`, "rejected_connections": `^\d+$`,
		"expired_keys": `^\d+$`, "evicted_keys": `^\d+$`, "role": "^master$", "connected_slaves": "^0$", "used_cpu_sys": `^\d+\.\d+$`,
		"cmdstat_fila.enqueue":                  `^calls=1,usec=\d+,usec_per_call=\d+\.\d+,rejected_calls=0,failed_calls=0$`,
		"cmdstat_fila.lease":                    `^calls=1,usec=\d+,usec_per_call=\d+\.\d+,rejected_calls=0,failed_calls=1$`,
		"errorstat_NOQUEUE":                     "^count=1$",
		"latency_percentiles_usec_fila.enqueue": `^p50=\d+\.\d+,p99=\d+\.\d+,p99\.9=\d+\.\d+$`,
		"db0":                                   "^keys=2,expires=0,avg_ttl=0$",
	} {
		if !regexp.MustCompile(form).MatchString(info[field]) {
			t.Errorf("INFO says %s:%s, which is not %s", field, info[field], form)
		}
	}
}

func args(line string) (out []any) {
	for word := range strings.FieldsSeq(line) {
		out = append(out, word)
	}
	return out
}

// infoOf parses the whole INFO.
func infoOf(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	text, err := c.Do(t.Context(), "INFO", "everything").Text()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, found := strings.Cut(line, ":"); found {
			all[name] = value
		}
	}
	return all
}

// TestModesOfRedisCli runs the modes in which redis-cli is a separate tool.
func TestModesOfRedisCli(t *testing.T) {
	t.Parallel()
	addr := kit.Serve(t, "--storage.engine", "memory").Addr()
	if out, _ := cli(t, addr, "", "FILA.QUEUE", "CREATE", "orders"); out != "OK" {
		t.Fatal(out)
	}
	for mode, want := range map[string]string{"--bigkeys": "2 fila-queues", "--memkeys": "2 fila-queues with", "--scan": "orders.dlq\norders"} {
		if out, code := cli(t, addr, "", mode); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", mode, code, out)
		}
	}
	const many = 20_000
	var in bytes.Buffer
	for i := range many {
		in.Write(framed("FILA.ENQUEUE", "orders", strconv.Itoa(i), "KEY", fmt.Sprintf("tenant-%d", i%7)))
	}
	if out, code := cli(t, addr, in.String(), "--pipe"); code != 0 || !strings.Contains(out, fmt.Sprintf("errors: 0, replies: %d", many)) {
		t.Errorf("--pipe: exit code %d: %s", code, out)
	}
	// These run until they are stopped, so only their first output is checked.
	watch(t, addr, "requests", "--stat", "-i", "0.01")
	watch(t, addr, `"FILA.STATS" "orders"`, "MONITOR")
}

// watch runs redis-cli until it prints the wanted text, and meanwhile sends commands for it to
// observe.
func watch(t *testing.T, addr, want string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience())
	defer cancel()
	host, port, _ := strings.Cut(addr, ":")
	cmd := exec.CommandContext(ctx, "redis-cli", slices.Concat([]string{"-h", host, "-p", port}, arguments)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("redis-cli (make setup-tests installs it): %v", err)
	}
	c := kit.Connect(t, addr, 2)
	var busy sync.WaitGroup
	busy.Go(func() {
		for ctx.Err() == nil {
			_ = c.Do(ctx, "FILA.STATS", "orders").Err() // to be observed
			time.Sleep(10 * time.Millisecond)
		}
	})
	var seen []byte
	for buf := make([]byte, 4096); !strings.Contains(string(seen), want); {
		n, err := out.Read(buf)
		if seen = append(seen, buf[:n]...); err != nil {
			t.Errorf("%v: %v after %q", arguments, err, seen)
			break
		}
	}
	cancel()
	busy.Wait()
	_ = cmd.Wait() // it was killed
}

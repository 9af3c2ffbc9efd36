package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// acts returns the last acts, the newest first, each as command, object, before and after.
func acts(t *testing.T, c *redis.Client) (lines []string) {
	t.Helper()
	page, _ := kit.Do(t, c, "FILA.AUDIT", "COUNT", 1000).([]any)
	list, _ := page[1].([]any)
	for i, entry := range list {
		m := kit.Mapped(t, entry)
		lines = append(lines, fmt.Sprintf("%v %v: %v -> %v", m["command"], m["object"], m["before"], m["after"]))
		if m["user"] != "default" || m["number"] != int64(len(list)-i) || !strings.HasPrefix(m["addr"].(string), "127.0.0.1:") {
			t.Errorf("act %d of %d: %v", i, len(list), m)
		}
	}
	return lines
}

// wantActs compares the newest acts.
func wantActs(t *testing.T, c *redis.Client, want ...string) {
	t.Helper()
	if got := acts(t, c); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("acts:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestActsSurviveAKill: through go-redis in both protocols, redis-cli and the command line.
func TestActsSurviveAKill(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 2)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "orders", "NODLQ")
	kit.Do(t, c, "FILA.QUEUE", "ALTER", "orders", "MAXATTEMPTS", 3)
	kit.Do(t, c, "CONFIG", "SET", "slowlog-max-len", 7)
	kit.Do(t, c, "ACL", "SETUSER", "worker", "on", ">hush", "~orders", "+@consume")
	want := []string{
		`ACL SETUSER worker: <nil> -> rights="on ~orders resetchannels -@all +@consume"`,
		"CONFIG SET slowlog-max-len: slowlog-max-len=128 -> slowlog-max-len=7",
		"FILA.QUEUE ALTER orders: max_attempts=10 -> max_attempts=3",
		"FILA.QUEUE CREATE orders: <nil> -> visibility_ms=30000 max_attempts=10 backoff_ms=1000 max_backoff_ms=300000 dedup_window_ms=300000 result_ttl_ms=3600000",
	}
	wantActs(t, c, want...)
	kit.Kill(t, b)
	kit.Start(t, b)
	wantActs(t, kit.Connect(t, b.Addr(), 2), want...)
	wantActs(t, kit.Connect(t, b.Addr(), 3), want...)
	out, code := kit.Run(t, "audit", "--limit", "1", "-o", "jsonl", "--url", "redis://"+b.Addr())
	if code != 0 || !strings.Contains(out, `"command":"ACL SETUSER"`) || strings.Count(out, "\n") != 1 {
		t.Errorf("fila audit: %d, %s", code, out)
	}
	if strings.Contains(out, "hush") {
		t.Error("a password is shown")
	}
}

// What clients of other nodes change is kept by the leader, also what only their node has, and the next leader has it.
func TestActsOfAClusterSurviveAFailover(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	leader := n.leader()
	at := n.others(leader)[0]
	c := kit.Connect(t, n.Node(at).Addr(), 3)
	kit.Do(t, c, "FILA.CONFIG", "SET", "plan", "gold")
	kit.Do(t, c, "CONFIG", "SET", "slowlog-max-len", 7)
	want := []string{"CONFIG SET slowlog-max-len: slowlog-max-len=128 -> slowlog-max-len=7", "FILA.CONFIG SET plan: <nil> -> plan=gold"}
	testkit.Eventually(t, "the leader has both acts", func() bool { return len(acts(t, c)) == len(want) })
	wantActs(t, c, want...)
	n.kill(leader)
	kit.Ready(t, n.Node(at).Broker)
	next := kit.Connect(t, n.Node(n.leader()).Addr(), 3)
	wantActs(t, next, want...)
	kit.Do(t, next, "FILA.CONFIG", "DEL", "plan")
	want = append([]string{"FILA.CONFIG DEL plan: plan=gold -> <nil>"}, want...)
	if out := n.redisCLI(at, "FILA.AUDIT", "COUNT", "1"); !strings.Contains(out, "FILA.CONFIG DEL") {
		t.Errorf("redis-cli: %s", out)
	}
	wantActs(t, kit.Connect(t, n.Node(at).Addr(), 2), want...)
}

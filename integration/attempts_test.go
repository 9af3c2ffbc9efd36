package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
)

// wantAttempts compares the attempts of a message, each as number, consumer, outcome and error.
func wantAttempts(t *testing.T, c *redis.Client, queue, id string, want ...string) {
	t.Helper()
	m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue, id, "ATTEMPTS"))
	list, _ := m["attempts"].([]any)
	var got []string
	for _, entry := range list {
		a := kit.Mapped(t, entry)
		got = append(got, fmt.Sprintf("%v %v %v: %v", a["attempt"], a["consumer"], a["outcome"], a["error"]))
		if from, to := a["from"].(int64), a["to"].(int64); from == 0 || to < from {
			t.Errorf("an attempt from %d to %d", from, to)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("attempts of %s in %s:\n%s\nwant:\n%s", id, queue, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// failOnce leases the message of a queue and nacks it.
func failOnce(t *testing.T, c *redis.Client, queue, consumer, text string) {
	t.Helper()
	d := one(t, c, queue, "CONSUMER", consumer)
	kit.Do(t, c, "FILA.NACK", queue, d.receipt, "ERROR", text)
}

// TestCausesSurviveKills: of a message that waits, of one that is leased, and of one that is dead.
func TestCausesSurviveKills(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.lease_lag_ms", "0")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "jobs", "MAXATTEMPTS", 2, "BACKOFF", 0)
	id := kit.Do(t, c, "FILA.ENQUEUE", "jobs", "work").(string)
	lease := func() string {
		d := one(t, c, "jobs")
		return d.receipt
	}
	want := func(protocol int, queue, cause string) {
		t.Helper()
		kit.Kill(t, b)
		kit.Start(t, b)
		c = kit.Connect(t, b.Addr(), protocol)
		if got := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue, id))["cause"]; got != cause {
			t.Errorf("the cause of %s in %s is %v, want %q", id, queue, got, cause)
		}
	}
	kit.Do(t, c, "FILA.NACK", "jobs", lease(), "ERROR", "status 503", "CAUSE", "provider down")
	want(2, "jobs", "provider down")
	receipt := lease()
	kit.Do(t, c, "FILA.EXTEND", "jobs", receipt, 600_000) // its record is written with the reply
	want(3, "jobs", "provider down")
	kit.Do(t, c, "FILA.NACK", "jobs", receipt, "ERROR", "status 404", "CAUSE", "no such card")
	want(2, "jobs.dlq", "no such card")
	if n := kit.Do(t, c, "FILA.REDRIVE", "jobs.dlq", "CAUSE", "other", "CAUSE", "no such card"); n != int64(1) {
		t.Errorf("%v messages of the cause are redriven", n)
	}
}

// TestAttemptsSurviveKills: in the queue, under a lease, in the dead-letter queue and after a redrive, in both protocols.
func TestAttemptsSurviveKills(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.lease_lag_ms", "0")
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "jobs", "MAXATTEMPTS", 2, "BACKOFF", 0)
	id := kit.Do(t, c, "FILA.ENQUEUE", "jobs", "work").(string)
	wantAttempts(t, c, "jobs", id)
	failOnce(t, c, "jobs", "w1", "first")
	ds, err := leased(kit.Do(t, c, "FILA.LEASE", "jobs", "CONSUMER", "w2"))
	if err != nil || len(ds) != 1 {
		t.Fatalf("leased %v, %v", ds, err)
	}
	kit.Do(t, c, "FILA.EXTEND", "jobs", ds[0].receipt, 600_000) // its record is written with the reply
	kit.Kill(t, b)
	kit.Start(t, b)
	c = kit.Connect(t, b.Addr(), 2)
	wantAttempts(t, c, "jobs", id, "1 w1 nacked: first")
	kit.Do(t, c, "FILA.NACK", "jobs", ds[0].receipt, "ERROR", "second")
	want := []string{"1 w1 nacked: first", "2 w2 nacked: second"}
	wantAttempts(t, c, "jobs.dlq", id, want...)
	kit.Kill(t, b)
	kit.Start(t, b)
	c = kit.Connect(t, b.Addr(), 3)
	wantAttempts(t, c, "jobs.dlq", id, want...)
	kit.Do(t, c, "FILA.REDRIVE", "jobs.dlq")
	failOnce(t, c, "jobs", "w3", "third")
	wantAttempts(t, c, "jobs", id, append(want, "1 w3 nacked: third")...)
}

// The next leader has the attempts, and a follower shows them.
func TestAttemptsSurviveAFailover(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	leader := n.leader()
	at := n.others(leader)[0]
	c := kit.Connect(t, n.Node(at).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "jobs", "BACKOFF", 0)
	id := kit.Do(t, c, "FILA.ENQUEUE", "jobs", "work").(string)
	failOnce(t, c, "jobs", "w1", "first")
	wantAttempts(t, c, "jobs", id, "1 w1 nacked: first")
	n.kill(leader)
	kit.Ready(t, n.Node(at).Broker)
	next := kit.Connect(t, n.Node(n.leader()).Addr(), 2)
	failOnce(t, next, "jobs", "w2", "second")
	wantAttempts(t, next, "jobs", id, "1 w1 nacked: first", "2 w2 nacked: second")
	if out := n.redisCLI(at, "FILA.GET", "jobs", id, "ATTEMPTS"); !strings.Contains(out, "second") {
		t.Errorf("redis-cli: %s", out)
	}
}

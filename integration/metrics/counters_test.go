package metrics_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// sameCounters are the fields of FILA.STATS of a queue that are counters, each with its metric.
func sameCounters() map[string]string {
	same := map[string]string{}
	for _, field := range []string{
		"enqueued", "delivered", "acked", "nacked", "expired", "dropped", "released", "redriven", "cancelled", "purged", "deduplicated", "ttl_expired",
	} {
		same[field] = "fila_queue_messages_" + field + "_total"
	}
	return same
}

// load does random things to queues.
type load struct {
	t      *testing.T
	c      *redis.Client
	rng    *rand.Rand
	queues []string
	ids    []string
}

func (l *load) step() {
	t, c, rng := l.t, l.c, l.rng
	q := l.queues[rng.IntN(len(l.queues))]
	switch rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5:
		args := []any{"FILA.ENQUEUE", q, "payload", "KEY", fmt.Sprint("tenant-", rng.IntN(20))}
		switch rng.IntN(6) {
		case 0:
			args = append(args, "DEDUP", fmt.Sprint(rng.IntN(10)))
		case 1:
			args = append(args, "TTL", 1+rng.IntN(20))
		case 2:
			args = append(args, "DELAY", 1+rng.IntN(20))
		}
		if id, ok := try(t, c, args...).(string); ok {
			l.ids = append(l.ids, id)
		}
	case 6, 7, 8, 9, 10:
		for _, r := range lease(t, c, q, "COUNT", 1+rng.IntN(3)) {
			switch rng.IntN(5) {
			case 0, 1:
				try(t, c, "FILA.ACK", q, r)
			case 2:
				try(t, c, "FILA.NACK", q, r, "ERROR", "refused", "DELAY", 0)
			case 3:
				try(t, c, "FILA.NACK", q, r, "DEAD")
			default:
				try(t, c, "FILA.RELEASE", q, r)
			}
		}
	case 11, 12:
		lease(t, c, q, "VISIBILITY", 1+rng.IntN(5)) // it expires
	case 13:
		if len(l.ids) > 0 {
			try(t, c, "FILA.CANCEL", q, l.ids[rng.IntN(len(l.ids))])
		}
	case 14:
		if rng.IntN(10) == 0 {
			try(t, c, "FILA.PURGE", q)
		} else {
			try(t, c, "FILA.PURGE", q, "KEY", fmt.Sprint("tenant-", rng.IntN(20)))
		}
	case 15:
		try(t, c, "FILA.REDRIVE", q+".dlq")
	case 16:
		try(t, c, "FILA.ENQUEUE", "nosuch", "x")
	default:
		try(t, c, "FILA.LEASE", "empty", "BLOCK", 1) // a millisecond in which leases and messages may expire
	}
}

// settle waits until nothing happens any more by itself: leases have expired, times to live have
// passed, delayed messages are due.
func settle(t *testing.T, c *redis.Client) {
	t.Helper()
	testkit.Eventually(t, "nothing happens any more", func() bool {
		before := stats(t, c)
		kit.Do(t, c, "FILA.LEASE", "empty", "BLOCK", 200)
		after := stats(t, c)
		for _, n := range []map[string]int64{before, after} {
			delete(n, "turns")
			delete(n, "tasks")
			delete(n, "commits")
			delete(n, "time")
		}
		return maps.Equal(before, after) && after["leased"] == 0 && after["delayed"] == 0
	})
}

func TestEveryCounterEqualsFilaStatsAfterARandomLoad(t *testing.T) {
	b := kit.Serve(t, "--scheduler.visibility_timeout_ms", "50", "--storage.sync", "never")
	c := kit.Connect(t, b.Addr(), 3)
	l := &load{t: t, c: c, rng: rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))}
	for i := range 6 {
		q := fmt.Sprint("queue-", i)
		l.queues = append(l.queues, q)
		options := []any{"FILA.QUEUE", "CREATE", q, "MAXATTEMPTS", 1 + i%3}
		if i%3 == 2 {
			options = append(options, "NODLQ")
		}
		kit.Do(t, c, options...)
	}
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "empty", "NODLQ")
	for range 4000 {
		l.step()
	}
	settle(t, c)

	before := stats(t, c)
	got := metrics(t, c)
	after := stats(t, c)
	happened := map[string]bool{}
	sums := map[string]float64{}
	queues := slices.Clone(l.queues)
	for _, q := range l.queues {
		queues = append(queues, q+".dlq")
	}
	for _, q := range queues {
		if strings.HasSuffix(q, ".dlq") && !slices.ContainsFunc([]string{"0", "1", "3", "4"}, func(n string) bool { return q == "queue-"+n+".dlq" }) {
			continue
		}
		want := stats(t, c, q)
		label := fmt.Sprintf("{queue=%q}", q)
		for field, metric := range sameCounters() {
			if v := got[metric+label]; v != float64(want[field]) {
				t.Errorf("%s%s is %v, FILA.STATS says %d", metric, label, v, want[field])
			}
			happened[field] = happened[field] || want[field] > 0
			sums[field] += float64(want[field])
		}
		dead := 0.0
		for _, reason := range []string{"attempts", "nack", "on_failure", "ttl"} {
			dead += got[fmt.Sprintf("fila_queue_messages_dead_lettered_total{queue=%q,reason=%q}", q, reason)]
		}
		if dead != float64(want["dead_lettered"]) {
			t.Errorf("%s: %v dead letters, FILA.STATS says %d", q, dead, want["dead_lettered"])
		}
		for _, state := range []string{"ready", "delayed", "leased", "dead"} {
			if v := got[fmt.Sprintf("fila_queue_messages{queue=%q,state=%q}", q, state)]; v != float64(want[state]) {
				t.Errorf("%s: %v %s, FILA.STATS says %d", q, v, state, want[state])
			}
		}
		if n := got["fila_queue_wait_seconds_count"+label]; n != float64(want["delivered"]) {
			t.Errorf("%s: %v waiting times, %d deliveries", q, n, want["delivered"])
		}
	}
	for field := range sameCounters() {
		if !happened[field] {
			t.Errorf("the load has no message %s", field)
		}
		if sums[field] != float64(after[field]) {
			t.Errorf("%s: %v in all queues, FILA.STATS says %d", field, sums[field], after[field])
		}
	}
	for field, metric := range map[string]string{
		"turns": "fila_engine_turns_total", "tasks": "fila_engine_tasks_total", "commits": "fila_engine_commits_total", "recoveries": "fila_engine_recoveries_total",
	} {
		if v := got[metric]; v < float64(before[field]) || v > float64(after[field]) {
			t.Errorf("%s is %v, FILA.STATS says %d before and %d after", metric, v, before[field], after[field])
		}
	}
	sameCommands(t, c)
}

// sameCommands compares the figures of commands with INFO.
func sameCommands(t *testing.T, c *redis.Client) {
	t.Helper()
	got := metrics(t, c)
	info := fmt.Sprint(kit.Do(t, c, "INFO", "commandstats", "errorstats"))
	compared := 0
	for line := range strings.Lines(info) {
		name, figures, _ := strings.Cut(strings.TrimSpace(line), ":")
		if code, ok := strings.CutPrefix(name, "errorstat_"); ok {
			var n float64
			if _, err := fmt.Sscanf(figures, "count=%f", &n); err != nil || got[fmt.Sprintf("fila_error_replies_total{code=%q}", code)] != n {
				t.Errorf("%s: %v (%v)", line, got[fmt.Sprintf("fila_error_replies_total{code=%q}", code)], err)
			}
			compared++
		}
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || command == "info" || command == "fila.metrics" {
			continue
		}
		var calls, usec, rejected, failed float64
		var each float64
		if _, err := fmt.Sscanf(figures, "calls=%f,usec=%f,usec_per_call=%f,rejected_calls=%f,failed_calls=%f", &calls, &usec, &each, &rejected, &failed); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for metric, want := range map[string]float64{
			"fila_command_duration_seconds_count": calls, "fila_command_failures_total": failed, "fila_command_rejections_total": rejected,
		} {
			if v := got[fmt.Sprintf("%s{command=%q}", metric, command)]; v != want {
				t.Errorf("%s of %s is %v, INFO says %v", metric, command, v, want)
			}
		}
		compared++
	}
	if compared < 8 {
		t.Errorf("%d figures of INFO", compared)
	}
}

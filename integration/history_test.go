package integration_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// aMinute returns the first minute in whose history a field has a value; 0: none. The last moment is left out: a broker that
// starts within its ten seconds records it again.
func aMinute(t *testing.T, c *redis.Client, field string, value int64, history ...any) int64 {
	t.Helper()
	list := kit.Do(t, c, history...).([]any) //nolint:forcetypeassert // the contract guarantees the type
	for _, m := range list[:max(len(list)-1, 0)] {
		one := kit.Mapped(t, m)
		if at := one["at"].(int64); at%60_000 == 0 && one[field] == value { //nolint:forcetypeassert // the same
			return at
		}
	}
	return 0
}

// minutes are the first minutes that the histories of a queue, a fairness key and a throttle have; 0: none.
type minutes struct{ queue, key, throttle int64 }

func minutesOf(t *testing.T, c *redis.Client) minutes {
	t.Helper()
	return minutes{
		queue:    aMinute(t, c, "ready", 100, "FILA.HISTORY", "jobs"),
		key:      aMinute(t, c, "ready", 100, "FILA.HISTORY", "jobs", "KEY", "acme"),
		throttle: aMinute(t, c, "held", 1, "FILA.THROTTLE", "HISTORY", "provider", "RANGE", 3600),
	}
}

// withMinute enqueues and leases until the histories have a minute, which is then in the store, and returns a condition: it
// is still known.
func withMinute(t *testing.T, c *redis.Client) (known func(c *redis.Client) bool) {
	t.Helper()
	for _, queue := range []string{"jobs", "mails"} {
		kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
	}
	kit.Do(t, c, "FILA.THROTTLE", "SET", "provider", "CONCURRENCY", 1)
	kit.Do(t, c, "FILA.ENQUEUE", "mails", "x", "THROTTLE", "provider")
	kit.Do(t, c, "FILA.LEASE", "mails", "VISIBILITY", 3_600_000)
	for range 100 {
		kit.Do(t, c, "FILA.ENQUEUE", "jobs", "x", "KEY", "acme")
	}
	var first minutes
	testkit.Eventually(t, "a minute is recorded", func() bool {
		first = minutesOf(t, c)
		return first.queue != 0 && first.key != 0 && first.throttle != 0
	})
	kit.Do(t, c, "FILA.ENQUEUE", "jobs", "later", "KEY", "acme") // its reply leaves when the record is in the store
	return func(c *redis.Client) bool { return minutesOf(t, c) == first }
}

// A broker that is killed knows what its queues, keys and throttles did until the last minute, and its store is in order.
func TestHistoriesSurviveAKill(t *testing.T) {
	testkit.AtLength(t) // what has changed is written once a minute
	t.Parallel()
	b := kit.Serve(t)
	known := withMinute(t, kit.Connect(t, b.Addr(), 3))
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
	wantOutput(t, 0, "everything is in order", "check", b.Data())
	kit.Start(t, b)
	c := kit.Connect(t, b.Addr(), 3)
	testkit.Eventually(t, "the history goes back to before the kill", func() bool { return known(c) })
}

// So does the next leader, which is asked for it at a follower.
func TestHistoriesSurviveAFailover(t *testing.T) {
	testkit.AtLength(t)
	t.Parallel()
	n := cluster(t)
	leader := n.leader()
	at := n.others(leader)[0]
	known := withMinute(t, kit.Connect(t, n.Node(at).Addr(), 3))
	n.kill(leader)
	kit.Ready(t, n.Node(at).Broker)
	c := kit.Connect(t, n.Node(at).Addr(), 2)
	testkit.Eventually(t, "the history goes back to before the failover", func() bool { return known(c) })
}

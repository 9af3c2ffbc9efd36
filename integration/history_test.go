package integration_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// aMinute returns the first minute of which the history has 100 ready messages; 0: none. The last moment is left out: a
// broker that starts within its ten seconds records it again.
func aMinute(t *testing.T, c *redis.Client, words ...any) int64 {
	t.Helper()
	list := kit.Do(t, c, append([]any{"FILA.HISTORY", "jobs"}, words...)...).([]any) //nolint:forcetypeassert // the contract guarantees the type
	for _, m := range list[:max(len(list)-1, 0)] {
		one := kit.Mapped(t, m)
		if at := one["at"].(int64); at%60_000 == 0 && one["ready"] == int64(100) { //nolint:forcetypeassert // the same
			return at
		}
	}
	return 0
}

// withMinute enqueues until the history has a minute, which is then in the store, and returns a condition: it is still known.
func withMinute(t *testing.T, c *redis.Client) (known func(c *redis.Client) bool) {
	t.Helper()
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "jobs")
	for range 100 {
		kit.Do(t, c, "FILA.ENQUEUE", "jobs", "x", "KEY", "acme")
	}
	testkit.Eventually(t, "a minute is recorded", func() bool { return aMinute(t, c) != 0 && aMinute(t, c, "KEY", "acme") != 0 })
	queue, key := aMinute(t, c), aMinute(t, c, "KEY", "acme")
	kit.Do(t, c, "FILA.ENQUEUE", "jobs", "later", "KEY", "acme") // its reply leaves when the record is in the store
	return func(c *redis.Client) bool { return aMinute(t, c) == queue && aMinute(t, c, "KEY", "acme") == key }
}

// A broker that is killed knows what its queues and keys did until the last minute, and its store is in order.
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

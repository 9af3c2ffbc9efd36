package integration_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// A broker that is killed knows what its queues and keys did until the last minute, and its store is in order.
func TestHistoriesSurviveAKill(t *testing.T) {
	testkit.AtLength(t) // what has changed is written once a minute
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "jobs")
	for range 100 {
		kit.Do(t, c, "FILA.ENQUEUE", "jobs", "x", "KEY", "acme")
	}
	// minute returns the first minute that has all messages in the history; 0: none. The last moment is left out: a
	// broker that starts within its ten seconds records it again.
	minute := func(c *redis.Client, words ...any) int64 {
		list := kit.Do(t, c, append([]any{"FILA.HISTORY", "jobs"}, words...)...).([]any) //nolint:forcetypeassert // the contract guarantees the type
		for _, m := range list[:max(len(list)-1, 0)] {
			one := kit.Mapped(t, m)
			if at := one["at"].(int64); at%60_000 == 0 && one["ready"] == int64(100) { //nolint:forcetypeassert // the same
				return at
			}
		}
		return 0
	}
	testkit.Eventually(t, "a minute is recorded", func() bool { return minute(c) != 0 && minute(c, "KEY", "acme") != 0 })
	queue, key := minute(c), minute(c, "KEY", "acme")
	kit.Do(t, c, "FILA.ENQUEUE", "jobs", "later", "KEY", "acme") // its reply leaves when the record is in the store
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
	wantOutput(t, 0, "everything is in order", "check", b.Data())
	kit.Start(t, b)
	c = kit.Connect(t, b.Addr(), 3)
	testkit.Eventually(t, "the history goes back to before the kill", func() bool { return minute(c) == queue && minute(c, "KEY", "acme") == key })
}

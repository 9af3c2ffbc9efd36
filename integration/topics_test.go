package integration_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// published reads the reply to FILA.PUBLISH: ids by queue.
func published(reply any) (map[string]string, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, fmt.Errorf("a reply of type %T", reply)
	}
	ids := map[string]string{}
	for _, item := range list {
		pair, ok := item.([]any)
		if !ok || len(pair) != 2 {
			return nil, fmt.Errorf("not a queue and an id: %v", item)
		}
		ids[fmt.Sprint(pair[0])] = fmt.Sprint(pair[1])
	}
	return ids, nil
}

// TestATopicThroughALibrary: what go-redis is answered in both protocols, and how it is refused.
func TestATopicThroughALibrary(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		c := kit.Connect(t, b.Addr(), protocol)
		name := func(s string) string { return s + strconv.Itoa(protocol) }
		for _, queue := range []string{"billing", "shipping"} {
			kit.Do(t, c, "FILA.QUEUE", "CREATE", name(queue))
		}
		topic := name("order.placed")
		if n := kit.Do(t, c, "FILA.TOPIC", "BIND", topic, name("billing")); n != int64(1) {
			t.Errorf("bind: %v", n)
		}
		if n := kit.Do(t, c, "FILA.TOPIC", "BIND", topic, name("shipping"), "HEADER", "kind", "good*"); n != int64(1) {
			t.Errorf("bind: %v", n)
		}
		for kind, queues := range map[string]int{"goods": 2, "letter": 1} {
			ids, err := published(kit.Do(t, c, "FILA.PUBLISH", topic, "o-1", "HEADER", "kind", kind))
			if err != nil || len(ids) != queues || ids[name("billing")] == "" {
				t.Errorf("%s: %v, %v", kind, ids, err)
			}
		}
		if d := one(t, c, name("shipping")); d.payload != "o-1" {
			t.Errorf("shipping has %q", d.payload)
		}
		kit.Do(t, c, "FILA.QUEUE", "PAUSE", name("shipping"), "IN")
		_, err := c.Do(t.Context(), "FILA.PUBLISH", topic, "o-2", "HEADER", "kind", "goods").Result()
		if err == nil || !strings.HasPrefix(err.Error(), "PAUSED ") || !strings.Contains(err.Error(), name("shipping")) {
			t.Errorf("a queue refuses: %v", err)
		}
		kit.WantStats(t, c, name("billing"), map[string]int64{"enqueued": 2})
		if info := kit.Mapped(t, kit.Do(t, c, "FILA.TOPIC", "INFO", topic)); info["published"] != int64(2) {
			t.Errorf("info: %v", info)
		}
	}
}

// TestNoHalfPublishAfterAKill publishes while the broker is killed. A publish that was answered is
// in all queues, and one that was not is in all or in none.
func TestNoHalfPublishAfterAKill(t *testing.T) {
	t.Parallel()
	const queues, publishers, kills = 4, 8, 3
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	for i := range queues {
		kit.Do(t, c, "FILA.QUEUE", "CREATE", fmt.Sprint("q", i), "NODLQ")
		kit.Do(t, c, "FILA.TOPIC", "BIND", "t", fmt.Sprint("q", i))
	}
	var answered sync.Map
	var sent, confirmed atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range publishers {
		running.Go(func() {
			p := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 3, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
			defer func() { _ = p.Close() }()
			for ctx.Err() == nil {
				no := strconv.FormatInt(sent.Add(1), 10)
				ids, err := published(p.Do(ctx, "FILA.PUBLISH", "t", no).Val())
				if err != nil {
					time.Sleep(5 * time.Millisecond) // the broker is being started
					continue
				}
				if len(ids) != queues {
					t.Errorf("publish %s is answered with %v", no, ids)
				}
				answered.Store(no, true)
				confirmed.Add(1)
			}
		})
	}
	for range kills {
		before := confirmed.Load()
		testkit.Eventually(t, "publishes are answered", func() bool { return confirmed.Load() >= before+200 })
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		kit.Start(t, b)
	}
	cancel()
	running.Wait()
	c = kit.Connect(t, b.Addr(), 3)
	copies := map[string]int{}
	for i := range queues {
		for {
			ds := lease(t, c, fmt.Sprint("q", i), "COUNT", 1000, "VISIBILITY", 600_000)
			for _, d := range ds {
				copies[d.payload]++
			}
			if len(ds) == 0 {
				break
			}
		}
	}
	for no, n := range copies {
		if n != queues {
			t.Errorf("publish %s is in %d of %d queues", no, n, queues)
		}
	}
	answered.Range(func(no, _ any) bool {
		if copies[no.(string)] != queues { //nolint:forcetypeassert // only strings are stored
			t.Errorf("publish %s was answered, and is in %d of %d queues", no, copies[no.(string)], queues) //nolint:forcetypeassert // the same
		}
		return true
	})
	t.Logf("%d publishes were sent, %d answered, %d are stored", sent.Load(), confirmed.Load(), len(copies))
}

package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
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

// TestUniqueThroughALibrary: what go-redis is answered in both protocols, and how it is refused.
func TestUniqueThroughALibrary(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		c := kit.Connect(t, b.Addr(), protocol)
		queue := "jobs" + strconv.Itoa(protocol)
		kit.Do(t, c, "FILA.QUEUE", "CREATE", queue)
		first := kit.Do(t, c, "FILA.ENQUEUE", queue, "one", "UNIQUE", "u")
		if id := kit.Do(t, c, "FILA.ENQUEUE", queue, "two", "UNIQUE", "u", "DELAY", 60_000); id != first {
			t.Errorf("while it is ready: %v, want %v", id, first)
		}
		if m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue, first)); m["unique"] != "u" || m["payload"] != "one" {
			t.Errorf("it is shown as %v", m)
		}
		d := one(t, c, queue)
		if id := kit.Do(t, c, "FILA.ENQUEUE", queue, "two", "UNIQUE", "u"); id != first {
			t.Errorf("while it is leased: %v, want %v", id, first)
		}
		replies, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Do(t.Context(), "FILA.ACK", queue, d.receipt)
			p.Do(t.Context(), "FILA.ENQUEUE", queue, "next", "UNIQUE", "u")
			p.Do(t.Context(), "FILA.ENQUEUE", queue, "another", "UNIQUE", "u")
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		next := replies[1].(*redis.Cmd).Val() //nolint:forcetypeassert // what Do returns
		if again := replies[2].(*redis.Cmd).Val(); next == first || again != next {
			t.Errorf("after the ack %v, and then %v", next, again)
		}
		for _, bad := range []string{"", strings.Repeat("x", 513)} {
			err := c.Do(t.Context(), "FILA.ENQUEUE", queue, "x", "UNIQUE", bad).Err()
			if err == nil || !strings.HasPrefix(err.Error(), "INVALID UNIQUE") && !strings.HasPrefix(err.Error(), "TOOBIG ") {
				t.Errorf("an id of %d bytes: %v", len(bad), err)
			}
		}
	}
}

// uniqueRun is what producers and workers of unique messages have seen.
type uniqueRun struct {
	t     *testing.T
	clock atomic.Int64
	gate  sync.RWMutex // held by clients during a command, and by the test while all of them rest

	mu     sync.Mutex
	owners map[string]string // message that a worker has, by unique id
	acked  map[string]int64  // when the reply to its ack came, by id
	names  map[string]string // unique id, by message
}

// produce enqueues until the context ends.
func (r *uniqueRun) produce(ctx context.Context, c *redis.Client, names int) {
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprint("u", n%names)
		r.gate.RLock()
		began := r.clock.Add(1)
		id, err := c.Do(ctx, "FILA.ENQUEUE", "jobs", name, "KEY", name, "UNIQUE", name).Text()
		r.gate.RUnlock()
		if err != nil {
			time.Sleep(5 * time.Millisecond) // the broker is being started
			continue
		}
		r.mu.Lock()
		if at, done := r.acked[id]; done && at < began {
			r.t.Errorf("%s was answered with %s, whose ack had been answered", name, id)
		}
		if other := r.names[id]; other != "" && other != name {
			r.t.Errorf("%s was answered with %s, which is %s", name, id, other)
		}
		r.names[id] = name
		r.mu.Unlock()
	}
}

// work leases and acks until the context ends. An ack is sent until it is answered.
func (r *uniqueRun) work(ctx context.Context, c *redis.Client) {
	for ctx.Err() == nil {
		r.gate.RLock()
		ds, err := leased(c.Do(ctx, "FILA.LEASE", "jobs", "COUNT", 3, "VISIBILITY", 2000).Val())
		r.gate.RUnlock()
		if err != nil || len(ds) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		r.mu.Lock()
		for i := range ds {
			name, id := ds[i].payload, ds[i].id()
			if other := r.owners[name]; other != "" && other != id {
				r.t.Errorf("%s was delivered while %s is in the hands of a worker, both are %s", id, other, name)
			}
			r.owners[name] = id
		}
		r.mu.Unlock()
		for i := range ds {
			r.ack(ctx, c, &ds[i])
		}
	}
}

func (r *uniqueRun) ack(ctx context.Context, c *redis.Client, d *delivery) {
	r.mu.Lock()
	if r.owners[d.payload] == d.id() {
		delete(r.owners, d.payload)
	}
	r.mu.Unlock()
	for ctx.Err() == nil {
		r.gate.RLock()
		n, err := c.Do(ctx, "FILA.ACK", "jobs", d.receipt).Int()
		r.gate.RUnlock()
		if err != nil {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		if n == 1 {
			r.mu.Lock()
			r.acked[d.id()] = r.clock.Add(1)
			r.mu.Unlock()
		}
		return
	}
}

// look reads the whole queue while all clients rest, and checks that no two messages have the same
// unique id and that each id is answered with its message.
func (r *uniqueRun) look(c *redis.Client, names int) {
	r.gate.Lock()
	defer r.gate.Unlock()
	found := map[string]string{}
	page := kit.Do(r.t, c, "FILA.BROWSE", "jobs", "COUNT", 1000).([]any) //nolint:forcetypeassert // the contract guarantees the type
	for _, m := range page[1].([]any) {                                  //nolint:forcetypeassert // the same
		one := kit.Mapped(r.t, m)
		name, id := fmt.Sprint(one["unique"]), fmt.Sprint(one["id"])
		if other := found[name]; other != "" {
			r.t.Errorf("%s and %s are both in the queue, and %s", other, id, name)
		}
		found[name] = id
	}
	for i := range names {
		name := fmt.Sprint("u", i)
		id := fmt.Sprint(kit.Do(r.t, c, "FILA.ENQUEUE", "jobs", name, "KEY", name, "UNIQUE", name))
		r.mu.Lock()
		_, done := r.acked[id]
		r.names[id] = name
		r.mu.Unlock()
		if there := found[name]; there != "" && there != id || there == "" && done {
			r.t.Errorf("%s is answered with %s, in the queue is %q", name, id, there)
		}
	}
}

// TestNeverTwoUniqueOnesAfterAKill enqueues and works while the broker is killed: a unique id is
// never of two messages, and free as soon as its message is acked.
func TestNeverTwoUniqueOnesAfterAKill(t *testing.T) {
	t.Parallel()
	const names, producers, workers, kills = 30, 6, 6, 4
	b := kit.Serve(t)
	kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.QUEUE", "CREATE", "jobs", "MAXATTEMPTS", 0)
	r := &uniqueRun{t: t, owners: map[string]string{}, acked: map[string]int64{}, names: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range producers + workers {
		c := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 2 + i%2, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
		running.Go(func() {
			defer func() { _ = c.Close() }()
			if i < producers {
				r.produce(ctx, c, names)
			} else {
				r.work(ctx, c)
			}
		})
	}
	done := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.acked)
	}
	for range kills {
		before := done()
		testkit.Eventually(t, "messages are acked", func() bool { return done() >= before+200 })
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
		kit.Start(t, b)
		r.look(kit.Connect(t, b.Addr(), 3), names)
	}
	cancel()
	running.Wait()
	c := kit.Connect(t, b.Addr(), 3)
	r.look(c, names)
	testkit.Eventually(t, "the queue is empty", func() bool {
		for _, d := range lease(t, c, "jobs", "COUNT", 100, "BLOCK", 100) {
			kit.Do(t, c, "FILA.ACK", "jobs", d.receipt)
		}
		s := kit.Stats(t, c, "jobs")
		return s["ready"] == int64(0) && s["leased"] == int64(0)
	})
	old := slices.Collect(maps.Keys(r.names))
	for i := range names {
		if id := fmt.Sprint(kit.Do(t, c, "FILA.ENQUEUE", "jobs", "x", "UNIQUE", fmt.Sprint("u", i))); slices.Contains(old, id) {
			t.Errorf("u%d is answered with %s, and the queue was empty", i, id)
		}
	}
	if err := b.Kill(); err != nil {
		t.Error(err)
	}
	wantOutput(t, 0, "everything is in order", "check", b.Data())
	t.Logf("%d messages were enqueued, %d acks answered", len(r.names), len(r.acked))
}

package integration_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// TestReplaceThroughALibrary: what go-redis is answered in both protocols, also after a kill.
func TestReplaceThroughALibrary(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		queue := "docs" + strconv.Itoa(protocol)
		c := kit.Connect(t, b.Addr(), protocol)
		kit.Do(t, c, "FILA.QUEUE", "CREATE", queue, "VISIBILITY", 3_600_000)
		send := func(c *redis.Client, payload string, options ...any) any {
			t.Helper()
			return kit.Do(t, c, append([]any{"FILA.ENQUEUE", queue, payload, "UNIQUE", "doc", "REPLACE", "UNTIL", "LEASE"}, options...)...)
		}
		first := send(c, "one", "DELAY", 3_600_000)
		if id := send(c, "two", "DELAY", 3_600_000, "MAXDELAY", 7_200_000); id != first {
			t.Errorf("answered with %v, want %v", id, first)
		}
		if m := kit.Mapped(t, kit.Do(t, c, "FILA.GET", queue, first)); m["payload"] != "two" || m["until_lease"] != int64(1) || m["status"] != "delayed" {
			t.Errorf("it is shown as %v", m)
		}
		kit.Kill(t, b)
		kit.Start(t, b)
		c = kit.Connect(t, b.Addr(), protocol)
		if id := send(c, "three"); id != first {
			t.Errorf("after a kill, answered with %v, want %v", id, first)
		}
		d := one(t, c, queue)
		if d.payload != "three" || d.id() != first {
			t.Errorf("%+v", d)
		}
		next := send(c, "four")
		if next == first {
			t.Error("the id is not free while the message is leased")
		}
		kit.Kill(t, b)
		kit.Start(t, b)
		c = kit.Connect(t, b.Addr(), protocol)
		if n := kit.Do(t, c, "FILA.ACK", queue, d.receipt); n != int64(1) {
			t.Errorf("the enqueue that took the id has not recorded the lease: %v were acked", n)
		}
		if id := send(c, "five"); id != next {
			t.Errorf("answered with %v, want %v", id, next)
		}
		if d := one(t, c, queue); d.payload != "five" {
			t.Errorf("%+v", d)
		}
	}
}

// TestReplacementsSurviveAFailover replaces at a follower, and goes on with the next leader.
func TestReplacementsSurviveAFailover(t *testing.T) {
	t.Parallel()
	n := cluster(t)
	leader := n.leader()
	at := n.others(leader)[0]
	c := kit.Connect(t, n.Node(at).Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "docs", "VISIBILITY", 3_600_000)
	first := kit.Do(t, c, "FILA.ENQUEUE", "docs", "one", "UNIQUE", "doc", "UNTIL", "LEASE", "REPLACE")
	if id := n.redisCLI(at, "FILA.ENQUEUE", "docs", "two", "UNIQUE", "doc", "UNTIL", "LEASE", "REPLACE"); id != first {
		t.Errorf("redis-cli is answered with %s, want %v", id, first)
	}
	d := one(t, c, "docs")
	next := kit.Do(t, c, "FILA.ENQUEUE", "docs", "three", "UNIQUE", "doc", "UNTIL", "LEASE", "REPLACE")
	n.kill(leader)
	kit.Ready(t, n.Node(at).Broker)
	c = kit.Connect(t, n.Node(at).Addr(), 2)
	if id := kit.Do(t, c, "FILA.ENQUEUE", "docs", "four", "UNIQUE", "doc", "UNTIL", "LEASE", "REPLACE"); id != next || next == first {
		t.Errorf("the next leader answers with %v, want %v, which is not %v", id, next, first)
	}
	if got := kit.Do(t, c, "FILA.ACK", "docs", d.receipt); d.payload != "two" || got != int64(1) {
		t.Errorf("%v acked of %+v", got, d)
	}
	if d := one(t, c, "docs"); d.payload != "four" || d.id() != next {
		t.Errorf("%+v", d)
	}
}

// states are what producers and workers know of the states of things that are sent with REPLACE: of thing i
// the states 1, 2 and so on, each the payload "i:state" of an enqueue.
type states struct {
	t         *testing.T
	queue     string
	single    bool // at most one message of a thing is in the hands of a worker
	throttled bool // each thing has a throttle of its own
	waits     int  // how many messages of a thing the queue may have; 0: any
	clock     atomic.Int64

	mu     sync.Mutex
	sent   []int   // the newest state, by thing
	acked  [][]int // states that were answered, in order
	when   [][]int64
	seen   []int               // the newest state that was delivered
	owners map[string]delivery // the newest delivery that a worker has not begun to ack, by thing
	count  int

	down   time.Duration // that the broker was down
	latest time.Duration // a delivery after its first enqueue
}

func newStates(t *testing.T, queue string, things int) *states {
	t.Helper()
	return &states{
		t: t, queue: queue, sent: make([]int, things), acked: make([][]int, things), when: make([][]int64, things),
		seen: make([]int, things), owners: map[string]delivery{},
	}
}

// produce sends states of the things from one on, each step-th, until the context ends; pause is the time between two.
func (s *states) produce(ctx context.Context, c *redis.Client, from, step int, pause time.Duration, options ...any) {
	for next := time.Now(); ctx.Err() == nil; {
		for i := from; i < len(s.sent) && ctx.Err() == nil; i += step {
			s.mu.Lock()
			s.sent[i]++
			state := s.sent[i]
			s.mu.Unlock()
			name := "thing" + strconv.Itoa(i)
			args := []any{"FILA.ENQUEUE", s.queue, fmt.Sprintf("%d:%d", i, state), "KEY", name, "UNIQUE", name, "UNTIL", "LEASE", "REPLACE"}
			if s.throttled {
				args = append(args, "THROTTLE", "job:"+name)
			}
			err := c.Do(ctx, append(args, options...)...).Err()
			if err != nil {
				time.Sleep(5 * time.Millisecond) // the broker is being started
				continue
			}
			s.mu.Lock()
			s.acked[i], s.when[i] = append(s.acked[i], state), append(s.when[i], s.clock.Add(1))
			s.mu.Unlock()
			if next = next.Add(pause); time.Until(next) > 0 {
				time.Sleep(time.Until(next))
			}
		}
	}
}

// stateLease is how long a worker has a message. What a kill has left leased comes again after that.
const stateLease = 2 * time.Second

// work leases and acks until the context ends.
func (s *states) work(ctx context.Context, c *redis.Client) {
	for ctx.Err() == nil {
		began := s.clock.Add(1)
		ds, err := leased(c.Do(ctx, "FILA.LEASE", s.queue, "COUNT", 3, "VISIBILITY", stateLease.Milliseconds()).Val())
		if err != nil || len(ds) == 0 {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		for i := range ds {
			s.delivered(&ds[i], began)
		}
		for i := range ds {
			s.ack(ctx, c, &ds[i])
		}
	}
}

// delivered judges a delivery of a lease that was asked for at a time of the clock.
func (s *states) delivered(d *delivery, began int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var i, state int
	if _, err := fmt.Sscanf(d.payload, "%d:%d", &i, &state); err != nil || state > s.sent[i] {
		s.t.Errorf("%q was delivered, %d is the last: %v", d.payload, s.sent[i], err)
		return
	}
	// A worker that is late has a message for no longer than its lease.
	other, owned := s.owners[d.key]
	if s.single && owned && other.id() != d.id() && d.until.Add(-stateLease).Before(other.until) {
		s.t.Errorf("%s was delivered while %s is in the hands of a worker", d.id(), other.id())
	}
	s.owners[d.key] = *d
	s.seen[i] = max(s.seen[i], state)
	s.count++
	if d.deliveries > 1 {
		return // it has been leased before, and newer states are beside it
	}
	for n, newest := range slices.Backward(s.acked[i]) {
		if s.when[i][n] < began {
			if state < newest {
				s.t.Errorf("%q was delivered for the first time, and state %d was acknowledged before", d.payload, newest)
			}
			break
		}
	}
	s.latest = max(s.latest, time.Since(d.enqueuedAt)-s.down)
}

func (s *states) ack(ctx context.Context, c *redis.Client, d *delivery) {
	s.mu.Lock()
	if other := s.owners[d.key]; other.id() == d.id() {
		delete(s.owners, d.key)
	}
	s.mu.Unlock()
	for ctx.Err() == nil {
		if c.Do(ctx, "FILA.ACK", s.queue, d.receipt).Err() == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// kill kills the broker and starts it again.
func (s *states) kill(b *harness.Broker) {
	s.t.Helper()
	began := time.Now()
	kit.Kill(s.t, b)
	kit.Start(s.t, b)
	s.mu.Lock()
	s.down += time.Since(began)
	s.mu.Unlock()
}

// missing returns how many things have an acknowledged state that is newer than all that were delivered.
func (s *states) missing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, acked := range s.acked {
		if len(acked) > 0 && s.seen[i] < acked[len(acked)-1] {
			n++
		}
	}
	return n
}

// atMost checks that the queue has no more messages of any thing than it may have.
func (s *states) atMost(c *redis.Client) {
	s.t.Helper()
	of := map[string]int{}
	page := kit.Do(s.t, c, "FILA.BROWSE", s.queue, "COUNT", 1000).([]any) //nolint:forcetypeassert // the contract guarantees the type
	for _, m := range page[1].([]any) {                                   //nolint:forcetypeassert // the same
		of[fmt.Sprint(kit.Mapped(s.t, m)["key"])]++
	}
	for key, n := range of {
		if n > s.waits {
			s.t.Errorf("%d messages of %s are in the queue", n, key)
		}
	}
}

// run has producers and workers at work while the broker is killed.
func (s *states) run(b *harness.Broker, producers, workers, kills int, each, pause time.Duration, options ...any) {
	t := s.t
	t.Helper()
	producing, stop := context.WithCancel(t.Context())
	working, end := context.WithCancel(t.Context())
	defer end()
	var atWork, atProduction sync.WaitGroup
	for i := range producers + workers {
		c := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 2 + i%2, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
		if i < producers {
			atProduction.Go(func() {
				defer func() { _ = c.Close() }()
				s.produce(producing, c, i, producers, pause, options...)
			})
			continue
		}
		atWork.Go(func() {
			defer func() { _ = c.Close() }()
			s.work(working, c)
		})
	}
	count := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.count
	}
	for range kills {
		before, until := count(), time.Now().Add(each)
		testkit.Eventually(t, "states are delivered", func() bool { return count() >= before+50 && time.Now().After(until) })
		s.kill(b)
		if s.waits > 0 {
			s.atMost(kit.Connect(t, b.Addr(), 3))
		}
	}
	before, until := count(), time.Now().Add(each)
	testkit.Eventually(t, "states are delivered", func() bool { return count() >= before+50 && time.Now().After(until) })
	stop()
	atProduction.Wait()
	testkit.Eventually(t, "the last state of each thing is delivered", func() bool { return s.missing() == 0 })
	end()
	atWork.Wait()
	kit.Kill(t, b)
	wantOutput(t, 0, "everything is in order", "check", b.Data())
}

// TestTheLastStateIsDeliveredInTime debounces states while the broker is killed: each first delivery has the
// newest state that was acknowledged before its lease was asked for, none comes later than MAXDELAY
// and the time that the broker was down, and the last state of each thing is delivered.
func TestTheLastStateIsDeliveredInTime(t *testing.T) {
	t.Parallel()
	things, producers, kills, each := 20, 4, 1, 1500*time.Millisecond
	if !testing.Short() {
		things, producers, kills, each = 100, 10, 3, 15*time.Second
	}
	b := kit.Serve(t)
	kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.QUEUE", "CREATE", "states", "MAXATTEMPTS", 0)
	s := newStates(t, "states", things)
	s.run(b, producers, 8, kills, each, time.Second*time.Duration(producers)/1000, "DELAY", 200, "MAXDELAY", 1000)
	if most := time.Second + testkit.Patience()/4; s.latest > most {
		t.Errorf("a state was delivered %v after the first, without the time that the broker was down", s.latest)
	}
	t.Logf("%d deliveries, the latest %v after the first enqueue, the broker was down for %v", s.count, s.latest, s.down)
}

// TestOneRunsAndAtMostOneWaits is the recipe of docs/explanation/unique.md in both forms: no two workers have messages of
// one thing, at most one waits beside it, and the last state is always seen.
func TestOneRunsAndAtMostOneWaits(t *testing.T) {
	t.Parallel()
	things, workers, kills := 20, 8, 2
	if !testing.Short() {
		things, workers, kills = 100, 16, 6
	}
	for _, form := range []struct {
		name      string
		ordered   string
		throttled bool
		waits     int
	}{
		{"in an ordered queue", "ON", false, 2},
		// Workers answer at once: what a kill leaves is one message whose lease was recorded, which the queue tries again
		// when that ends, beside the next one and a newer one.
		{"under a throttle of its own", "OFF", true, 3},
	} {
		t.Run(form.name, func(t *testing.T) {
			t.Parallel()
			b := kit.Serve(t)
			c := kit.Connect(t, b.Addr(), 3)
			kit.Do(t, c, "FILA.QUEUE", "CREATE", "sync", "MAXATTEMPTS", 0, "ORDERED", form.ordered)
			kit.Do(t, c, "FILA.THROTTLE", "SET", "job:*", "CONCURRENCY", 1)
			s := newStates(t, "sync", things)
			s.single, s.throttled, s.waits = true, form.throttled, form.waits
			s.run(b, 4, workers, kills, time.Second, 2*time.Millisecond)
			t.Logf("%d deliveries of %d things", s.count, things)
		})
	}
}

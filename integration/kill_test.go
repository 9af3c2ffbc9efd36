package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

const (
	visibility = 1500 * time.Millisecond // of leases: abandoned ones must expire within the test
	backlogMax = 3000                    // maximum of enqueues ahead of the acks, to keep the final drain short
	producers  = 6
	consumers  = 8
)

// killRounds returns how often a broker, or a node, is killed.
func killRounds() int {
	if testing.Short() {
		return 3
	}
	return 5
}

// TestNothingIsLostWhenTheBrokerIsKilled kills the broker again and again while
// many clients work, and checks it against all of its replies.
func TestNothingIsLostWhenTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	admin := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", visibility.Milliseconds(), "BACKOFF", 10, "MAXATTEMPTS", 1_000_000)
	l := newLedger()
	load := &load{ledger: l, addr: b.Addr()}

	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	var producer, consumer sync.WaitGroup
	defer func() { stopProducing(); producer.Wait(); stopConsuming(); consumer.Wait() }()
	for i := range producers {
		producer.Go(func() { load.produce(producing, i) })
	}
	for i := range consumers {
		consumer.Go(func() { load.consume(consuming, i) })
	}
	seed := rand.Uint64()
	t.Logf("the moments of the kills are from seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	for range killRounds() {
		answers := l.answers()
		more := 300 + chance.IntN(3000)
		testkit.Eventually(t, "enqueues are answered", func() bool { return l.answers() >= answers+more })
		kit.Kill(t, b)
		l.killed()
		kit.Start(t, b)
	}
	stopProducing()
	producer.Wait()
	wantDrained(t, admin, "q")
	stopConsuming()
	consumer.Wait()
	l.check(t)
	kit.WantStats(t, admin, "q", map[string]int64{"ready": 0, "delayed": 0, "leased": 0, "dead": 0, "waiters": 0})
	t.Logf("%d enqueues answered, %d deliveries, %d acks, %d kills", len(l.answered), len(l.receipts), len(l.acked), killRounds())
}

// wantDrained polls until consumers have emptied the queue, for which abandoned leases
// have to expire.
func wantDrained(t *testing.T, c *redis.Client, queue string) {
	t.Helper()
	kit.WantStats(t, c, queue, map[string]int64{"counting": 0, "ready": 0, "delayed": 0, "leased": 0})
}

// load is the clients' work. Errors mean that the broker is down: an unanswered command may or may
// not have been executed.
type load struct {
	ledger *ledger
	addr   string
}

func (x *load) client(protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: x.addr, Protocol: protocol, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
}

// produce enqueues each payload once, alone or in pipelines.
func (x *load) produce(ctx context.Context, producer int) {
	c := x.client(2 + producer%2)
	defer c.Close()
	for n := 0; ctx.Err() == nil; {
		for ctx.Err() == nil && x.ledger.backlog() > backlogMax {
			time.Sleep(time.Millisecond)
		}
		p := c.Pipeline()
		payloads, replies := []string{}, []*redis.Cmd{}
		for range 1 + n%8 {
			payload := fmt.Sprintf("%d-%d", producer, n)
			n++
			payloads = append(payloads, payload)
			replies = append(replies, p.Do(ctx, "FILA.ENQUEUE", "q", payload, "KEY", fmt.Sprint("key-", n%20)))
		}
		// Not the load's context, so that its end does not interrupt a pipeline.
		_, failed := p.Exec(context.WithoutCancel(ctx))
		for i, r := range replies {
			if id, err := r.Text(); err == nil {
				x.ledger.enqueued(payloads[i], id)
			}
		}
		if failed != nil {
			time.Sleep(2 * time.Millisecond) // the broker is being started
		}
	}
}

// consume leases messages, and ends leases in every possible way.
func (x *load) consume(ctx context.Context, consumer int) {
	c := x.client(2 + consumer%2)
	defer c.Close()
	chance := rand.New(rand.NewPCG(uint64(consumer), 0))
	for ctx.Err() == nil {
		era := x.ledger.now()
		reply, err := c.Do(context.WithoutCancel(ctx), "FILA.LEASE", "q", "COUNT", 16, "BLOCK", 50).Result()
		if err != nil {
			time.Sleep(2 * time.Millisecond) // the broker is being started
			continue
		}
		deliveries, err := leased(reply)
		if err != nil {
			x.ledger.mu.Lock()
			x.ledger.breach("%v", err)
			x.ledger.mu.Unlock()
			return
		}
		for _, d := range deliveries {
			x.ledger.delivered(d, era, visibility)
		}
		for _, d := range deliveries {
			x.end(ctx, c, d, chance.IntN(100))
		}
	}
}

func (x *load) end(ctx context.Context, c *redis.Client, d delivery, how int) {
	if how < 2 {
		return // the lease expires
	}
	x.ledger.givesUp(d)
	ctx = context.WithoutCancel(ctx)
	switch {
	case how < 10:
		c.Do(ctx, "FILA.NACK", "q", d.receipt, "ERROR", "as chance has it")
	case how < 15:
		c.Do(ctx, "FILA.RELEASE", "q", d.receipt)
	default:
		if n, err := c.Do(ctx, "FILA.ACK", "q", d.receipt).Int(); err == nil && n == 1 {
			x.ledger.ack(d)
		}
	}
}

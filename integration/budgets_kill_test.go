package integration_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

var (
	budgetWorkers = flag.Int("budget-workers", 40, "workers that share a budget while the broker is killed")
	budgetKills   = flag.Int("budget-kills", 4, "how often it is killed meanwhile")
)

// till is what the replies say about a budget.
type till struct {
	addr     string
	credited atomic.Int64 // by answered credits, each id once
	least    atomic.Int64 // spent by answered acks, nacks and charges
	most     atomic.Int64 // the same with those that were not answered
	answers  atomic.Int64
	enqueued atomic.Int64
	ended    atomic.Int64 // messages that were acked
	repeated atomic.Int64 // credits that were sent again after their answer
	faults   chan error
}

func (l *till) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: l.addr, Protocol: 3, MaxRetries: -1, ReadTimeout: testkit.Patience(), PoolSize: 1})
}

func (l *till) fault(format string, args ...any) {
	select {
	case l.faults <- fmt.Errorf(format, args...):
	default:
	}
}

// spends runs a command that spends up to an amount if it is answered 1.
func (l *till) spends(ctx context.Context, c *redis.Client, amount int64, args ...any) bool {
	l.most.Add(amount)
	reply, err := c.Do(ctx, args...).Result()
	if err != nil {
		return false
	}
	l.answers.Add(1)
	if n, ok := reply.(int64); ok && n != 1 {
		l.most.Add(-amount) // the lease was over
		return false
	}
	l.least.Add(amount)
	return true
}

// work leases, and ends each lease in one of all ways.
func (l *till) work(ctx context.Context, no int) {
	c := l.client()
	defer func() { c.Close() }()
	r := rand.New(rand.NewPCG(uint64(no), 17))
	for ctx.Err() == nil {
		if r.IntN(30) == 0 {
			l.vanish(r)
			continue
		}
		reply, err := c.Do(ctx, "FILA.LEASE", "q", "COUNT", 1+r.IntN(3), "BLOCK", 200).Result()
		if err != nil {
			time.Sleep(5 * time.Millisecond) // the broker is being started
			continue
		}
		l.answers.Add(1)
		ds, err := leased(reply)
		if err != nil {
			l.fault("%w", err)
			return
		}
		for _, d := range ds {
			l.end(ctx, c, r, &d)
		}
	}
}

func (l *till) end(ctx context.Context, c *redis.Client, r *rand.Rand, d *delivery) {
	charge, err := strconv.ParseInt(d.payload, 10, 64)
	if err != nil {
		l.fault("%w", err)
	}
	used := r.Int64N(charge + 2) // less, as much, or more
	switch n := r.IntN(20); {
	case n < 8:
		if l.spends(ctx, c, charge, "FILA.ACK", "q", d.receipt) {
			l.ended.Add(1)
		}
	case n < 14:
		if l.spends(ctx, c, used, "FILA.ACK", "q", d.receipt, "USED", used) {
			l.ended.Add(1)
		}
	case n < 16:
		l.most.Add(used)
		if reply, err := c.Do(ctx, "FILA.NACK", "q", d.receipt, "DELAY", 0, "USED", used).Result(); err == nil && reply != nil {
			l.least.Add(used)
			l.answers.Add(1)
		}
	case n < 18:
		if c.Do(ctx, "FILA.RELEASE", "q", d.receipt).Err() == nil {
			l.answers.Add(1)
		}
	default: // it is forgotten, and its lease expires
	}
}

// vanish asks for messages and leaves without waiting for them.
func (l *till) vanish(r *rand.Rand) {
	c, err := net.Dial("tcp", l.addr)
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintf(c, "FILA.LEASE q COUNT 2 BLOCK 1000\r\n") // the broker may be gone as well
	if err := c.SetReadDeadline(time.Now().Add(time.Duration(r.IntN(2000)) * time.Microsecond)); err == nil {
		_, _ = c.Read(make([]byte, 1)) // it leaves with the reply, or before
	}
}

// credit credits in small amounts, each until it is answered, and some again after that.
func (l *till) credit(ctx context.Context) {
	c := l.client()
	defer c.Close()
	r := rand.New(rand.NewPCG(17, 17))
	var balances []int64
	amount := func(i int) int64 { return int64(5 + i%20) }
	send := func(i int) (int64, error) {
		return c.Do(context.WithoutCancel(ctx), "FILA.BUDGET", "CREDIT", "acme", amount(i), "ID", fmt.Sprint("invoice-", i)).Int64()
	}
	for i := 0; ctx.Err() == nil; i++ {
		for {
			balance, err := send(i)
			if err == nil {
				balances = append(balances, balance)
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		l.credited.Add(amount(i))
		l.answers.Add(1)
		if again := r.IntN(i + 1); r.IntN(3) == 0 {
			if balance, err := send(again); err == nil {
				l.repeated.Add(1)
				if balance != balances[again] {
					l.fault("credit %d was answered %d, and then %d", again, balances[again], balance)
				}
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// charge charges for work that is no message.
func (l *till) charge(ctx context.Context) {
	c := l.client()
	defer c.Close()
	for i := 0; ctx.Err() == nil; i++ {
		l.spends(ctx, c, 3, "FILA.BUDGET", "CHARGE", "acme", 3, "ID", fmt.Sprint("page-", i))
		time.Sleep(7 * time.Millisecond)
	}
}

// produce enqueues messages whose payload is their charge.
func (l *till) produce(ctx context.Context, no int) {
	c := l.client()
	defer c.Close()
	r := rand.New(rand.NewPCG(uint64(no), 18))
	for ctx.Err() == nil {
		if l.enqueued.Load()-l.ended.Load() > 600 {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		charge := r.IntN(10)
		if c.Do(ctx, "FILA.ENQUEUE", "q", charge, "KEY", fmt.Sprint("k", r.IntN(9)), "WEIGHT", 1+r.IntN(3), "BUDGET", "acme", "CHARGE", charge).Err() == nil {
			l.enqueued.Add(1)
			l.answers.Add(1)
		} else {
			time.Sleep(2 * time.Millisecond)
		}
	}
}

// TestCreditsAddUpWhenTheBrokerIsKilled kills the broker again and again while workers lease, ack
// with and without USED, nack, release, forget and vanish on one budget. In the end its sums are
// those of the replies: nothing is reserved, and all credits are spent or available.
func TestCreditsAddUpWhenTheBrokerIsKilled(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	admin := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, admin, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 1500, "BACKOFF", 0, "MAXATTEMPTS", 1_000_000)
	kit.Do(t, admin, "FILA.BUDGET", "SET", "acme")
	l := &till{addr: b.Addr(), faults: make(chan error, 1)}
	producing, stopProducing := context.WithCancel(t.Context())
	working, stopWorking := context.WithCancel(t.Context())
	var producers, workers sync.WaitGroup
	defer func() { stopProducing(); producers.Wait(); stopWorking(); workers.Wait() }()
	producers.Go(func() { l.credit(producing) })
	producers.Go(func() { l.charge(producing) })
	for i := range 3 {
		producers.Go(func() { l.produce(producing, i) })
	}
	for i := range *budgetWorkers {
		workers.Go(func() { l.work(working, i) })
	}
	for i := range *budgetKills {
		answers := l.answers.Load()
		more := int64(200 + rand.IntN(800))
		testkit.Eventually(t, "clients get answers", func() bool { return l.answers.Load() >= answers+more })
		kit.Kill(t, b)
		kit.Start(t, b)
		if i == *budgetKills/2 { // what is reserved now is that of leases
			admin = kit.Connect(t, b.Addr(), 3)
			wantSums(t, admin)
		}
	}
	testkit.Eventually(t, "enough has happened", func() bool { return l.ended.Load() >= 100 && l.repeated.Load() > 0 })
	stopProducing()
	producers.Wait()
	kit.Do(t, admin, "FILA.BUDGET", "CREDIT", "acme", 1_000_000, "ID", "the rest")
	l.credited.Add(1_000_000)
	wantDrained(t, admin, "q")
	stopWorking()
	workers.Wait()
	select {
	case err := <-l.faults:
		t.Error(err)
	default:
	}
	got := wantSums(t, admin)
	if got["credited"] != l.credited.Load() || got["reserved"] != 0 || got["available"] != got["credited"]-got["spent"] {
		t.Errorf("%v, want %d credited and nothing reserved", got, l.credited.Load())
	}
	if got["spent"] < l.least.Load() || got["spent"] > l.most.Load() {
		t.Errorf("%d are spent, the replies say from %d to %d", got["spent"], l.least.Load(), l.most.Load())
	}
	if sum := historySum(t, admin, "acme"); sum != got["balance"] {
		t.Errorf("the entries add up to %d, the balance is %d", sum, got["balance"])
	}
	t.Logf("%d kills, %d workers: %d messages acked, %d credits repeated; %v, by the replies %d credited, %d to %d spent",
		*budgetKills, *budgetWorkers, l.ended.Load(), l.repeated.Load(), got, l.credited.Load(), l.least.Load(), l.most.Load())
}

// wantSums returns the sums of the budget acme, which must add up.
func wantSums(t *testing.T, c *redis.Client) map[string]int64 {
	t.Helper()
	return budgetSums(t, c, "acme")
}

// budgetSums returns the sums of a budget, which must add up.
func budgetSums(t *testing.T, c *redis.Client, name string) map[string]int64 {
	t.Helper()
	sums := map[string]int64{}
	m := kit.Mapped(t, kit.Do(t, c, "FILA.BUDGET", "GET", name))
	for _, field := range []string{"balance", "reserved", "available", "credited", "spent"} {
		n, ok := m[field].(int64)
		if !ok {
			t.Fatalf("%s is %v", field, m[field])
		}
		sums[field] = n
	}
	if sums["credited"] != sums["spent"]+sums["reserved"]+sums["available"] || sums["balance"] != sums["credited"]-sums["spent"] || sums["reserved"] < 0 {
		t.Errorf("the sums do not add up: %v", sums)
	}
	return sums
}

// historySum returns the sum of all entries of a budget.
func historySum(t *testing.T, c *redis.Client, name string) (sum int64) {
	t.Helper()
	for cursor := "0"; ; {
		page, ok := kit.Do(t, c, "FILA.BUDGET", "HISTORY", name, "CURSOR", cursor, "COUNT", 500).([]any)
		if !ok || len(page) != 2 {
			t.Fatalf("a page is %v", page)
		}
		for _, e := range page[1].([]any) {
			n, ok := kit.Mapped(t, e)["amount"].(int64)
			if !ok {
				t.Fatalf("an entry is %v", e)
			}
			sum += n
		}
		if cursor = fmt.Sprint(page[0]); cursor == "0" {
			return sum
		}
	}
}

package integration_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// wantBudget polls until a budget has these sums: the end of a lease may be that of a client that the
// broker has still to miss.
func wantBudget(t *testing.T, c *redis.Client, name string, credited, spent, reserved int64) {
	t.Helper()
	testkit.EventuallyEqual(t, "what is credited, spent and reserved of budget "+name, [3]int64{credited, spent, reserved}, func() [3]int64 {
		got := budgetSums(t, c, name)
		return [3]int64{got["credited"], got["spent"], got["reserved"]}
	})
}

// TestEachEndOfALeaseGivesCreditsBack ends a lease in every way that spends nothing. What it has
// reserved is available again, once: the next lease reserves the same.
func TestEachEndOfALeaseGivesCreditsBack(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	// endsBy ends the broker while a lease is held that ends a second later, and starts it again.
	endsBy := func(end func(b *harness.Broker) error, q string, d delivery) {
		kit.Do(t, kit.Connect(t, b.Addr(), 3), "FILA.EXTEND", q, d.receipt, 1000)
		restarted(t, b, end)
	}
	for name, ends := range map[string]func(q string, d delivery) []any{ // the command; nil: none
		"nack":         func(q string, d delivery) []any { return []any{"FILA.NACK", q, d.receipt, "DELAY", 0} },
		"dead":         func(q string, d delivery) []any { return []any{"FILA.NACK", q, d.receipt, "DEAD"} },
		"release":      func(q string, d delivery) []any { return []any{"FILA.RELEASE", q, d.receipt} },
		"cancel":       func(q string, d delivery) []any { return []any{"FILA.CANCEL", q, strings.Split(d.receipt, ":")[0]} },
		"purge":        func(q string, _ delivery) []any { return []any{"FILA.PURGE", q} },
		"DELETE FORCE": func(q string, _ delivery) []any { return []any{"FILA.QUEUE", "DELETE", q, "FORCE"} },
		"expiry":       func(q string, d delivery) []any { return []any{"FILA.EXTEND", q, d.receipt, 1} },
		"kill":         func(q string, d delivery) []any { endsBy((*harness.Broker).Kill, q, d); return nil },
		"restart":      func(q string, d delivery) []any { endsBy((*harness.Broker).Stop, q, d); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			c := kit.Connect(t, b.Addr(), 3)
			q, budget := strings.ReplaceAll(name, " ", "-"), "b-"+name
			kit.Do(t, c, "FILA.QUEUE", "CREATE", q, "VISIBILITY", 3_600_000, "BACKOFF", 0)
			kit.Do(t, c, "FILA.BUDGET", "SET", budget)
			kit.Do(t, c, "FILA.BUDGET", "CREDIT", budget, 10)
			for range 2 { // one at a time is paid for
				kit.Do(t, c, "FILA.ENQUEUE", q, "x", "BUDGET", budget, "CHARGE", 7)
			}
			d := one(t, c, q)
			wantBudget(t, c, budget, 10, 0, 7)
			if command := ends(q, d); command != nil {
				kit.Do(t, c, command...)
			}
			c = kit.Connect(t, b.Addr(), 3)
			wantBudget(t, c, budget, 10, 0, 0)
			if name == "purge" || name == "DELETE FORCE" {
				kit.Do(t, c, "FILA.QUEUE", "CREATE", "after-"+q)
				kit.Do(t, c, "FILA.ENQUEUE", "after-"+q, "x", "BUDGET", budget, "CHARGE", 7)
				q = "after-" + q
			}
			d = one(t, c, q)
			if more := lease(t, c, q, "COUNT", 10); len(more) != 0 {
				t.Errorf("%d more messages go out", len(more))
			}
			kit.Do(t, c, "FILA.ACK", q, d.receipt)
			wantBudget(t, c, budget, 10, 7, 0)
		})
	}
}

// TestAClientThatVanishesKeepsNoCredits disconnects waiting clients in the moment in which a credit
// gives them a message. What does not reach a client is given back, at the latest when its lease ends.
func TestAClientThatVanishesKeepsNoCredits(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 500, "BACKOFF", 0)
	kit.Do(t, c, "FILA.BUDGET", "SET", "acme")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 7)
	credited := int64(0)
	for name, leave := range leaving() {
		for range 5 {
			victim := waiter(t, c, b.Addr(), "q")
			if err := leave(victim); err != nil {
				t.Fatal(name, err)
			}
			kit.Do(t, c, "FILA.BUDGET", "CREDIT", "acme", 7)
			credited += 7
			wantBudget(t, c, "acme", credited, credited-7, 0)
			d := one(t, c, "q", "VISIBILITY", 600_000) // the same message again
			kit.Do(t, c, "FILA.ACK", "q", d.receipt)
			wantBudget(t, c, "acme", credited, credited, 0)
			kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 7)
		}
	}
}

// TestAnAckSettlesWhatWasUsed acks without USED, with less, nothing and more than the charge, and in debt.
func TestAnAckSettlesWhatWasUsed(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		c := kit.Connect(t, b.Addr(), protocol)
		q, spent := fmt.Sprint("q", protocol), int64(0)
		kit.Do(t, c, "FILA.QUEUE", "CREATE", q, "BACKOFF", 0)
		kit.Do(t, c, "FILA.BUDGET", "SET", q)
		kit.Do(t, c, "FILA.BUDGET", "CREDIT", q, 100)
		for range 8 {
			kit.Do(t, c, "FILA.ENQUEUE", q, "x", "BUDGET", q, "CHARGE", 10)
		}
		ds := lease(t, c, q, "COUNT", 8)
		if len(ds) != 8 {
			t.Fatalf("%d messages go out, want 8", len(ds))
		}
		settle := func(uses int64, words ...any) {
			t.Helper()
			d := ds[0]
			ds = ds[1:]
			if n := kit.Do(t, c, append([]any{words[0], q, d.receipt}, words[1:]...)...); n == int64(0) {
				t.Errorf("%v: the lease is over", words)
			}
			spent += uses
			wantBudget(t, c, q, 100, spent, int64(10*len(ds)))
		}
		settle(10, "FILA.ACK")
		settle(4, "FILA.ACK", "USED", 4)
		settle(0, "FILA.ACK", "USED", 0)
		settle(3, "FILA.NACK", "USED", 3, "DELAY", 3600_000)
		settle(0, "FILA.NACK", "DELAY", 3600_000)
		settle(1000, "FILA.ACK", "USED", 1000)
		settle(10, "FILA.ACK") // in debt
		if n := kit.Do(t, c, "FILA.ACK", q, ds[0].receipt, "USED", 7); n != int64(1) {
			t.Errorf("an ack in debt is answered %v", n)
		}
		if n := kit.Do(t, c, "FILA.ACK", q, ds[0].receipt, "USED", 7); n != int64(0) {
			t.Errorf("a second ack is answered %v", n)
		}
		wantBudget(t, c, q, 100, spent+7, 0)
		kit.Do(t, c, "FILA.ENQUEUE", q, "late", "BUDGET", q, "CHARGE", 1)
		if more := lease(t, c, q, "COUNT", 10); len(more) != 0 {
			t.Errorf("%d messages go out of a budget in debt", len(more))
		}
	}
}

// TestTwoHundredLeasesRaceForSevenPaidMessages credits one by one, from several connections, what
// pays for seven messages, while two hundred clients wait for two hundred.
func TestTwoHundredLeasesRaceForSevenPaidMessages(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c := kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.BUDGET", "SET", "acme")
	const clients, credits = 200, 23 // of which a message takes 3
	for i := range clients {
		kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "KEY", fmt.Sprint("k", i%20), "BUDGET", "acme", "CHARGE", 3)
	}
	for range clients {
		if _, err := fmt.Fprint(kit.Dial(t, b.Addr()), "FILA.LEASE q BLOCK 0\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	kit.WantStats(t, c, "q", map[string]int64{"waiters": clients})
	var creditors sync.WaitGroup
	for i := range credits {
		own := kit.Connect(t, b.Addr(), 3)
		creditors.Go(func() {
			if err := own.Do(t.Context(), "FILA.BUDGET", "CREDIT", "acme", 1, "ID", fmt.Sprint(i)).Err(); err != nil {
				t.Error(err)
			}
		})
	}
	creditors.Wait()
	kit.WantStats(t, c, "q", map[string]int64{"leased": 7, "ready": clients - 7, "waiters": clients - 7})
	wantBudget(t, c, "acme", credits, 0, 21)
}

// TestAWaitingLeaseWakesWithACredit has a lease wait that nothing but a credit can end.
func TestAWaitingLeaseWakesWithACredit(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	c, waiting := kit.Connect(t, b.Addr(), 3), kit.Connect(t, b.Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 3_600_000) // a lease that ends gives credits back
	kit.Do(t, c, "FILA.BUDGET", "SET", "acme")
	const rounds = 50
	for range rounds {
		kit.Do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 5)
	}
	longest := time.Duration(0)
	for range rounds {
		came := make(chan error, 1)
		go func() {
			reply, err := waiting.Do(t.Context(), "FILA.LEASE", "q", "BLOCK", testkit.Patience().Milliseconds()/2).Result()
			if ds, _ := leased(reply); err == nil && len(ds) != 1 {
				err = fmt.Errorf("%d messages came", len(ds))
			}
			came <- err
		}()
		kit.WantStats(t, c, "q", map[string]int64{"waiters": 1})
		begun := time.Now()
		kit.Do(t, c, "FILA.BUDGET", "CREDIT", "acme", 5)
		if err := <-came; err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(begun))
	}
	t.Logf("the slowest of %d came %s after its credit was sent", rounds, longest)
}

// TestAnIDOfAMovementHoldsEverywhere sends the same movement pipelined, in a transaction, from another
// connection and after kills: it is done once, and refused for another amount.
func TestAnIDOfAMovementHoldsEverywhere(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t)
	for _, protocol := range []int{2, 3} {
		name := fmt.Sprint("acme-", protocol)
		c := kit.Connect(t, b.Addr(), protocol)
		kit.Do(t, c, "FILA.BUDGET", "SET", name)
		credit := []any{"FILA.BUDGET", "CREDIT", name, 100, "ID", "invoice"}
		charge := []any{"FILA.BUDGET", "CHARGE", name, 30, "ID", "page"}
		many := func(run func(fn func(p redis.Pipeliner) error) ([]redis.Cmder, error), args []any, want int64) {
			t.Helper()
			cmds, err := run(func(p redis.Pipeliner) error {
				for range 5 {
					p.Do(t.Context(), args...)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, cmd := range cmds {
				if n, err := cmd.(*redis.Cmd).Int64(); err != nil || n != want {
					t.Errorf("%v is answered %d, %v, want %d", args, n, err, want)
				}
			}
		}
		pipelined := func(fn func(p redis.Pipeliner) error) ([]redis.Cmder, error) { return c.Pipelined(t.Context(), fn) }
		atOnce := func(fn func(p redis.Pipeliner) error) ([]redis.Cmder, error) { return c.TxPipelined(t.Context(), fn) }
		many(pipelined, credit, 100)
		many(atOnce, charge, 70)
		for range 2 {
			many(atOnce, credit, 100)
			many(pipelined, charge, 70)
			refused(t, c, "INVALID", "FILA.BUDGET", "CREDIT", name, 101, "ID", "invoice")
			refused(t, c, "INVALID", "FILA.BUDGET", "CHARGE", name, 100, "ID", "invoice")
			refused(t, c, "INVALID", "FILA.BUDGET", "CHARGE", name, 31, "ID", "page", "FORCE")
			wantBudget(t, c, name, 100, 30, 0)
			killAndRestart(t, b)
			c = kit.Connect(t, b.Addr(), protocol)
		}
		many(atOnce, charge, 70)
		wantBudget(t, c, name, 100, 30, 0)
	}
}

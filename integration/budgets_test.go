package integration_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wantBudget polls until a budget has these sums: the end of a lease may be that of a client that the
// broker has still to miss.
func wantBudget(t *testing.T, c *redis.Client, name string, credited, spent, reserved int64) {
	t.Helper()
	var got map[string]int64
	same := func() bool {
		got = budgetSums(t, c, name)
		return got["credited"] == credited && got["spent"] == spent && got["reserved"] == reserved
	}
	for end := time.Now().Add(20 * time.Second); !same(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("budget %s: %v; want %d credited, %d spent, %d reserved", name, got, credited, spent, reserved)
		}
	}
}

// TestEachEndOfALeaseGivesCreditsBack ends a lease in every way that spends nothing. What it has
// reserved is available again, once: the next lease reserves the same.
func TestEachEndOfALeaseGivesCreditsBack(t *testing.T) {
	b := serve(t)
	for name, ends := range map[string]func(q string, d delivery) []any{ // the command; nil: none
		"nack":         func(q string, d delivery) []any { return []any{"FILA.NACK", q, d.receipt, "DELAY", 0} },
		"dead":         func(q string, d delivery) []any { return []any{"FILA.NACK", q, d.receipt, "DEAD"} },
		"release":      func(q string, d delivery) []any { return []any{"FILA.RELEASE", q, d.receipt} },
		"cancel":       func(q string, d delivery) []any { return []any{"FILA.CANCEL", q, strings.Split(d.receipt, ":")[0]} },
		"purge":        func(q string, _ delivery) []any { return []any{"FILA.PURGE", q} },
		"DELETE FORCE": func(q string, _ delivery) []any { return []any{"FILA.QUEUE", "DELETE", q, "FORCE"} },
		"expiry":       func(string, delivery) []any { return nil },
		"kill":         func(string, delivery) []any { killAndRestart(t, b); return nil },
		"restart": func(string, delivery) []any {
			if err := b.Stop(); err != nil {
				t.Fatal(err)
			}
			restart(t, b)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, b.Addr(), 3)
			q, budget := strings.ReplaceAll(name, " ", "-"), "b-"+name
			do(t, c, "FILA.QUEUE", "CREATE", q, "VISIBILITY", 1000, "BACKOFF", 0)
			do(t, c, "FILA.BUDGET", "SET", budget)
			do(t, c, "FILA.BUDGET", "CREDIT", budget, 10)
			for range 2 { // one at a time is paid for
				do(t, c, "FILA.ENQUEUE", q, "x", "BUDGET", budget, "CHARGE", 7)
			}
			d := one(t, c, q)
			wantBudget(t, c, budget, 10, 0, 7)
			if command := ends(q, d); command != nil {
				do(t, c, command...)
			}
			c = connect(t, b.Addr(), 3)
			wantBudget(t, c, budget, 10, 0, 0)
			if name == "purge" || name == "DELETE FORCE" {
				do(t, c, "FILA.QUEUE", "CREATE", "after-"+q)
				do(t, c, "FILA.ENQUEUE", "after-"+q, "x", "BUDGET", budget, "CHARGE", 7)
				q = "after-" + q
			}
			d = one(t, c, q)
			if more := lease(t, c, q, "COUNT", 10); len(more) != 0 {
				t.Errorf("%d more messages go out", len(more))
			}
			do(t, c, "FILA.ACK", q, d.receipt)
			wantBudget(t, c, budget, 10, 7, 0)
		})
	}
}

// TestAClientThatVanishesKeepsNoCredits disconnects waiting clients in the moment in which a credit
// gives them a message. What does not reach a client is given back, at the latest when its lease ends.
func TestAClientThatVanishesKeepsNoCredits(t *testing.T) {
	b := serve(t)
	c := connect(t, b.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q", "VISIBILITY", 500, "BACKOFF", 0)
	do(t, c, "FILA.BUDGET", "SET", "acme")
	do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 7)
	credited := int64(0)
	for name, leave := range leaving() {
		for range 5 {
			victim := waiter(t, c, b.Addr(), "q")
			if err := leave(victim); err != nil {
				t.Fatal(name, err)
			}
			do(t, c, "FILA.BUDGET", "CREDIT", "acme", 7)
			credited += 7
			wantBudget(t, c, "acme", credited, credited-7, 0)
			d := one(t, c, "q") // the same message again
			do(t, c, "FILA.ACK", "q", d.receipt)
			wantBudget(t, c, "acme", credited, credited, 0)
			do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 7)
		}
	}
}

// TestAnAckSettlesWhatWasUsed acks without USED, with less, nothing and more than the charge, and in debt.
func TestAnAckSettlesWhatWasUsed(t *testing.T) {
	b := serve(t)
	for _, protocol := range []int{2, 3} {
		c := connect(t, b.Addr(), protocol)
		q, spent := fmt.Sprint("q", protocol), int64(0)
		do(t, c, "FILA.QUEUE", "CREATE", q, "BACKOFF", 0)
		do(t, c, "FILA.BUDGET", "SET", q)
		do(t, c, "FILA.BUDGET", "CREDIT", q, 100)
		for range 8 {
			do(t, c, "FILA.ENQUEUE", q, "x", "BUDGET", q, "CHARGE", 10)
		}
		ds := lease(t, c, q, "COUNT", 8)
		if len(ds) != 8 {
			t.Fatalf("%d messages go out, want 8", len(ds))
		}
		settle := func(uses int64, words ...any) {
			t.Helper()
			d := ds[0]
			ds = ds[1:]
			if n := do(t, c, append([]any{words[0], q, d.receipt}, words[1:]...)...); n == int64(0) {
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
		if n := do(t, c, "FILA.ACK", q, ds[0].receipt, "USED", 7); n != int64(1) {
			t.Errorf("an ack in debt is answered %v", n)
		}
		if n := do(t, c, "FILA.ACK", q, ds[0].receipt, "USED", 7); n != int64(0) {
			t.Errorf("a second ack is answered %v", n)
		}
		wantBudget(t, c, q, 100, spent+7, 0)
		do(t, c, "FILA.ENQUEUE", q, "late", "BUDGET", q, "CHARGE", 1)
		if more := lease(t, c, q, "COUNT", 10); len(more) != 0 {
			t.Errorf("%d messages go out of a budget in debt", len(more))
		}
	}
}

// TestTwoHundredLeasesRaceForSevenPaidMessages credits one by one, from several connections, what
// pays for seven messages, while two hundred clients wait for two hundred.
func TestTwoHundredLeasesRaceForSevenPaidMessages(t *testing.T) {
	b := serve(t)
	c := connect(t, b.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.BUDGET", "SET", "acme")
	const clients, credits = 200, 23 // of which a message takes 3
	for i := range clients {
		do(t, c, "FILA.ENQUEUE", "q", "x", "KEY", fmt.Sprint("k", i%20), "BUDGET", "acme", "CHARGE", 3)
	}
	for range clients {
		if _, err := fmt.Fprint(raw(t, b.Addr()), "FILA.LEASE q BLOCK 0\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	wantStats(t, c, "q", map[string]int64{"waiters": clients})
	var creditors sync.WaitGroup
	for i := range credits {
		own := connect(t, b.Addr(), 3)
		creditors.Go(func() {
			if err := own.Do(t.Context(), "FILA.BUDGET", "CREDIT", "acme", 1, "ID", fmt.Sprint(i)).Err(); err != nil {
				t.Error(err)
			}
		})
	}
	creditors.Wait()
	wantStats(t, c, "q", map[string]int64{"leased": 7, "ready": clients - 7, "waiters": clients - 7})
	wantBudget(t, c, "acme", credits, 0, 21)
}

// TestAWaitingLeaseWakesWithACredit has a lease wait that nothing but a credit can end.
func TestAWaitingLeaseWakesWithACredit(t *testing.T) {
	b := serve(t)
	c, waiting := connect(t, b.Addr(), 3), connect(t, b.Addr(), 3)
	do(t, c, "FILA.QUEUE", "CREATE", "q")
	do(t, c, "FILA.BUDGET", "SET", "acme")
	const rounds = 50
	for range rounds {
		do(t, c, "FILA.ENQUEUE", "q", "x", "BUDGET", "acme", "CHARGE", 5)
	}
	longest := time.Duration(0)
	for range rounds {
		came := make(chan error, 1)
		go func() {
			reply, err := waiting.Do(t.Context(), "FILA.LEASE", "q", "BLOCK", patience.Milliseconds()/2).Result()
			if ds, _ := leased(reply); err == nil && len(ds) != 1 {
				err = fmt.Errorf("%d messages came", len(ds))
			}
			came <- err
		}()
		wantStats(t, c, "q", map[string]int64{"waiters": 1})
		begun := time.Now()
		do(t, c, "FILA.BUDGET", "CREDIT", "acme", 5)
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
	b := serve(t)
	for _, protocol := range []int{2, 3} {
		name := fmt.Sprint("acme-", protocol)
		c := connect(t, b.Addr(), protocol)
		do(t, c, "FILA.BUDGET", "SET", name)
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
			c = connect(t, b.Addr(), protocol)
		}
		many(atOnce, charge, 70)
		wantBudget(t, c, name, 100, 30, 0)
	}
}

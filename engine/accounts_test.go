package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/internal/ledger"
	"github.com/faisca/fila/storage"
)

func (w *world) setBudget(name string, o BudgetOptions) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.SetBudget(name, &o) })
}

// restart opens the engine again on what its store has after a kill.
func (w *world) restart() {
	w.t.Helper()
	if err := w.Check(); err != nil {
		w.t.Fatal(err)
	}
	cfg := w.core.cfg
	s, err := NewStepper(cfg, w.store.(*storage.Memory).Clone(), w.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	*w.Stepper = *s
}

func (w *world) move(req BudgetMove) (balance int64, err error) {
	w.t.Helper()
	if err := w.PrepareMove(&req); err != nil {
		w.t.Fatal(err)
	}
	err = w.do(func(tx *Tx) (err error) { balance, err = tx.MoveBudget(&req); return err })
	return balance, err
}

func (w *world) budget(name string) BudgetInfo {
	w.t.Helper()
	var i BudgetInfo
	w.must(func(tx *Tx) error { i, _ = tx.Budget(name); return nil })
	return i
}

func (w *world) ledgerOf(name string, count int) []ledger.Entry {
	w.t.Helper()
	var all []ledger.Entry
	req := BudgetHistory{Name: name, Count: count}
	for {
		var page []ledger.Entry
		w.must(func(tx *Tx) (err error) { req.Before, page, err = tx.BudgetHistory(&req); return err })
		if all = append(all, page...); req.Before == 0 {
			return all
		}
	}
}

// moved is a model of one budget: what each answered movement has done.
type moved struct {
	credited, spent int64
	ids             map[string]int64 // balance that was answered; negative amounts are charges
	amounts         map[string]int64
	entries         []int64 // amounts, the newest first
}

// TestBudgetsAreTheSumOfWhatWasAnswered moves three budgets at random, with ids and without,
// over restarts. After each step the sums are those of the movements that were answered, and so
// is the history in the end.
func TestBudgetsAreTheSumOfWhatWasAnswered(t *testing.T) {
	known, refused := 0, 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 17))
		w := newWorld(t, nil)
		models := map[string]*moved{}
		for _, name := range []string{"a", "b", "c"} {
			w.setBudget(name, BudgetOptions{Debt: 20})
			models[name] = &moved{ids: map[string]int64{}, amounts: map[string]int64{}}
		}
		for range 150 {
			name := []string{"a", "b", "c"}[r.IntN(3)]
			m := models[name]
			switch r.IntN(12) {
			case 0:
				w.restart()
				continue
			case 1:
				w.Advance(time.Duration(r.Int64N(int64(3 * time.Hour))))
				continue
			}
			req := BudgetMove{Name: name, Amount: 1 + r.Int64N(30), Charge: r.IntN(2) == 0, Force: r.IntN(5) == 0}
			if r.IntN(2) == 0 {
				req.ID = fmt.Sprint("id", r.IntN(15))
				if was, again := m.amounts[req.ID]; again && r.IntN(3) > 0 { // the client sends it again
					req.Amount, req.Charge = max(was, -was), was < 0
				}
			}
			_, change := req.Kind()
			balance, err := w.move(req)
			was, again := m.ids[req.ID]
			switch {
			case again && m.amounts[req.ID] != change:
				if !errors.Is(err, ErrInvalid) {
					t.Fatalf("seed %d: an id for something else: %d, %v", seed, balance, err)
				}
				refused++
			case again:
				if err != nil || balance != was {
					t.Fatalf("seed %d: the second time %d, %v, want %d", seed, balance, err, was)
				}
				known++
			case errors.Is(err, ErrCredit):
				if !req.Charge || req.Force || m.credited-m.spent+20 >= req.Amount {
					t.Fatalf("seed %d: refused at a balance of %d: %+v", seed, m.credited-m.spent, req)
				}
				refused++
			case err != nil:
				t.Fatal(err)
			default:
				if req.Charge {
					m.spent += req.Amount
				} else {
					m.credited += req.Amount
				}
				if req.ID != "" {
					m.ids[req.ID], m.amounts[req.ID] = balance, change
				}
				m.entries = append(m.entries, change)
			}
			if i := w.budget(name); i.Credited != m.credited || i.Spent != m.spent || i.Balance != i.Credited-i.Spent {
				t.Fatalf("seed %d: %+v, want %d and %d", seed, i, m.credited, m.spent)
			}
		}
		for name, m := range models {
			var got []int64
			for _, e := range w.ledgerOf(name, 7) {
				got = append(got, e.Amount)
			}
			if slices.Reverse(m.entries); !slices.Equal(got, m.entries) {
				t.Fatalf("seed %d: the history of %s is %v, want %v", seed, name, got, m.entries)
			}
		}
	}
	if known < 100 || refused < 100 {
		t.Errorf("only %d ids were known, %d movements refused", known, refused)
	}
}

// TestAnIDHoldsInOneTurnAndInATransaction submits the same credit several times before any of it
// is committed.
func TestAnIDHoldsInOneTurnAndInATransaction(t *testing.T) {
	w := newWorld(t, nil)
	w.setBudget("acme", BudgetOptions{})
	var tasks []*Task
	reqs := make([]BudgetMove, 4)
	for i := range reqs {
		reqs[i] = BudgetMove{Name: "acme", Amount: 5, ID: "one"}
		if err := w.PrepareMove(&reqs[i]); err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.MoveBudget(&reqs[i]); return err })})
	}
	w.Do(tasks...)
	for _, task := range tasks {
		if !task.Done() || task.Err() != nil {
			t.Fatalf("done %v, %v", task.Done(), task.Err())
		}
	}
	if i := w.budget("acme"); i.Credited != 5 {
		t.Errorf("credited %d, want 5", i.Credited)
	}
}

// TestALookUpThatMayHaveMissedTheIDIsRepeated prepares a movement, and lets the same id be used,
// committed and dropped from memory before its turn.
func TestALookUpThatMayHaveMissedTheIDIsRepeated(t *testing.T) {
	w := newWorld(t, nil)
	w.setBudget("acme", BudgetOptions{})
	late := BudgetMove{Name: "acme", Amount: 5, ID: "one"}
	if err := w.PrepareMove(&late); err != nil {
		t.Fatal(err)
	}
	if balance, err := w.move(late); err != nil || balance != 5 {
		t.Fatal(balance, err)
	}
	w.Advance(3 * time.Second)
	var balance int64
	err := w.do(func(tx *Tx) (err error) { balance, err = tx.MoveBudget(&late); return err })
	if err != nil || balance != 5 {
		t.Errorf("the second time: %d, %v", balance, err)
	}
	if i := w.budget("acme"); i.Credited != 5 {
		t.Errorf("credited %d, want 5", i.Credited)
	}
}

// TestARecordOfABudgetIsWrittenOnceInABatch counts the records of many movements in one turn.
func TestARecordOfABudgetIsWrittenOnceInABatch(t *testing.T) {
	w := newWorld(t, nil)
	w.setBudget("acme", BudgetOptions{})
	c := w.core
	for range 100 {
		req := BudgetMove{Name: "acme", Amount: 1}
		tx := &Tx{core: c}
		if _, err := tx.MoveBudget(&req); err != nil {
			t.Fatal(err)
		}
	}
	records := map[storage.Family]int{}
	work := c.cut()
	if err := work.batch.Each(func(r storage.Record) error { records[r.Family]++; return nil }); err != nil {
		t.Fatal(err)
	}
	if records[storage.Budgets] != 1 || records[storage.Ledger] != 100 {
		t.Errorf("%d records of the budget and %d entries, want 1 and 100", records[storage.Budgets], records[storage.Ledger])
	}
}

func TestAsManyBudgetsAsTheLimitAllows(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Limits.Budgets = 2 })
	w.setBudget("a", BudgetOptions{})
	w.setBudget("b", BudgetOptions{})
	if err := w.do(func(tx *Tx) error { return tx.SetBudget("c", &BudgetOptions{}) }); !errors.Is(err, ErrInvalid) {
		t.Errorf("one too many: %v", err)
	}
	w.setBudget("a", BudgetOptions{Debt: 1})
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("a"); return err })
	w.setBudget("c", BudgetOptions{})
}

// TestAMonthOfManyBudgetsBeginsWithoutATurn lets the tick of 10,000 budgets pass. No timer is
// due for it, and a page of all of them is read in several turns.
func TestAMonthOfManyBudgetsBeginsWithoutATurn(t *testing.T) {
	w := newWorld(t, nil)
	const budgets = 10_000
	refill, err := NewRefill(100, "@monthly", "", 300)
	if err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error {
		for i := range budgets {
			if err := tx.SetBudget(fmt.Sprint("budget-", i), &BudgetOptions{Refill: refill}); err != nil {
				return err
			}
		}
		return nil
	})
	turns := w.core.health.counters.turns
	w.Advance(32 * 24 * time.Hour)
	if n := w.core.health.counters.turns - turns; n > 100 {
		t.Errorf("%d turns in a month, as if each budget had a timer", n)
	}
	turns = w.core.health.counters.turns
	req := BudgetList{Count: budgets, Match: func(string) bool { return true }}
	var list []BudgetInfo
	w.must(func(tx *Tx) (err error) { _, list, err = tx.Budgets(&req); return err })
	if n := w.core.health.counters.turns - turns; len(list) != budgets || n < 3 {
		t.Errorf("%d budgets in %d turns", len(list), n)
	}
	for _, i := range list {
		if i.Balance != 200 {
			t.Fatalf("%+v, want a balance of 200", i)
		}
	}
	w.restart()
	if i := w.budget("budget-7"); i.Balance != 200 || i.NextAt.Day() != 1 {
		t.Errorf("after a restart: %+v", i)
	}
}

func TestDaysOfTheLedgerAreDroppedAsAWhole(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.HistoryDays = 2 })
	w.setBudget("acme", BudgetOptions{})
	for range 6 {
		if _, err := w.move(BudgetMove{Name: "acme", Amount: 1, ID: w.Now().String()}); err != nil {
			t.Fatal(err)
		}
		w.Advance(24 * time.Hour)
	}
	days, err := ledger.Recorded(w.store)
	if err != nil || days.End-days.First != 2 || len(w.ledgerOf("acme", 100)) != 2 {
		t.Errorf("days %+v, %v; %d entries, want those of two days", days, err, len(w.ledgerOf("acme", 100)))
	}
	if i := w.budget("acme"); i.Credited != 6 {
		t.Errorf("credited %d, want 6", i.Credited)
	}
	w.Advance(5 * 24 * time.Hour)
	if days, err = ledger.Recorded(w.store); err != nil || !days.Empty() {
		t.Errorf("days %+v, %v, want none", days, err)
	}
}

func TestALowBudgetIsToldOnceUntilItIsAboveAgain(t *testing.T) {
	w := newWorld(t, nil)
	var lows []int64
	w.Listen(func(events []Event) {
		for _, ev := range events {
			if ev.Kind == EventBudgetLow && ev.Budget == "acme" {
				lows = append(lows, ev.Balance)
			}
		}
	})
	w.Want(EventBudgetLow)
	low := int64(10)
	w.setBudget("acme", BudgetOptions{Low: &low})
	for _, change := range []int64{20, -10, -1, -1, 1, 1, 5, -6, -1} {
		if _, err := w.move(BudgetMove{Name: "acme", Amount: max(change, -change), Charge: change < 0}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(lows, []int64{9, 9}) {
		t.Errorf("told at balances %v, want at 9 twice", lows)
	}
}

// TestAStoredRefillThatCannotBeReadIsRepairedBySet starts with an expression that is not valid.
func TestAStoredRefillThatCannotBeReadIsRepairedBySet(t *testing.T) {
	w := newWorld(t, nil)
	var b storage.Batch
	rec := storage.Budget{Made: 1, Credited: 5, Refill: 10, RefillMax: 10, Expression: "not one", NextAt: 1}
	b.Put(storage.Budgets, []byte("acme"), rec.Append(nil))
	if err := w.store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if i := w.budget("acme"); i.Balance != 5 || i.Expression != "not one" {
		t.Errorf("%+v", i)
	}
	refill, err := NewRefill(10, "@daily", "", credit.Max)
	if err != nil {
		t.Fatal(err)
	}
	w.setBudget("acme", BudgetOptions{Refill: refill})
	w.Advance(24 * time.Hour)
	if i := w.budget("acme"); i.Balance != 15 {
		t.Errorf("a day later: %+v, want a balance of 15", i)
	}
}

// TestAKeyThatComesBackFindsItsThrottleSet forgets a key with its last message: what the next one
// names was looked up before. Changes of budgets, throttles and queues in between count.
func TestAKeyThatComesBackFindsItsThrottleSet(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 100)
	cycle := func() *throttleSet {
		t.Helper()
		w.pay("q", "k", 1, "acme")
		set := w.core.queues.byName["q"].keys.get("k").throttles
		d := w.lease("q", 1)
		if len(d) != 1 {
			t.Fatal("nothing goes out")
		}
		w.ackUsed("q", d[0], nil)
		if w.core.queues.byName["q"].keys.get("k") != nil {
			t.Fatal("the key is still there: the test shows nothing")
		}
		w.sound()
		return set
	}
	first := cycle()
	if again := cycle(); again != first {
		t.Error("the set is a new one")
	}
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("acme"); return err })
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 100)
	cycle()
	w.sums("acme", 100, 1, 0)

	w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
	for _, l := range w.core.order.recent {
		if l != nil && w.core.order.Inside().Detached(&l.Set) {
			t.Error("a set keeps the purged keys in memory")
		}
	}
	cycle()
	w.sums("acme", 100, 2, 0)
}

// A refill whose zone is gone has no next tick, and says why.
func TestARefillWhoseZoneIsGoneSaysSo(t *testing.T) {
	store := storage.NewMemory()
	var b storage.Batch
	for name, expression := range map[string]string{"daily": "@daily", "interval": "@every 1h"} {
		rec := storage.Budget{Made: 1, CreatedAt: 1, Refill: 5, RefillMax: 5, NextAt: 1_700_003_600_000_000_000, Expression: expression, Zone: "Gone/Zone"}
		b.Put(storage.Budgets, []byte(name), rec.Append(nil))
	}
	if err := store.Commit(&b, true); err != nil {
		t.Fatal(err)
	}
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	for name, gone := range map[string]bool{"daily": true, "interval": false} {
		var info BudgetInfo
		w.must(func(tx *Tx) error { info, _ = tx.Budget(name); return nil })
		if info.NextAt.IsZero() != gone || (info.RefillError != "") != gone {
			t.Errorf("%s: next at %v, error %q", name, info.NextAt, info.RefillError)
		}
	}
}

package metrics

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
)

// setBudget creates a budget that is refilled each hour up to 10, if it is to be, or has no credits.
func (b *broker) setBudget(name string, refilled bool) {
	b.t.Helper()
	o := engine.BudgetOptions{Low: new(int64(5))}
	if refilled {
		r, err := engine.NewRefill(10, "@hourly", "", 10)
		if err != nil {
			b.t.Fatal(err)
		}
		o.Refill = r
	}
	b.do(func(tx *engine.Tx) error { return tx.SetBudget(name, &o) })
}

// wait has a key of a queue wait for a budget.
func (b *broker) wait(queue, key, budget string) {
	b.t.Helper()
	req := &engine.Enqueue{Queue: queue, Key: key, Payload: []byte("x"), Meta: engine.Meta{Budgets: []string{budget}}, Charge: new(int64(50))}
	if err := b.Prepare(req); err != nil {
		b.t.Fatal(err)
	}
	b.do(func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
	b.deliver(queue)
}

func TestBudgetsThatKeysWaitForHavePlacesFirst(t *testing.T) {
	b := start(t, Config{Queues: 1, Budgets: 2})
	b.create("q")
	for i := range 100 { // more than a page
		b.setBudget(strconv.Itoa(i), false)
	}
	shown := func(want ...string) {
		t.Helper()
		_, gauges := series(b.families(nil))
		for _, name := range want {
			if _, ok := gauges["fila_budget_balance_credits{budget="+name+"}"]; !ok {
				t.Errorf("budget %s has no series", name)
			}
		}
		wantSeries(t, gauges, map[string]float64{`fila_metrics_left_out{kind=budget}`: 98, `fila_budgets{}`: 100})
	}
	shown("0", "1")
	for i := range 3 {
		b.wait("q", fmt.Sprint("key", i), "77")
	}
	shown("0", "1") // they stay for a while
	b.Advance(stay)
	shown("77")
	_, gauges := series(b.families(nil))
	wantSeries(t, gauges, map[string]float64{`fila_budget_waiting_keys{budget=77}`: 3, `fila_keys_without_credit{}`: 3, `fila_budget_low_credits{budget=77}`: 5})
}

// TestAScrapeRefillsNoBudgetButThoseShown looks at two budgets whose refill is due, of which one
// has series.
func TestAScrapeRefillsNoBudgetButThoseShown(t *testing.T) {
	b := start(t, Config{Queues: 1, Budgets: 1})
	for _, name := range []string{"shown", "other"} {
		b.setBudget(name, true)
		b.do(func(tx *engine.Tx) error {
			_, err := tx.MoveBudget(&engine.BudgetMove{Name: name, Amount: 10, Charge: true})
			return err
		})
	}
	b.Advance(time.Hour)
	counters, gauges := series(b.families(nil))
	wantSeries(t, gauges, map[string]float64{`fila_budget_balance_credits{budget=shown}`: 10, `fila_budget_available_credits{budget=shown}`: 10})
	wantSeries(t, counters, map[string]float64{`fila_budget_credited_total{budget=shown}`: 20, `fila_budget_spent_total{budget=shown}`: 10})
	at := b.Now()
	b.Advance(time.Minute)
	for name, late := range map[string]bool{"shown": false, "other": true} {
		req := &engine.BudgetHistory{Name: name, Count: 1}
		b.do(func(tx *engine.Tx) error {
			_, list, err := tx.BudgetHistory(req)
			if err == nil && (len(list) != 1 || list[0].Amount != 10 || time.Unix(0, list[0].At).After(at) != late) {
				t.Errorf("%s was refilled: %+v; want it after the scrape: %v", name, list, late)
			}
			return err
		})
	}
}

// TestAScrapeOfManyBudgetsTakesManyTurns has the work of a turn bounded by the engine: what grows
// is the number of turns.
func TestAScrapeOfManyBudgetsTakesManyTurns(t *testing.T) {
	turns := func(budgets int) int {
		b := start(t, Config{Queues: 1, Budgets: 100})
		for i := range budgets {
			b.setBudget(strconv.Itoa(i), i%2 == 0)
		}
		c := &counted{Call: b.collector.Scrape()}
		task := &engine.Task{Call: c, Client: engine.NewClient(1, func() {})}
		b.Do(task)
		if !task.Done() || task.Err() != nil {
			t.Fatalf("done %v, %v", task.Done(), task.Err())
		}
		return c.turns
	}
	if few, many := turns(10), turns(50_000); few > 3 || many < 3 || many > 100 {
		t.Errorf("%d turns for 10 budgets, %d for 50,000", few, many)
	} else {
		t.Logf("%d turns for 10 budgets, %d for 50,000", few, many)
	}
}

package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/internal/keytable"
)

// pay enqueues a message that budgets pay for.
func (w *world) pay(queue, key string, charge int64, budgets ...string) ID {
	w.t.Helper()
	return w.send(Enqueue{Queue: queue, Key: key, Meta: Meta{Budgets: budgets}, Charge: &charge})
}

func (w *world) send(req Enqueue) (id ID) {
	w.t.Helper()
	if err := w.Prepare(&req); err != nil {
		w.t.Fatal(err)
	}
	w.must(func(tx *Tx) (err error) { id, err = tx.Enqueue(&req); return err })
	return id
}

func (w *world) credit(name string, n int64) {
	w.t.Helper()
	if _, err := w.move(BudgetMove{Name: name, Amount: n}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) ackUsed(queue string, d *Delivery, used *int64) {
	w.t.Helper()
	n, o := 0, AckOptions{Used: used}
	w.must(func(tx *Tx) (err error) { n, err = tx.AckWith(queue, []Receipt{d.Receipt}, o); return err })
	if n != 1 {
		w.t.Fatalf("acked %d", n)
	}
}

// sums fails unless a budget has these sums.
func (w *world) sums(name string, credited, spent, reserved int64) {
	w.t.Helper()
	i := w.budget(name)
	if i.Credited != credited || i.Spent != spent || i.Reserved != reserved || i.Available != credited-spent-reserved || i.Balance != credited-spent {
		w.t.Errorf("budget %q: %+v; want %d credited, %d spent, %d reserved", name, i, credited, spent, reserved)
	}
	if err := w.Check(); err != nil {
		w.t.Error(err)
	}
}

func TestAMessageGoesOutWhenItIsPaidFor(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("llm", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 1000)
	w.pay("llm", "acme", 800, "acme")
	w.pay("llm", "acme", 800, "acme")
	ds := w.lease("llm", 10)
	if len(ds) != 1 {
		t.Fatalf("%d messages went out, want 1", len(ds))
	}
	w.sums("acme", 1000, 0, 800)
	used := int64(150)
	w.ackUsed("llm", ds[0], &used)
	w.sums("acme", 1000, 150, 0)
	if ds = w.lease("llm", 10); len(ds) != 1 {
		t.Fatalf("%d messages went out, want 1", len(ds))
	}
	w.ackUsed("llm", ds[0], nil)
	w.sums("acme", 1000, 950, 0)
}

func TestACheaperKeyPassesOneThatIsNotCovered(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.credit("b", 5)
	w.pay("q", "dear", 10, "b")
	w.pay("q", "dear", 1, "b")
	w.pay("q", "cheap", 4, "b")
	ds := w.lease("q", 10)
	if len(ds) != 1 || ds[0].Key != "cheap" {
		t.Fatalf("%v went out, want the cheap message", ds)
	}
	w.credit("b", 9)
	if ds = w.lease("q", 10); len(ds) != 1 || ds[0].Key != "dear" {
		t.Fatalf("%v went out, want the dear message", ds)
	}
	w.sums("b", 14, 0, 14)
}

// TestEachEndOfALeaseGivesItsReservationBackOnce ends a lease in every way.
func TestEachEndOfALeaseGivesItsReservationBackOnce(t *testing.T) {
	for name, end := range map[string]func(w *world, d *Delivery){
		"nack": func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error {
				_, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: time.Hour})
				return err
			})
		},
		"release": func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error { return tx.Pause("q", false, true, true) })
			w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
		},
		"expiry": func(w *world, _ *Delivery) { w.Advance(2 * time.Minute) },
		"client": func(w *world, d *Delivery) { w.must(func(tx *Tx) error { return tx.Undeliver([]*Delivery{d}) }) },
		"purge": func(w *world, _ *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })
		},
		"restart":  func(w *world, _ *Delivery) { w.restart(); w.Advance(2 * time.Minute) },
		"deletion": func(w *world, _ *Delivery) { w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) }) },
		"cancel": func(w *world, d *Delivery) {
			req := Cancel{Queue: "q", IDs: []ID{d.Receipt.ID}}
			w.must(func(tx *Tx) error { _, err := tx.Cancel(&req); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			w.setBudget("a", BudgetOptions{})
			w.setBudget("b", BudgetOptions{})
			w.credit("a", 10)
			w.credit("b", 7)
			w.pay("q", "k", 7, "a", "b")
			ds := w.lease("q", 1)
			w.sums("a", 10, 0, 7)
			w.sums("b", 7, 0, 7)
			end(w, ds[0])
			w.Advance(time.Second)
			w.sums("a", 10, 0, 0)
			w.sums("b", 7, 0, 0)
		})
	}
}

func TestALeaseThatSurvivesARestartKeepsItsReservation(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.credit("b", 10)
	w.pay("q", "k", 6, "b")
	w.pay("q", "k", 6, "b")
	ds := w.lease("q", 2)
	if len(ds) != 1 {
		t.Fatalf("%d went out, want 1", len(ds))
	}
	w.Advance(time.Second) // the record of the lease is written
	w.restart()
	w.sums("b", 10, 0, 6)
	used := int64(0)
	w.ackUsed("q", ds[0], &used)
	w.sums("b", 10, 0, 0)
	if ds = w.lease("q", 2); len(ds) != 1 {
		t.Fatalf("%d went out, want 1", len(ds))
	}
}

func TestTwoHundredWaitingLeasesTakeSevenMessagesThatArePaidFor(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	for i := range 200 {
		w.pay("q", fmt.Sprint("k", i%20), 3, "b")
	}
	out := 0
	var tasks []*Task
	for i := range 200 {
		tasks = append(tasks, &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1})
			out += len(ds)
			return err
		})})
	}
	w.Do(tasks...)
	for range 23 { // one credit at a time, some in one turn
		w.credit("b", 1)
	}
	w.Advance(time.Second)
	if out != 7 {
		t.Errorf("%d messages went out, want 7", out)
	}
	w.sums("b", 23, 0, 21)
}

func TestWeightsHoldUnderABudgetThatTrickles(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	for range 400 {
		w.pay("q", "one", 1, "b")
		c := int64(1)
		w.send(Enqueue{Queue: "q", Key: "three", Meta: Meta{Weight: 3, Budgets: []string{"b"}}, Charge: &c})
	}
	got := map[string]int{}
	for range 400 {
		w.credit("b", 1)
		for _, d := range w.lease("q", 5) {
			got[d.Key]++
			w.ackUsed("q", d, nil)
		}
	}
	if got["one"] < 98 || got["one"] > 102 || got["one"]+got["three"] != 400 {
		t.Errorf("%v went out, want 100 and 300", got)
	}
}

// TestQueuesWithoutConsumersHoldNoCredits credits a budget for which two queues wait, of which
// one has a consumer.
func TestQueuesWithoutConsumersHoldNoCredits(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("idle", QueueOptions{})
	w.queue("busy", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	for i := range 50 {
		w.pay("idle", fmt.Sprint("k", i), 1, "b")
		w.pay("busy", fmt.Sprint("k", i), 1, "b")
	}
	if n := len(w.lease("idle", 100)) + len(w.lease("busy", 100)); n != 0 {
		t.Fatalf("%d went out without credits", n)
	}
	w.credit("b", 20)
	w.sums("b", 20, 0, 0)
	if ds := w.lease("busy", 100); len(ds) != 20 {
		t.Errorf("%d went out, want 20", len(ds))
	}
	w.credit("b", 3)
	if ds := w.lease("idle", 100); len(ds) != 3 {
		t.Errorf("%d went out, want 3", len(ds))
	}
	w.sums("b", 23, 0, 23)
}

func TestABudgetThatIsDeletedHoldsItsMessages(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.credit("b", 5)
	w.pay("q", "k", 5, "b")
	w.pay("q", "k", 0, "b")
	ds := w.lease("q", 1)
	err := w.do(func(tx *Tx) error { _, err := tx.DeleteBudget("b"); return err })
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("deleted while it has reserved credits: %v", err)
	}
	w.ackUsed("q", ds[0], nil)
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("b"); return err })
	if n := len(w.lease("q", 1)); n != 0 {
		t.Error("a message went out whose budget does not exist")
	}
	w.setBudget("b", BudgetOptions{})
	if n := len(w.lease("q", 1)); n != 1 {
		t.Error("a message that costs nothing did not go out")
	}
	err = w.do(func(tx *Tx) error {
		req := Enqueue{Queue: "q", Meta: Meta{Budgets: []string{"none"}}}
		if err := w.Prepare(&req); err != nil {
			return err
		}
		_, err := tx.Enqueue(&req)
		return err
	})
	if !errors.Is(err, ErrNoBudget) {
		t.Errorf("a budget that does not exist: %v", err)
	}
}

func TestAMessageTakesOfAllItsBudgetsOrOfNone(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("a", BudgetOptions{})
	w.setBudget("b", BudgetOptions{})
	w.credit("a", 100)
	w.pay("q", "both", 10, "a", "b")
	w.pay("q", "a", 100, "a")
	if ds := w.lease("q", 9); len(ds) != 1 || ds[0].Key != "a" {
		t.Fatalf("%v went out", ds)
	}
	w.sums("a", 100, 0, 100)
	w.sums("b", 0, 0, 0)
	w.credit("b", 10)
	if n := len(w.lease("q", 9)); n != 0 {
		t.Fatal("it went out on one of two budgets")
	}
	w.credit("a", 10)
	if n := len(w.lease("q", 9)); n != 1 {
		t.Fatal("it did not go out on both budgets")
	}
	w.sums("a", 110, 0, 110)
	w.sums("b", 10, 0, 10)
}

func TestARefillWakesTheKeysThatWaitForIt(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	r, err := NewRefill(10, "@hourly", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { return tx.SetBudget("b", &BudgetOptions{Refill: r}) })
	for range 3 {
		w.pay("q", "k", 6, "b")
	}
	out := 0
	req := &LeaseRequest{Queues: []string{"q"}, Count: 1}
	for i := range 3 {
		task := &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(req)
			if out += len(ds); len(ds) > 0 && err == nil {
				_, err = tx.Ack("q", []Receipt{ds[0].Receipt})
			}
			return err
		})}
		w.Do(task)
		w.Advance(time.Hour)
		if out != i+1 && i > 0 {
			t.Errorf("after hour %d %d went out", i+1, out)
		}
	}
	if i := w.budget("b"); out != 3 || i.Spent != 18 {
		t.Errorf("%d went out: %+v", out, i)
	}
}

// TestALeaseOnUncommittedCreditsWaitsForTheirCommit credits a budget and leases in the same turn.
func TestALeaseOnUncommittedCreditsWaitsForTheirCommit(t *testing.T) {
	for _, credited := range []bool{false, true} {
		w := newWorld(t, func(c *Config) { c.LeaseWriteDelay = 5 * time.Millisecond })
		w.queue("q", QueueOptions{})
		w.setBudget("b", BudgetOptions{})
		w.credit("b", 5)
		w.pay("q", "k", 5, "b")
		w.Advance(time.Second)
		w.must(func(tx *Tx) error {
			if credited {
				if _, err := tx.MoveBudget(&BudgetMove{Name: "b", Amount: 1}); err != nil {
					return err
				}
			}
			ds, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
			if len(ds) != 1 || ds[0].Stored == credited {
				t.Errorf("credited in the same batch: %v; %d messages, may reply early: %v", credited, len(ds), len(ds) == 1 && ds[0].Stored)
			}
			return err
		})
	}
}

// TestBudgetsOfMessagesAreTheSumOfWhatWasAnswered leases, acks and loses messages at random.
func TestBudgetsOfMessagesAreTheSumOfWhatWasAnswered(t *testing.T) {
	out := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 18))
		w := newWorld(t, nil)
		names, queues := []string{"a", "b", "c"}, []string{"q1", "q2"}
		credited, spent := map[string]int64{}, map[string]int64{}
		for _, q := range queues {
			w.queue(q, QueueOptions{})
		}
		for _, b := range names {
			w.setBudget(b, BudgetOptions{Detail: b == "c"})
		}
		type held struct {
			d       *Delivery
			charge  int64
			budgets []string
		}
		var leased []held
		charges, paidBy := map[ID]int64{}, map[ID][]string{}
		for range 150 {
			q, b := queues[r.IntN(2)], names[r.IntN(3)]
			switch r.IntN(8) {
			case 0:
				n := 1 + r.Int64N(30)
				w.credit(b, n)
				credited[b] += n
			case 1, 2:
				charge, budgets := r.Int64N(12), []string{b}
				if r.IntN(3) == 0 {
					budgets = append(budgets, names[r.IntN(3)])
				}
				id := w.pay(q, fmt.Sprint("k", r.IntN(6)), charge, budgets...)
				slices.Sort(budgets)
				charges[id], paidBy[id] = charge, slices.Compact(budgets)
			case 3, 4:
				for _, d := range w.lease(q, 1+r.IntN(4)) {
					leased = append(leased, held{d, charges[d.Receipt.ID], paidBy[d.Receipt.ID]})
					out++
				}
			default:
				if len(leased) == 0 {
					continue
				}
				i := r.IntN(len(leased))
				h := leased[i]
				leased = slices.Delete(leased, i, i+1)
				switch r.IntN(3) {
				case 0:
					w.must(func(tx *Tx) error { _, err := tx.Release(h.d.Queue, []Receipt{h.d.Receipt}); return err })
					continue
				case 1:
					used := r.Int64N(20)
					w.ackUsed(h.d.Queue, h.d, &used)
					h.charge = used
				default:
					w.ackUsed(h.d.Queue, h.d, nil)
				}
				for _, b := range h.budgets {
					spent[b] += h.charge
				}
			}
			reserved := map[string]int64{}
			for _, h := range leased {
				for _, b := range h.budgets {
					reserved[b] += h.charge
				}
			}
			for _, b := range names {
				w.sums(b, credited[b], spent[b], reserved[b])
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		for _, b := range names {
			sum := int64(0)
			for _, e := range w.ledgerOf(b, 7) {
				sum += e.Amount
			}
			if i := w.budget(b); sum != i.Balance {
				t.Fatalf("seed %d: the entries of %s add up to %d, the balance is %d", seed, b, sum, i.Balance)
			}
		}
	}
	if out < 1000 {
		t.Errorf("only %d messages went out", out)
	}
}

// emptied collects the balances at which events say that a key waits for a budget.
func (w *world) emptied() *[]string {
	all := []string{}
	w.Listen(func(events []Event) {
		for _, ev := range events {
			all = append(all, fmt.Sprint(ev.Budget, " ", ev.Balance, " ", ev.Available))
		}
	})
	w.Want(EventBudgetEmpty)
	return &all
}

func TestABudgetIsEmptyOnceUntilCreditsHaveComeIn(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.credit("b", 10)
	got := w.emptied()
	said := func(want ...string) {
		t.Helper()
		if !slices.Equal(*got, want) {
			t.Errorf("emptied %q, want %q", *got, want)
		}
		*got = nil
	}
	for range 3 {
		w.pay("q", "k1", 8, "b")
		w.pay("q", "k2", 8, "b")
	}
	said() // nothing has come up
	first := w.lease("q", 9)
	said("b 10 2")
	w.lease("q", 9)
	used := int64(1)
	w.ackUsed("q", first[0], &used) // what comes back are no credits that come in
	first = w.lease("q", 9)
	if len(first) != 1 {
		t.Fatalf("%d went out on what was given back", len(first))
	}
	said()
	w.credit("b", 7) // too few for both keys
	if n := len(w.lease("q", 9)); n != 1 {
		t.Fatalf("%d went out, want 1", n)
	}
	said("b 16 0")
	w.credit("b", 5) // too few for one
	said("b 21 5")
	w.credit("b", 100)
	w.lease("q", 9)
	said()
}

func TestABudgetIsEmptyAgainAfterARestart(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.pay("q", "k", 3, "b")
	got := w.emptied()
	w.lease("q", 1)
	w.lease("q", 1)
	if len(*got) != 1 {
		t.Errorf("emptied %q, want it once", *got)
	}
	w.restart()
	got = w.emptied()
	if len(*got) != 0 {
		t.Errorf("emptied %q before a key has come up", *got)
	}
	w.lease("q", 1)
	w.lease("q", 1)
	if !slices.Equal(*got, []string{"b 0 0"}) {
		t.Errorf("emptied %q after a restart, want it once", *got)
	}
}

func TestAMessageOfABudgetThatDoesNotExistEmptiesNone(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("b", BudgetOptions{})
	w.pay("q", "k", 3, "b")
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("b"); return err })
	got := w.emptied()
	w.lease("q", 1)
	if len(*got) != 0 {
		t.Errorf("emptied %q", *got)
	}
	w.setBudget("b", BudgetOptions{}) // the key waits for it from now on
	if !slices.Equal(*got, []string{"b 0 0"}) {
		t.Errorf("emptied %q, want it once", *got)
	}
}

// key describes a key.
func (w *world) key(queue, name string) (i KeyInfo) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { i, err = tx.Key(queue, name); return err })
	return i
}

// TestALackSaysWhenRefillsCoverTheMessage has a key wait for two budgets.
func TestALackSaysWhenRefillsCoverTheMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	refilled := func(name string, n int64, every string, debt int64) {
		t.Helper()
		r, err := NewRefill(n, every, "", n)
		if err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { return tx.SetBudget(name, &BudgetOptions{Refill: r, Debt: debt}) })
		if _, err := w.move(BudgetMove{Name: name, Amount: n, Charge: true}); err != nil {
			t.Fatal(err)
		}
	}
	refilled("hourly", 10, "@hourly", 0)
	refilled("daily", 10, "@daily", 0)
	refilled("small", 9, "@hourly", 0)
	refilled("owing", 8, "@hourly", 1)
	w.setBudget("bought", BudgetOptions{})
	at := func(name string) time.Time { return w.budget(name).NextAt }
	for _, c := range []struct {
		budgets []string
		readyAt time.Time
		never   string
	}{
		{[]string{"hourly"}, at("hourly"), ""},
		{[]string{"hourly", "daily"}, at("daily"), ""},
		{[]string{"daily", "hourly"}, at("daily"), ""},
		{[]string{"hourly", "bought"}, time.Time{}, ""},
		{[]string{"bought", "hourly"}, time.Time{}, ""},
		{[]string{"small"}, time.Time{}, ", and refills never bring more than 9 (MAX)"},
		{[]string{"owing"}, time.Time{}, ", and refills never bring more than 8 (MAX)"},
	} {
		key := fmt.Sprint(c.budgets)
		w.pay("q", key, 10, c.budgets...)
		w.lease("q", 10)
		i := w.key("q", key)
		want := fmt.Sprintf("budget %q has 0 credits available, the next message takes 10%s", c.budgets[0], c.never)
		if i.State != KeyNoCredit || !i.ReadyAt.Equal(c.readyAt) || i.Reason != want {
			t.Errorf("%s: %s, %s, ready at %v, want %s at %v", key, i.State, i.Reason, i.ReadyAt, want, c.readyAt)
		}
	}
	w.pay("q", "in debt", 9, "owing")
	if i := w.key("q", "in debt"); !i.ReadyAt.Equal(at("owing")) {
		t.Errorf("with the debt that is allowed it is ready at %v, want %v", i.ReadyAt, at("owing"))
	}
}

// TestStatesCountRefillsThatNothingHasLookedAt looks at keys after a tick, without a consumer.
func TestStatesCountRefillsThatNothingHasLookedAt(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	r, err := NewRefill(10, "@hourly", "", 10)
	if err != nil {
		t.Fatal(err)
	}
	w.must(func(tx *Tx) error { return tx.SetBudget("b", &BudgetOptions{Refill: r}) })
	if _, err := w.move(BudgetMove{Name: "b", Amount: 10, Charge: true}); err != nil {
		t.Fatal(err)
	}
	w.pay("q", "k", 10, "b")
	if i := w.key("q", "k"); i.State != KeyNoCredit {
		t.Errorf("the state is %s", i.State)
	}
	w.Advance(time.Hour)
	states := func() (page FiguresPage) {
		w.must(func(tx *Tx) (err error) { page, err = tx.Figures(&Figures{Queue: "q"}); return err })
		return page
	}
	if n := states().Queues[0].States; n[KeyNoConsumer].Keys != 1 {
		t.Errorf("states after a refill: %v", n)
	}
}

// TestClassesOfBudgetsAreRetainedUpToATotal has one budget pay for each message, in two queues: the
// classes of many budgets are used again and again, those of very many do not grow without end.
func TestClassesOfBudgetsAreRetainedUpToATotal(t *testing.T) {
	w := newWorld(t, nil)
	cycle := func(queue string, i int) any {
		name := fmt.Sprint("b", i)
		w.setBudget(name, BudgetOptions{})
		w.pay(queue, name, 0, name)
		cl := w.core.order.Inside().Class(&w.core.queues.byName[queue].keys.find(keytable.HashOf(name), name).Key)
		for _, d := range w.lease(queue, 1) {
			w.ackUsed(queue, d, nil)
		}
		return cl
	}
	for _, q := range []string{"q", "r"} {
		w.queue(q, QueueOptions{})
	}
	first := map[int]any{}
	for i := range 1000 {
		first[i] = cycle("q", i)
	}
	for i := range 1000 {
		if cycle("q", i) != first[i] {
			t.Fatalf("class %d was dropped", i)
		}
	}
	for i := range 2 * dispatch.IdleClassesTotal {
		cycle([]string{"q", "r"}[i%2], i)
	}
	retained := w.core.order.Inside().Classes(w.core.queues.byName["q"].order) + w.core.order.Inside().Classes(w.core.queues.byName["r"].order)
	if retained > dispatch.IdleClassesTotal+2*dispatch.IdleClassesMax || retained < dispatch.IdleClassesTotal || w.core.order.Inside().IdleClasses() != retained {
		t.Errorf("%d classes are retained, %d are counted; want about %d", retained, w.core.order.Inside().IdleClasses(), dispatch.IdleClassesTotal)
	}
	w.must(func(tx *Tx) error { return tx.DeleteQueue("r", true) })
	w.Advance(time.Second)
	if left := w.core.order.Inside().Classes(w.core.queues.byName["q"].order); w.core.order.Inside().IdleClasses() != left {
		t.Errorf("%d classes are left, %d are counted", left, w.core.order.Inside().IdleClasses())
	}
}

// TestWeightsHoldForWaitingConsumersUnderABudgetThatTrickles has consumers wait for messages, each of
// which costs two credits.
func TestWeightsHoldForWaitingConsumersUnderABudgetThatTrickles(t *testing.T) {
	w := newWorld(t, nil)
	w.setBudget("b", BudgetOptions{})
	w.queue("q", QueueOptions{})
	for range 1200 {
		charge := int64(2)
		w.send(Enqueue{Queue: "q", Key: "one", Meta: Meta{Budgets: []string{"b"}}, Charge: &charge})
		w.send(Enqueue{Queue: "q", Key: "three", Meta: Meta{Weight: 3, Budgets: []string{"b"}}, Charge: &charge})
	}
	got, out := map[string]int{}, 0
	tasks := make([]*Task, 4)
	wait := func(i int) {
		req := &LeaseRequest{Queues: []string{"q"}, Count: 1}
		tasks[i] = &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(req)
			for _, d := range ds {
				got[d.Key]++
				out++
				_, err = tx.Ack("q", []Receipt{d.Receipt})
			}
			return err
		})}
		w.Do(tasks[i])
	}
	for i := range tasks {
		wait(i)
	}
	for range 1600 {
		w.credit("b", 1)
		for i, task := range tasks {
			if task.Done() {
				wait(i)
			}
		}
	}
	if part := float64(got["one"]) / float64(out); part < 0.25*0.95 || part > 0.25*1.05 || out < 750 {
		t.Errorf("%v went out, want 1 to 3", got)
	}
}

// Credits go to the keys that wait, by their weights, and not by turns of their queues as the room of a
// throttle does: a queue gets what its keys have waiting.
func TestKeysOfSeveralQueuesShareABudgetByTheirWeights(t *testing.T) {
	w := newWorld(t, nil)
	w.setBudget("b", BudgetOptions{})
	got := map[string]int{}
	for queue, keys := range map[string]int{"many": 9, "one": 1} {
		w.queue(queue, QueueOptions{})
		for k := range keys {
			for range 200 {
				w.pay(queue, fmt.Sprint("k", k), 1, "b")
			}
		}
	}
	queues := []string{"many", "one"}
	tasks := make([]*Task, len(queues))
	for range 100 {
		for i, queue := range queues {
			if tasks[i] != nil && !tasks[i].Done() {
				continue
			}
			req := &LeaseRequest{Queues: []string{queue}, Count: 1}
			tasks[i] = &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
				ds, err := tx.Lease(req)
				got[queue] += len(ds)
				return err
			})}
			w.Do(tasks[i])
		}
		w.credit("b", 1)
	}
	if n := got["one"]; n < 8 || n > 12 || got["many"] != 100-n {
		t.Errorf("of 100 credits the queues got %v, want 90 and 10", got)
	}
}

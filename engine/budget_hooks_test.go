package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// payingHook is a script that decides what pays for a message.
type payingHook struct {
	simHook
	decide func(msg *hook.Message, view hook.View) (hook.EnqueueDecision, error)
}

func (h payingHook) OnEnqueue(_ time.Time, msg *hook.Message, view hook.View, _ hook.Bounds) (hook.EnqueueDecision, error) {
	return h.decide(msg, view)
}

// script loads such a hook into "q".
func (w *world) script(decide func(msg *hook.Message, view hook.View) (hook.EnqueueDecision, error)) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.LoadScript("q", payingHook{decide: decide}, "") })
}

// returns loads a hook that always decides the same.
func (w *world) returns(d hook.EnqueueDecision) {
	w.t.Helper()
	w.script(func(*hook.Message, hook.View) (hook.EnqueueDecision, error) { return d, nil })
}

// trySend enqueues a message that may be refused.
func (w *world) trySend(req Enqueue) error {
	w.t.Helper()
	if err := w.Prepare(&req); err != nil {
		return err
	}
	return w.do(func(tx *Tx) error { _, err := tx.Enqueue(&req); return err })
}

// lackOf returns what a key of "q" lacks.
func (w *world) lackOf(key string) *Lack {
	w.t.Helper()
	var i KeyInfo
	w.must(func(tx *Tx) (err error) { i, err = tx.Key("q", key); return err })
	return i.Lacks
}

func TestAHookSeesAndReplacesWhatPaysForAMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for _, name := range []string{"acme", "all"} {
		w.setBudget(name, BudgetOptions{})
		w.credit(name, 100)
	}
	var seen hook.Message
	var says hook.EnqueueDecision
	w.script(func(msg *hook.Message, _ hook.View) (hook.EnqueueDecision, error) { seen = *msg; return says, nil })
	for name, x := range map[string]struct {
		req       Enqueue
		says      hook.EnqueueDecision
		sees      int64
		acme, all int64 // reserved by the lease
	}{
		"nothing decided":              {Enqueue{Meta: Meta{Budgets: []string{"acme"}}, Charge: new(int64(7))}, hook.EnqueueDecision{}, 7, 7, 0},
		"the cost is the default":      {Enqueue{Meta: Meta{Budgets: []string{"acme"}, Cost: 3}}, hook.EnqueueDecision{}, 3, 3, 0},
		"the cost that the hook says":  {Enqueue{Meta: Meta{Budgets: []string{"acme"}, Cost: 3}}, hook.EnqueueDecision{Cost: 5}, 3, 5, 0},
		"the producer's charge stays":  {Enqueue{Meta: Meta{Budgets: []string{"acme"}}, Charge: new(int64(7))}, hook.EnqueueDecision{Cost: 5}, 7, 7, 0},
		"another charge":               {Enqueue{Meta: Meta{Budgets: []string{"acme"}}, Charge: new(int64(7))}, hook.EnqueueDecision{Charge: new(int64(0))}, 7, 0, 0},
		"other budgets":                {Enqueue{Meta: Meta{Budgets: []string{"acme"}}}, hook.EnqueueDecision{Budgets: []string{"all"}}, 1, 0, 1},
		"a charge without a budget":    {Enqueue{Charge: new(int64(9))}, hook.EnqueueDecision{Budgets: []string{"all", "acme"}}, 9, 9, 9},
		"none":                         {Enqueue{Meta: Meta{Budgets: []string{"acme"}}}, hook.EnqueueDecision{Budgets: []string{}}, 1, 0, 0},
		"none in place of a wrong one": {Enqueue{Meta: Meta{Budgets: []string{"acmee"}}}, hook.EnqueueDecision{Budgets: []string{}}, 1, 0, 0},
	} {
		says, x.req.Queue = x.says, "q"
		w.send(x.req)
		if seen.Charge != x.sees || !slices.Equal(seen.Budgets, x.req.Budgets) {
			t.Errorf("%s: the hook sees a charge of %d to %v", name, seen.Charge, seen.Budgets)
		}
		ds := w.lease("q", 10)
		if acme, all := w.budget("acme").Reserved, w.budget("all").Reserved; len(ds) != 1 || acme != x.acme || all != x.all {
			t.Errorf("%s: %d deliveries, %d and %d reserved, want %d and %d", name, len(ds), acme, all, x.acme, x.all)
		}
		for _, d := range ds {
			w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
		}
	}
}

func TestABudgetThatAHookNamesAndThatDoesNotExistHoldsTheMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.returns(hook.EnqueueDecision{Budgets: []string{"acme"}, Charge: new(int64(5))})
	w.send(Enqueue{Queue: "q", Key: "k"})
	if ds := w.lease("q", 1); len(ds) != 0 {
		t.Fatal("a message whose budget does not exist is delivered")
	}
	if l := w.lackOf("k"); l == nil || !strings.Contains(l.Reason(), `budget "acme" does not exist`) {
		t.Errorf("%+v", l)
	}
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 5)
	if ds := w.lease("q", 1); len(ds) != 1 {
		t.Error("it is not delivered on the credits of the new budget")
	}
	w.sums("acme", 5, 0, 5)
}

func TestABudgetThatRefusesDoesSoForAHookAsWell(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{Refuse: true})
	w.credit("acme", 5)
	w.returns(hook.EnqueueDecision{Budgets: []string{"acme", "gone"}, Charge: new(int64(6))})
	if err := w.trySend(Enqueue{Queue: "q"}); !errors.Is(err, ErrCredit) {
		t.Errorf("a charge of 6 with 5 available: %v", err)
	}
	w.returns(hook.EnqueueDecision{Budgets: []string{"acme"}, Charge: new(int64(5))})
	if err := w.trySend(Enqueue{Queue: "q"}); err != nil {
		t.Errorf("a charge of 5: %v", err)
	}
}

func TestAScriptThatFailsLeavesTheBudgetsOfTheProducer(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	w.script(func(*hook.Message, hook.View) (hook.EnqueueDecision, error) {
		return hook.SafeEnqueue(), errors.New("fails")
	})
	w.send(Enqueue{Queue: "q", Key: "k", Meta: Meta{Throttles: []string{"t"}, Budgets: []string{"acme"}}, Charge: new(int64(4))})
	if ds := w.lease("q", 1); len(ds) != 0 {
		t.Fatal("the work is free")
	}
	if l := w.lackOf(hook.DefaultKey); l == nil || l.Budget != "acme" || l.Charge != 4 {
		t.Errorf("%+v", l)
	}
	if err := w.trySend(Enqueue{Queue: "q", Meta: Meta{Budgets: []string{"acmee"}}}); !errors.Is(err, ErrNoBudget) {
		t.Errorf("a budget of the producer that does not exist: %v", err)
	}
}

func TestOnFailureSeesWhatPaysForAMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 10)
	var seen []hook.Message
	w.must(func(tx *Tx) error { return tx.LoadScript("q", failureSpy{simHook{hook.OnFailure}, &seen}, "") })
	w.send(Enqueue{Queue: "q", Meta: Meta{Budgets: []string{"acme"}}, Charge: new(int64(4))})
	w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Delay: -1})
	if len(seen) != 1 || seen[0].Charge != 4 || !slices.Equal(seen[0].Budgets, []string{"acme"}) {
		t.Errorf("%+v", seen)
	}
}

// failureSpy keeps what it is asked about.
type failureSpy struct {
	simHook
	seen *[]hook.Message
}

func (h failureSpy) OnFailure(_ time.Time, msg *hook.Message, _ hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	*h.seen = append(*h.seen, *msg)
	return hook.FailureDecision{}, nil
}

func TestARedrivenMessageKeepsTheBudgetsThatItsHookHasChosen(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 10)
	w.returns(hook.EnqueueDecision{Budgets: []string{"acme"}, Charge: new(int64(4))})
	w.send(Enqueue{Queue: "q"})
	w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Dead: true})
	w.returns(hook.EnqueueDecision{Budgets: []string{}})
	w.sums("acme", 10, 0, 0)
	back := &Redrive{DLQ: "q.dlq"}
	w.must(func(tx *Tx) error { _, err := tx.Redrive(back); return err })
	if ds := w.lease("q", 1); len(ds) != 1 {
		t.Fatalf("%d deliveries", len(ds))
	}
	w.sums("acme", 10, 0, 4)
}

// patient returns options of a queue whose leases outlast these tests.
func patient() QueueOptions {
	return QueueOptions{Given: queueset.Given{queueset.Visibility: 3_600_000}}
}

// dear is a recurring message that budgets pay for.
func dear(budgets ...string) Cron {
	cr := minutely(CatchUpAll)
	cr.Message.Key, cr.Message.Budgets, cr.Message.Charge = "k", budgets, new(int64(4))
	return cr
}

func TestTheMessageOfATickIsPaidFor(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", patient())
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 10)
	w.cron(dear("acme", "acme"))
	w.restart()
	if i := w.cronInfo("m"); !slices.Equal(i.Budgets, []string{"acme"}) || i.Charge == nil || *i.Charge != 4 {
		t.Errorf("after a restart: %v, %v", i.Budgets, i.Charge)
	}
	w.Advance(3 * time.Minute)
	if ds := w.lease("q", 10); len(ds) != 2 {
		t.Errorf("10 credits are for 2 of 3 messages, %d are delivered", len(ds))
	}
	w.sums("acme", 10, 0, 8)
	free := dear("acme")
	free.Name, free.Message.Charge, free.Message.Key = "n", nil, "cost"
	w.cron(free)
	if i := w.cronInfo("n"); i.Charge != nil {
		t.Errorf("a charge that was not given is %d", *i.Charge)
	}
	w.Advance(time.Minute)
	if ds := w.lease("q", 1); len(ds) != 1 || ds[0].Key != "cost" {
		t.Errorf("%d deliveries; the charge is the cost if none is given", len(ds))
	}
	w.sums("acme", 10, 0, 9)
}

func TestABudgetOfARecurringMessageExistsAtSet(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	cr := dear("acme", "acmee")
	if err := w.PrepareCron(&cr); err != nil {
		t.Fatal(err)
	}
	if err := w.do(func(tx *Tx) error { return tx.SetCron(&cr) }); !errors.Is(err, ErrNoBudget) {
		t.Errorf("a budget that does not exist: %v", err)
	}
	for charge, want := range map[int64]error{-1: ErrInvalid, 0: nil, 1e12: nil, 1e12 + 1: ErrInvalid} {
		cr := dear("acme")
		cr.Message.Charge = &charge
		if err := w.PrepareCron(&cr); !errors.Is(err, want) {
			t.Errorf("a charge of %d: %v", charge, err)
		}
	}
	four := dear("a", "b", "c", "d", "a")
	if err := w.PrepareCron(&four); err != nil {
		t.Errorf("four budgets: %v", err)
	}
	five := dear("a", "b", "c", "d", "e")
	if err := w.PrepareCron(&five); !errors.Is(err, ErrTooBig) {
		t.Errorf("five budgets: %v", err)
	}
}

func TestATickWhoseBudgetIsGoneMakesAHeldMessage(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	w.cron(dear("acme"))
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("acme"); return err })
	w.Advance(time.Minute)
	if i := w.cronInfo("m"); i.Fired != 1 || i.Missed != 0 {
		t.Fatalf("%+v", i)
	}
	if ds := w.lease("q", 1); len(ds) != 0 {
		t.Fatal("it is delivered")
	}
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 4)
	if ds := w.lease("q", 1); len(ds) != 1 {
		t.Error("it is not delivered when there is a budget again")
	}
}

func TestATickThatABudgetRefusesIsMissed(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", patient())
	w.setBudget("acme", BudgetOptions{Refuse: true})
	w.credit("acme", 4)
	w.cron(dear("acme"))
	w.Advance(time.Minute)
	if ds := w.lease("q", 1); len(ds) != 1 {
		t.Fatal("a tick that is covered makes no message")
	}
	w.Advance(time.Minute)
	if i := w.cronInfo("m"); i.Fired != 1 || i.Missed != 1 || !strings.Contains(i.LastError, "not enough credits") {
		t.Errorf("%+v", i)
	}
	w.credit("acme", 4)
	w.Advance(time.Minute)
	if i := w.cronInfo("m"); i.Fired != 2 {
		t.Errorf("%+v", i)
	}
}

func TestALeaseOfAnythingFreeOutlivesItsBudget(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.setBudget("acme", BudgetOptions{})
	for range 3 {
		w.pay("q", "k", 0, "acme")
	}
	ds := w.lease("q", 3)
	if len(ds) != 3 {
		t.Fatalf("%d deliveries", len(ds))
	}
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("acme"); return err }) // nothing is reserved
	w.ackUsed("q", ds[0], new(int64(5)))
	w.nack(&Nack{Queue: "q", Receipt: ds[1].Receipt, Delay: -1, Used: new(int64(5))})
	w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{ds[2].Receipt}); return err })
	if ds := w.lease("q", 3); len(ds) != 0 {
		t.Errorf("%d deliveries without a budget", len(ds))
	}
}

// balances is a hook that keeps what it sees of "acme", -1 if there is no such budget.
func (w *world) balances(kind hook.Kind, seen *[]int64) {
	w.t.Helper()
	w.must(func(tx *Tx) error { return tx.LoadScript("q", balanceHook{simHook{kind}, seen}, "") })
}

type balanceHook struct {
	simHook
	seen *[]int64
}

func (h balanceHook) look(view hook.View) {
	n, ok := view.Budget("acme")
	if !ok {
		n = -1
	}
	*h.seen = append(*h.seen, n)
}

func (h balanceHook) OnEnqueue(_ time.Time, _ *hook.Message, view hook.View, _ hook.Bounds) (hook.EnqueueDecision, error) {
	h.look(view)
	return hook.EnqueueDecision{}, nil
}

func (h balanceHook) OnFailure(_ time.Time, _ *hook.Message, view hook.View, _ hook.Bounds) (hook.FailureDecision, error) {
	h.look(view)
	return hook.FailureDecision{}, nil
}

func TestHooksSeeWhatIsAvailable(t *testing.T) {
	var seen []int64
	w := newWorld(t, func(c *Config) { c.Scripts = balanceScripts{&seen} })
	w.queue("q", patient())
	for _, kind := range []hook.Kind{hook.OnEnqueue, hook.OnFailure} {
		w.balances(kind, &seen)
	}
	want := func(n int64) {
		t.Helper()
		if seen = nil; w.trySend(Enqueue{Queue: "q", Key: "look"}) != nil || len(seen) != 1 || seen[0] != n {
			t.Errorf("the hook sees %v, want %d", seen, n)
		}
	}
	want(-1)
	w.setBudget("acme", BudgetOptions{Debt: 5})
	want(0)
	w.credit("acme", 10)
	want(10)
	w.pay("q", "k", 4, "acme")
	want(10)
	d := w.leaseOf("q", "k")
	want(6)
	seen = nil
	w.nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: -1})
	if len(seen) != 1 || seen[0] != 6 {
		t.Errorf("on_failure sees %v, want 6", seen)
	}
	w.Advance(time.Minute) // the backoff
	want(10)
	w.ackUsed("q", w.leaseOf("q", "k"), new(int64(12)))
	want(-2)
	w.restart()
	want(-2)
	w.must(func(tx *Tx) error { _, err := tx.DeleteBudget("acme"); return err })
	want(-1)
	w.setBudget("acme", BudgetOptions{})
	want(0)
}

// balanceScripts loads such hooks.
type balanceScripts struct{ seen *[]int64 }

func (s balanceScripts) Load(_ hook.Caller, kind hook.Kind, _ string) (hook.Hook, error) {
	return balanceHook{simHook{kind}, s.seen}, nil
}

func (s balanceScripts) Restore(kind hook.Kind, source string) (hook.Hook, error) {
	return s.Load(hook.Caller{}, kind, source)
}

// leaseOf leases messages until one of a key comes.
func (w *world) leaseOf(queue, key string) *Delivery {
	w.t.Helper()
	for {
		ds := w.lease(queue, 1)
		if len(ds) == 0 {
			w.t.Fatalf("no message of %q", key)
		}
		if ds[0].Key == key {
			return ds[0]
		}
	}
}

// Nothing looks at the budget but the hook, and no timer fills it.
func TestHooksSeeARefillThatNothingElseHasLookedAt(t *testing.T) {
	var seen []int64
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.balances(hook.OnEnqueue, &seen)
	refill, err := NewRefill(100, "@every 60s", "", 250)
	if err != nil {
		t.Fatal(err)
	}
	w.setBudget("acme", BudgetOptions{Refill: refill})
	if _, err := w.move(BudgetMove{Name: "acme", Amount: 130, Charge: true, Force: true}); err != nil {
		t.Fatal(err)
	}
	a := w.core.accounts.Get("acme")
	for i, want := range []int64{-30, 70, 170, 250, 250} {
		w.enqueue("q", "k", "x")
		if got := seen[len(seen)-1]; got != want {
			t.Errorf("after %d minutes the hook sees %d, want %d", i, got, want)
		}
		if a.Balance() != -30 {
			t.Fatalf("after %d minutes the balance is %d: something else has looked", i, a.Balance())
		}
		w.Advance(time.Minute)
	}
	if i := w.budget("acme"); i.Available != 250 {
		t.Errorf("%+v", i)
	}
	w.setBudget("acme", BudgetOptions{})
	w.Advance(time.Hour)
	w.enqueue("q", "k", "x")
	if got := seen[len(seen)-1]; got != 250 {
		t.Errorf("without a refill the hook sees %d, want 250", got)
	}
}

// TestASnapshotDoesNotCopyBudgets counts what a turn that makes and moves some leaves, beside a
// hundred thousand others.
func TestASnapshotDoesNotCopyBudgets(t *testing.T) {
	w := newWorld(t, nil)
	turn := func() float64 {
		n := 0
		return testkit.Allocations(5, func() {
			n++
			w.must(func(tx *Tx) error {
				if err := tx.SetBudget("new", &BudgetOptions{Debt: int64(n)}); err != nil {
					return err
				}
				_, err := tx.MoveBudget(&BudgetMove{Name: "new", Amount: 1})
				return err
			})
		})
	}
	few := turn()
	for i := range 100_000 {
		if err := w.core.accounts.Restore(fmt.Sprint("b", i), &storage.Budget{Made: uint64(i) + 1000}); err != nil {
			t.Fatal(err)
		}
	}
	if many := turn(); many > few+10 {
		t.Errorf("%v allocations beside 100,000 budgets, %v alone", many, few)
	}
}

func TestWhatIsSettledIsASignal(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", recording())
	w.setBudget("acme", BudgetOptions{})
	w.credit("acme", 1000)
	total := 0.0
	want := func(what string, n float64) {
		t.Helper()
		if total += n; w.all("k", "used") != total || w.all("p", "used") != total {
			t.Errorf("%s: used is %v of the key and %v of the throttle, want %v", what, w.all("k", "used"), w.all("p", "used"), total)
		}
	}
	deliver := func(budgets ...string) *Delivery {
		t.Helper()
		w.send(Enqueue{Queue: "q", Key: "k", Meta: Meta{Throttles: []string{"p", "k"}, Budgets: budgets}, Charge: new(int64(40))})
		return w.lease("q", 1)[0]
	}
	w.ackUsed("q", deliver("acme"), nil)
	want("the ack of a message with a budget", 40)
	w.ackUsed("q", deliver("acme"), new(int64(7)))
	want("an ack with USED", 7)
	w.ackUsed("q", deliver("acme"), new(int64(0)))
	want("an ack with USED 0", 0)
	w.ackUsed("q", deliver(), nil)
	want("the ack of a message without a budget", 0)
	w.ackUsed("q", deliver(), new(int64(5)))
	want("an ack with USED of a message without a budget", 5)
	w.nack(&Nack{Queue: "q", Receipt: deliver("acme").Receipt, Used: new(int64(3))})
	want("a nack with USED", 3)
	w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Dead: true})
	want("a nack without USED", 0)
	late := deliver("acme")
	w.Advance(time.Hour)
	w.must(func(tx *Tx) error {
		_, err := tx.AckWith("q", []Receipt{late.Receipt}, AckOptions{Used: new(int64(9))})
		return err
	})
	want("an expiry, and an ack that comes too late", 0)
	w.queue("silent", QueueOptions{})
	w.send(Enqueue{Queue: "silent", Key: "k", Meta: Meta{Budgets: []string{"acme"}}})
	w.ackUsed("silent", w.lease("silent", 1)[0], nil)
	want("a queue without SIGNALS", 0)
}

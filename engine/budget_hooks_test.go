package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
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
		"nothing decided":              {Enqueue{Budgets: []string{"acme"}, Charge: new(int64(7))}, hook.EnqueueDecision{}, 7, 7, 0},
		"the cost is the default":      {Enqueue{Budgets: []string{"acme"}, Cost: 3}, hook.EnqueueDecision{}, 3, 3, 0},
		"the cost that the hook says":  {Enqueue{Budgets: []string{"acme"}, Cost: 3}, hook.EnqueueDecision{Cost: 5}, 3, 5, 0},
		"the producer's charge stays":  {Enqueue{Budgets: []string{"acme"}, Charge: new(int64(7))}, hook.EnqueueDecision{Cost: 5}, 7, 7, 0},
		"another charge":               {Enqueue{Budgets: []string{"acme"}, Charge: new(int64(7))}, hook.EnqueueDecision{Charge: new(int64(0))}, 7, 0, 0},
		"other budgets":                {Enqueue{Budgets: []string{"acme"}}, hook.EnqueueDecision{Budgets: []string{"all"}}, 1, 0, 1},
		"a charge without a budget":    {Enqueue{Charge: new(int64(9))}, hook.EnqueueDecision{Budgets: []string{"all", "acme"}}, 9, 9, 9},
		"none":                         {Enqueue{Budgets: []string{"acme"}}, hook.EnqueueDecision{Budgets: []string{}}, 1, 0, 0},
		"none in place of a wrong one": {Enqueue{Budgets: []string{"acmee"}}, hook.EnqueueDecision{Budgets: []string{}}, 1, 0, 0},
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
	if l := w.lackOf("k"); l == nil || !strings.Contains(l.reason(), `budget "acme" does not exist`) {
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
	w.send(Enqueue{Queue: "q", Key: "k", Throttles: []string{"t"}, Budgets: []string{"acme"}, Charge: new(int64(4))})
	if ds := w.lease("q", 1); len(ds) != 0 {
		t.Fatal("the work is free")
	}
	if l := w.lackOf(hook.DefaultKey); l == nil || l.Budget != "acme" || l.Charge != 4 {
		t.Errorf("%+v", l)
	}
	if err := w.trySend(Enqueue{Queue: "q", Budgets: []string{"acmee"}}); !errors.Is(err, ErrNoBudget) {
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
	w.send(Enqueue{Queue: "q", Budgets: []string{"acme"}, Charge: new(int64(4))})
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

package engine

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/faisca/fila/internal/credit"
	"github.com/faisca/fila/storage"
)

// Budgets in the simulation. Clients credit and charge two budgets, enqueue messages that these
// pay for, and look at the sums. The oracle knows replies only. What was answered has been done,
// and what was not answered may have been done, so each sum lies between two bounds. They are
// equal where no client waits for an answer.

// simBudgets is the number of budgets: "m0", whose acks never use more than the charge and that
// nothing overdraws, "m1", and "m2" with a refill of one credit a second.
const (
	simBudgets  = 3
	simRefilled = 2
)

// budgetOracle is what the replies say about one budget.
type budgetOracle struct {
	credited, spent [2]int64 // at least, at most
	unknown         bool     // a power loss may have taken what was answered
}

// moneyOracle is what the replies say about all of them.
type moneyOracle struct {
	budgets [simBudgets]budgetOracle
	moves   []*simMove // those with ids
	repeats int        // answers to an id that was answered before
	began   int64      // when the refill began, in seconds
	latest  int64      // the latest time that any turn has had, in seconds

	handedOut bool // a message that a budget pays for, in this step
	paid      map[ID]simCharge
	held      map[ID]*Delivery // leases that clients believe to have, without an answer to their end
	looks     int
}

// simCharge is what a message costs: in each of its budgets.
type simCharge struct {
	charge, used int64
	budgets      [simBudgets]bool
	gated        bool // simGate as well
}

// simMove is a credit or a charge with an id, which clients send again and again.
type simMove struct {
	id       string
	budget   int
	amount   int64 // of a charge negative
	sent     int
	counted  bool // the upper bound includes it
	answered bool
	balance  int64 // that was answered
}

// setUpBudgets creates the budgets with some credits.
func (s *sim) setUpBudgets() error {
	s.money = moneyOracle{paid: map[ID]simCharge{}, held: map[ID]*Delivery{}, began: s.step.now.Unix(), latest: s.step.now.Unix()}
	refill, err := NewRefill(1, "* * * * * *", "", credit.Max)
	errs, first := []error{err}, int64(20)
	if s.poor() {
		first = 4
	}
	for i := range simBudgets {
		o := BudgetOptions{Detail: i == 1}
		if i == simRefilled {
			o.Refill = refill
		}
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			errs = append(errs, tx.SetBudget(budgetName(i), &o))
			_, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: first})
			errs = append(errs, err)
			return nil
		})})
		s.money.budgets[i].credited = [2]int64{first, first}
	}
	for i := range s.money.budgets[simRefilled].credited {
		s.money.budgets[simRefilled].credited[i]++ // it is filled when it is made
	}
	return errors.Join(errs...)
}

// refilled returns how many ticks a budget has had by a time.
func (o *moneyOracle) refilled(n int, seconds int64) int64 {
	if n != simRefilled {
		return 0
	}
	return max(seconds-o.began, 0)
}

// moveUnder lets a client credit or charge a budget under an id: a new one, one of before, or one
// of before for something else.
func (s *sim) moveUnder(cl *simClient, i int, n int64) {
	o := &s.money
	if len(o.moves) > 0 && s.rng.IntN(3) > 0 {
		mv := o.moves[s.rng.IntN(len(o.moves))]
		if mv.answered && s.rng.IntN(4) == 0 {
			s.submitMove(cl, mv, BudgetMove{Name: budgetName(mv.budget), Amount: max(mv.amount, -mv.amount) + 1, Charge: mv.amount < 0, Force: true, ID: mv.id})
			return
		}
		s.repeatMove(cl, mv)
		return
	}
	mv := &simMove{id: fmt.Sprint("id", len(o.moves)), budget: i, amount: n}
	if i > 0 && s.rng.IntN(2) == 0 {
		mv.amount = -n
	}
	o.moves = append(o.moves, mv)
	s.repeatMove(cl, mv)
}

// bound returns the bounds that a movement belongs to.
func (o *moneyOracle) bound(mv *simMove) *[2]int64 {
	if mv.amount < 0 {
		return &o.budgets[mv.budget].spent
	}
	return &o.budgets[mv.budget].credited
}

// repeatMove submits a movement for the first time or again. It is done once.
func (s *sim) repeatMove(cl *simClient, mv *simMove) {
	n := max(mv.amount, -mv.amount)
	if !mv.answered && !mv.counted {
		mv.counted = true
		s.money.bound(mv)[1] += n
	}
	mv.sent++
	s.submitMove(cl, mv, BudgetMove{Name: budgetName(mv.budget), Amount: n, Charge: mv.amount < 0, Force: true, ID: mv.id})
}

func (s *sim) submitMove(cl *simClient, mv *simMove, req BudgetMove) {
	if err := s.step.PrepareMove(&req); err != nil {
		s.oracle.fail("prepare: %v", err)
	}
	n, wrong := max(mv.amount, -mv.amount), req.Amount != max(mv.amount, -mv.amount)
	var balance int64
	s.submit(cl, func(tx *Tx) (err error) { balance, err = tx.MoveBudget(&req); return err }, func(err error) {
		switch {
		case err != nil && refusal(err):
		case wrong && !errors.Is(err, ErrInvalid):
			s.oracle.fail("id %s was for %d, and for %d it is answered %d, %v", mv.id, n, req.Amount, balance, err)
		case wrong:
		case err != nil:
			s.oracle.fail("movement %s: %v", mv.id, err)
		case mv.answered:
			s.money.repeats++
			if balance != mv.balance {
				s.oracle.fail("id %s was answered %d, and now %d", mv.id, mv.balance, balance)
			}
		default:
			mv.answered, mv.balance = true, balance
			if mv.sent == 1 {
				s.money.bound(mv)[0] += n
			}
		}
	})
}

// payFor has budgets pay for a message, now and then.
func (s *sim) payFor(req *Enqueue) (p simCharge) {
	if s.rng.IntN(3) > 0 && !s.poor() {
		return p
	}
	if p.charge = s.rng.Int64N(8); s.poor() {
		p.charge = 4
	}
	for i := range simBudgets {
		if s.rng.IntN(2) == 0 || i == 0 && s.poor() {
			p.budgets[i] = true
			req.Budgets = append(req.Budgets, budgetName(i))
		}
	}
	if len(req.Budgets) > 0 {
		req.Charge = &p.charge
	}
	return p
}

// poor reports whether a mutant needs a budget that never suffices: each of its credits pays for one
// message.
func (s *sim) poor() bool { return s.mutant == creditNotWritten || s.mutant == releaseNotSeen }

// justHanded reports whether the process crashes, for a mutant, right after it has handed messages
// out that budgets pay for, or those of an ordered queue, with a commit under way.
func (s *sim) justHanded() bool {
	if s.mutant == orderNotCommitted || s.mutant == replacementNotCommitted {
		return s.oracle.order.handed && s.step.flight != nil
	}
	return s.mutant == creditNotWritten && s.money.handedOut && s.step.flight != nil
}

// actBudget lets a client run a command for a budget.
func (s *sim) actBudget(cl *simClient) {
	if s.rng.IntN(6) == 0 {
		s.actGate(cl)
		return
	}
	i, n := s.rng.IntN(simBudgets), 1+s.rng.Int64N(12)
	if s.poor() {
		i, n = 0, 4
	}
	b := &s.money.budgets[i]
	if s.rng.IntN(3) == 0 {
		s.moveUnder(cl, i, n)
		return
	}
	switch s.rng.IntN(6) {
	case 0, 1, 2:
		b.credited[1] += n
		s.submit(cl, func(tx *Tx) error { _, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: n}); return err }, func(err error) {
			if err == nil {
				b.credited[0] += n
			} else if !refusal(err) {
				s.oracle.fail("credit: %v", err)
			}
		})
	case 3:
		b.spent[1] += n
		s.submit(cl, func(tx *Tx) error {
			_, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: n, Charge: true})
			return err
		}, func(err error) {
			switch {
			case err == nil:
				b.spent[0] += n
			case errors.Is(err, ErrCredit):
				b.spent[1] -= n
			case !refusal(err):
				s.oracle.fail("charge: %v", err)
			}
		})
	default:
		s.lookAtBudget(cl, i)
	}
}

// lookAtBudget compares the sums of a budget with what the replies say.
func (s *sim) lookAtBudget(cl *simClient, n int) {
	var l budgetLook
	order := 0
	s.submit(cl, func(tx *Tx) error { order = s.decisions; l = lookAt(tx, n); return nil }, func(err error) {
		if err == nil {
			s.money.compare(s, n, &l, order == s.decisions)
		}
	})
}

// budgetLook is what a client has seen of a budget.
type budgetLook struct {
	BudgetInfo

	at      int64 // in seconds, by the system clock
	failing bool  // the store takes no writes: refills wait
}

func lookAt(tx *Tx, n int) budgetLook {
	i, _ := tx.Budget(budgetName(n))
	return budgetLook{i, tx.core.calendar() / 1e9, tx.core.health.failed != nil}
}

// compare compares the sums of a budget with the bounds. newest says that nothing has been decided
// since, but for what waits for its answer.
func (o *moneyOracle) compare(s *sim, n int, i *budgetLook, newest bool) {
	b := &o.budgets[n]
	o.looks++
	o.latest = max(o.latest, s.step.core.calendar()/1e9)
	ticks := [2]int64{o.refilled(n, i.at), o.refilled(n, o.latest)} // those after a clock that was set back may have been before
	if i.failing {
		ticks[0] = 0
	}
	if i.Balance != i.Credited-i.Spent || i.Available != i.Balance-i.Reserved || i.Reserved < 0 {
		s.oracle.fail("budget %s: the sums do not add up: %+v", i.Name, i)
	}
	if !b.unknown && (i.Credited < b.credited[0]+ticks[0] || i.Credited > b.credited[1]+ticks[1] || i.Spent < b.spent[0] || i.Spent > b.spent[1]) {
		s.oracle.fail("budget %s: %d credited and %d spent; the replies say %v, with %v of refills, and %v", i.Name, i.Credited, i.Spent, b.credited, ticks, b.spent)
	}
	if !newest {
		return
	}
	if held := o.retryingOf(s, n); n == 0 && !b.unknown && i.Balance < held {
		s.oracle.fail("budget %s: the balance is %d, and messages for %d were handed out", i.Name, i.Balance, held)
	}
	for _, c := range s.clients {
		if len(c.pending) > 0 {
			return
		}
	}
	if len(s.leaving)+len(s.undos) == 0 && !s.failing { // a batch that has failed may be in the store after all
		if ticks[0] != ticks[1] {
			return
		}
		credited := i.Credited - ticks[0]
		b.credited, b.spent, b.unknown = [2]int64{credited, credited}, [2]int64{i.Spent, i.Spent}, false
		for _, mv := range o.moves {
			if mv.budget == n && !mv.answered { // it may be among them
				mv.counted = false
			}
		}
	}
}

// retryingOf returns the charges of the messages that clients have, in one budget.
func (o *moneyOracle) retryingOf(s *sim, n int) (sum int64) {
	o.prune(s.step.now)
	for id := range o.held {
		if p := o.paid[id]; p.budgets[n] {
			sum += p.charge
		}
	}
	return sum
}

// prune forgets the leases that have ended.
func (o *moneyOracle) prune(now time.Time) {
	o.latest = max(o.latest, now.Unix())
	maps.DeleteFunc(o.held, func(_ ID, d *Delivery) bool { return !now.Before(d.LeaseUntil) })
}

// handed records a delivery that a client has got.
func (o *moneyOracle) handed(d *Delivery) {
	if p, ok := o.paid[d.Receipt.ID]; ok && !strings.HasSuffix(d.Queue, ".dlq") && p.charge > 0 {
		o.held[d.Receipt.ID], o.handedOut = d, true
	}
}

// mayEnd records that the end of a lease was asked for, or may have been.
func (o *moneyOracle) mayEnd(id ID) { delete(o.held, id) }

// mayUse records that an ack was sent that may settle the budgets of a message; used is what it
// says, nil: the charge. It returns what the ack settles in each budget.
func (o *moneyOracle) mayUse(id ID, used *int64) simCharge {
	p := o.paid[id]
	if p.used = p.charge; used != nil {
		p.used = *used
	}
	o.each(p, func(b *budgetOracle) { b.spent[1] += p.used })
	o.mayEnd(id)
	return p
}

// used records that an ack was answered.
func (o *moneyOracle) used(d *Delivery, n int, p simCharge) {
	if n == 1 && !strings.HasSuffix(d.Queue, ".dlq") {
		o.each(p, func(b *budgetOracle) { b.spent[0] += p.used })
	}
}

func (o *moneyOracle) each(p simCharge, fn func(b *budgetOracle)) {
	for i, pays := range p.budgets {
		if pays {
			fn(&o.budgets[i])
		}
	}
}

// crashed looks at the budgets after a restart: what was handed out was covered by credits that
// the crash could not take. Leases may be over after it.
func (o *moneyOracle) crashed(s *sim, lost bool) {
	for _, mv := range o.moves {
		mv.answered = mv.answered && !lost
	}
	for n := range simBudgets {
		o.budgets[n].unknown = o.budgets[n].unknown || lost
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			l := lookAt(tx, n)
			o.compare(s, n, &l, true)
			return nil
		})})
	}
	clear(o.held)
}

// endBudgets pays for all that is still held.
func (s *sim) endBudgets(cl *simClient) {
	for i := range simBudgets {
		b := &s.money.budgets[i]
		const much = 1_000_000
		b.credited[1] += much
		s.submit(cl, func(tx *Tx) error {
			_, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: much})
			return err
		}, func(err error) {
			if err != nil {
				s.oracle.fail("credit: %v", err)
			}
		})
	}
}

// budgetsAtEnd checks that nothing is reserved when nothing is leased.
func (s *sim) budgetsAtEnd() {
	for n := range simBudgets {
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			i := lookAt(tx, n)
			s.money.compare(s, n, &i, true)
			return nil
		})})
	}
	s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
		for a := range tx.core.accounts.All() {
			if i := tx.core.budgetInfo(a); i.Reserved != 0 || i.Waiting != 0 {
				s.oracle.fail("budget %s: nothing is leased, %d is reserved; %d keys wait", i.Name, i.Reserved, i.Waiting)
			}
		}
		return nil
	})})
}

// breakBudgets plants the faults of budgets that are not in the store.
func (s *sim) breakBudgets() {
	c := s.step.core
	switch s.mutant {
	case returnedTwice:
		for _, m := range c.leases.byID {
			if was := m.reserved; was != 0 {
				c.returnCharge(m)
				m.reserved = was
			}
		}
	case creditNotSeen:
		c.order.Inside().HideCredits()
	case creditNotWritten:
		for a := range c.accounts.All() {
			a.Inside().ForgetBatch()
		}
	default:
	}
}

// keepReservations has a mutant forget that leases that expire by a time have reserved credits.
func (s *sim) keepReservations(until time.Time) {
	if s.mutant != reservationKept {
		return
	}
	for _, m := range s.step.core.leases.byID {
		if m.until <= until.UnixNano() {
			m.reserved = 0
		}
	}
}

// deaf has a mutant miss that what a call does may cover keys that wait. It returns what ends that.
func (s *sim) deaf(c *core) (end func()) {
	if s.mutant != releaseNotSeen {
		return func() {}
	}
	return c.order.Inside().HideCredits()
}

// repeatRefills has a mutant compute the next ticks of refills from the clock, at a start.
func (s *sim) repeatRefills() {
	c := s.step.core
	if s.mutant != refillRepeated {
		return
	}
	for a := range c.accounts.All() {
		a.Inside().RepeatTicks(c.calendar())
	}
}

// loseBudget reports whether a mutant does not write a record of a budget.
func (s *crashStore) loseBudget(r storage.Record) bool {
	if s.mutant == idForgotten && r.Family == storage.Ledger {
		k, err := storage.ParseLedgerKey(r.Key)
		return err == nil && k.ID != ""
	}
	return s.mutant == settlementNotWritten && r.Family == storage.Budgets && s.rng.IntN(5) == 0
}

// useOf decides what the ack of a message says it has used; nil: its charge. In "m0" it is never
// more, so what was handed out stays covered.
func (s *sim) useOf(id ID) *int64 {
	p, ok := s.money.paid[id]
	if s.mutant == settledTwice {
		return new(int64(0))
	}
	if !ok || s.rng.IntN(2) == 0 || s.poor() {
		return nil
	}
	n := s.rng.Int64N(p.charge + 1)
	if !p.budgets[0] {
		n += s.rng.Int64N(3)
	}
	return &n
}

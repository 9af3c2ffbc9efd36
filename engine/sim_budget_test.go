package engine

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/faisca/fila/storage"
)

// Budgets in the simulation. Clients credit and charge two budgets, enqueue messages that these
// pay for, and look at the sums. The oracle knows replies only. What was answered has been done,
// and what was not answered may have been done, so each sum lies between two bounds. They are
// equal where no client waits for an answer.

// simBudgets is the number of budgets: "m0", whose acks never use more than the charge, and "m1".
const simBudgets = 2

// budgetOracle is what the replies say about one budget.
type budgetOracle struct {
	credited, spent [2]int64 // at least, at most
	unknown         bool     // a power loss may have taken what was answered
}

// moneyOracle is what the replies say about all of them.
type moneyOracle struct {
	budgets [simBudgets]budgetOracle
	paid    map[ID]simCharge
	held    map[ID]*Delivery // leases that clients believe to have, without an answer to their end
	looks   int
}

// simCharge is what a message costs: in each of its budgets.
type simCharge struct {
	charge, used int64
	budgets      [simBudgets]bool
}

func budgetName(i int) string { return fmt.Sprint("m", i) }

// setUpBudgets creates the budgets with some credits.
func (s *sim) setUpBudgets() error {
	s.money = moneyOracle{paid: map[ID]simCharge{}, held: map[ID]*Delivery{}}
	var errs []error
	for i := range simBudgets {
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			errs = append(errs, tx.SetBudget(budgetName(i), &BudgetOptions{Detail: i == 1}))
			_, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: 20})
			errs = append(errs, err)
			return nil
		})})
		s.money.budgets[i].credited = [2]int64{20, 20}
	}
	return errors.Join(errs...)
}

// payFor has budgets pay for a message, now and then.
func (s *sim) payFor(req *Enqueue) (p simCharge) {
	if s.rng.IntN(3) > 0 {
		return p
	}
	p.charge = s.rng.Int64N(8)
	for i := range simBudgets {
		if s.rng.IntN(2) == 0 {
			p.budgets[i] = true
			req.Budgets = append(req.Budgets, budgetName(i))
		}
	}
	if len(req.Budgets) > 0 {
		req.Charge = &p.charge
	}
	return p
}

// actBudget lets a client run a command for a budget.
func (s *sim) actBudget(cl *simClient) {
	i, n := s.rng.IntN(simBudgets), 1+s.rng.Int64N(12)
	b := &s.money.budgets[i]
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
	var i BudgetInfo
	order := 0
	s.submit(cl, func(tx *Tx) error { order = s.decisions; i, _ = tx.Budget(budgetName(n)); return nil }, func(err error) {
		if err == nil {
			s.money.compare(s, n, &i, order == s.decisions)
		}
	})
}

// compare compares the sums of a budget with the bounds. newest says that nothing has been decided
// since, but for what waits for its answer.
func (o *moneyOracle) compare(s *sim, n int, i *BudgetInfo, newest bool) {
	b := &o.budgets[n]
	o.looks++
	if i.Balance != i.Credited-i.Spent || i.Available != i.Balance-i.Reserved || i.Reserved < 0 {
		s.oracle.fail("budget %s: the sums do not add up: %+v", i.Name, i)
	}
	if !b.unknown && (i.Credited < b.credited[0] || i.Credited > b.credited[1] || i.Spent < b.spent[0] || i.Spent > b.spent[1]) {
		s.oracle.fail("budget %s: %d credited and %d spent; the replies say %v and %v", i.Name, i.Credited, i.Spent, b.credited, b.spent)
	}
	if !newest {
		return
	}
	if held := o.heldOf(s, n); n == 0 && !b.unknown && i.Balance < held {
		s.oracle.fail("budget %s: the balance is %d, and messages for %d were handed out", i.Name, i.Balance, held)
	}
	for _, c := range s.clients {
		if len(c.pending) > 0 {
			return
		}
	}
	if len(s.leaving)+len(s.undos) == 0 && !s.failing { // a batch that has failed may be in the store after all
		b.credited, b.spent, b.unknown = [2]int64{i.Credited, i.Credited}, [2]int64{i.Spent, i.Spent}, false
	}
}

// heldOf returns the charges of the messages that clients have, in one budget.
func (o *moneyOracle) heldOf(s *sim, n int) (sum int64) {
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
	maps.DeleteFunc(o.held, func(_ ID, d *Delivery) bool { return !now.Before(d.LeaseUntil) })
}

// handed records a delivery that a client has got.
func (o *moneyOracle) handed(d *Delivery) {
	if p, ok := o.paid[d.Receipt.ID]; ok && !strings.HasSuffix(d.Queue, ".dlq") && p.charge > 0 {
		o.held[d.Receipt.ID] = d
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
	for n := range simBudgets {
		o.budgets[n].unknown = o.budgets[n].unknown || lost
		s.step.Do(&Task{Call: callFunc(func(tx *Tx) error {
			i, _ := tx.Budget(budgetName(n))
			o.compare(s, n, &i, true)
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
			i, _ := tx.Budget(budgetName(n))
			s.money.compare(s, n, &i, true)
			if i.Reserved != 0 || i.Waiting != 0 {
				s.oracle.fail("budget %s: nothing is leased, %d is reserved; %d keys wait", i.Name, i.Reserved, i.Waiting)
			}
			return nil
		})})
	}
}

// breakBudgets plants the faults of budgets that are not in the store.
func (s *sim) breakBudgets() {
	c := s.step.core
	switch s.mutant {
	case reservationKept:
		for _, m := range c.leases.byID {
			m.reserved = 0
		}
	case returnedTwice:
		for _, m := range c.leases.byID {
			if was := m.reserved; was != 0 {
				c.returnCharge(m)
				m.reserved = was
			}
		}
	case creditNotSeen:
		for _, l := range c.accounts.lines { // as if it were in the list already
			l.notified = true
		}
	default:
	}
}

// loseBudget reports whether a mutant does not write the record of a budget.
func (s *crashStore) loseBudget(r storage.Record) bool {
	return s.mutant == settlementNotWritten && r.Family == storage.Budgets && s.rng.IntN(5) == 0
}

// useOf decides what the ack of a message says it has used; nil: its charge. In "m0" it is never
// more, so what was handed out stays covered.
func (s *sim) useOf(id ID) *int64 {
	p, ok := s.money.paid[id]
	if !ok || s.rng.IntN(2) == 0 {
		return nil
	}
	n := s.rng.Int64N(p.charge + 1)
	if !p.budgets[0] {
		n += s.rng.Int64N(3)
	}
	return &n
}

package engine

import (
	"iter"
)

// This file is what keys that wait for budgets need of them: events, refills, and why a message is not covered. In
// what order they go is decided in dispatch.

// ranDry emits, once until credits have come in, that a key waits for a budget. Credits that do
// not suffice for all keys that wait emit it again, so a subscriber that adds credits is told when
// they were too few. The state is in memory only: a start begins without it.
func (c *core) ranDry(a *account) {
	if !a.dry {
		a.dry = true
		c.emitBudget(EventBudgetEmpty, a)
	}
}

// emitBudget emits an event of a budget.
func (c *core) emitBudget(kind EventKind, a *account) {
	c.emit(Event{Kind: kind, Budget: a.name, Balance: a.sums.Balance(), Available: a.sums.Available()})
}

// freed records that an account has got more available, and has the keys looked at that wait for it.
func (c *core) freed(a *account) {
	a.freedIn = c.out.batchNo
	c.order.Freed(a.name)
}

// budgetGate is a budget as the order of delivery knows it: whether it covers a charge. It keeps the timer of its
// next refill, while keys wait for the budget.
type budgetGate struct {
	core    *core
	account *account
	wakeAt  int64 // of its timer, by the system clock, see core.calendar
	timer   int   // index in accountTable.timers; -1: no timer
}

func (g *budgetGate) Before(o *budgetGate) bool { return g.wakeAt < o.wakeAt }
func (g *budgetGate) Index() *int               { return &g.timer }

func (g *budgetGate) Covers(charge int64) bool { return g.core.covers(g.account, charge) }
func (g *budgetGate) Cover() int64             { return g.core.cover(g.account) }
func (g *budgetGate) RanDry()                  { g.core.ranDry(g.account) }

func (g *budgetGate) Await(waits bool) {
	if waits {
		g.account.awaited = g
		g.core.armRefill(g)
		return
	}
	g.account.awaited = nil
	if g.timer >= 0 {
		g.core.accounts.timers.Remove(g)
	}
}

// armRefill sets the timer of a budget that keys wait for to its next refill.
func (c *core) armRefill(g *budgetGate) {
	c.catchUp(g.account)
	at := g.account.sums.NextAt
	if now := c.calendar(); at != 0 && at <= now { // the store is full
		at = now + int64(c.cfg.RetryInterval)
	}
	switch {
	case at == 0:
		if g.timer >= 0 {
			c.accounts.timers.Remove(g)
		}
	case g.timer < 0:
		g.wakeAt = at
		c.accounts.timers.Push(g)
	case g.wakeAt != at:
		g.wakeAt = at
		c.accounts.timers.Fix(g)
	}
}

// expireRefills refills the budgets that keys wait for and whose tick has come.
func (c *core) expireRefills() {
	for c.room() {
		g, ok := c.accounts.timers.First()
		if !ok || g.wakeAt > c.calendar() {
			return
		}
		c.spend(1)
		c.armRefill(g)
	}
}

// lacks iterates over the budgets that do not cover a message, by name.
func (c *core) lacks(m *message) iter.Seq2[string, *account] {
	return func(yield func(string, *account) bool) {
		if m.key.queue.isDLQ() {
			return
		}
		for i, a := range c.accountsOf(m.throttles) {
			if (a == nil || !a.sums.Covers(m.throttles.Charge)) && !yield(m.throttles.Budgets[i], a) {
				return
			}
		}
	}
}

// covered reports whether its budgets cover a message.
func (c *core) covered(m *message) bool {
	for range c.lacks(m) {
		return false
	}
	return true
}

// refillFor adds to the budgets of a message what the ticks up to now have brought.
func (c *core) refillFor(m *message) {
	for _, a := range c.accountsOf(m.throttles) {
		if a != nil {
			c.catchUp(a)
		}
	}
}

// lack describes the first budget that does not cover a message now, nil if all do.
func (c *core) lack(m *message) (first *Lack) {
	c.refillFor(m)
	for name, a := range c.lacks(m) {
		l := &Lack{Budget: name, Charge: m.throttles.Charge, missing: a == nil}
		if a != nil {
			s := a.sums // a copy, which is refilled
			l.Available = s.Available()
			if s.Fill() > 0 && s.Covers(l.Charge) && s.NextAt != 0 {
				l.ReadyAt = unix(s.NextAt)
			}
			if most := s.Refill.Max; most > 0 && most+s.Debt < l.Charge {
				l.never = most
			}
		}
		switch {
		case first == nil:
			first = l
		case l.ReadyAt.IsZero() || !first.ReadyAt.IsZero() && l.ReadyAt.After(first.ReadyAt):
			first.ReadyAt = l.ReadyAt
		}
	}
	return first
}

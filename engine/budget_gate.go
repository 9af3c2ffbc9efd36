package engine

import (
	"iter"

	"github.com/faisca/fila/engine/budget"
)

// This file is what keys that wait for budgets need of them: events, refills, and why a message is not covered. In
// what order they go is decided in dispatch.

// emitBudget emits an event of a budget.
func (c *core) emitBudget(kind EventKind, a *budget.Account) {
	c.emit(Event{Kind: kind, Budget: a.Name(), Balance: a.Balance(), Available: a.Available()})
}

// budgetGate is a budget as the order of delivery knows it: whether it covers a charge. It keeps the timer of its
// next refill, while keys wait for the budget.
type budgetGate struct {
	core    *core
	account *budget.Account
	wakeAt  int64 // of its timer, by the system clock, see core.calendar
	timer   int   // index in accountTable.timers; -1: no timer
}

func (g *budgetGate) Before(o *budgetGate) bool { return g.wakeAt < o.wakeAt }
func (g *budgetGate) Index() *int               { return &g.timer }

// Covers and Cover count refills that are due. They are written when credits are reserved, when a key begins to wait,
// or by the timer.
func (g *budgetGate) Covers(charge int64) bool { return charge == 0 || charge <= g.Cover() }
func (g *budgetGate) Cover() int64             { return g.account.CoverAt(g.core.moment().Calendar) }

// RanDry emits, once until credits have come in, that a key waits for the budget. Credits that do
// not suffice for all keys that wait emit it again, so a subscriber that adds credits is told when
// they were too few.
func (g *budgetGate) RanDry() {
	if g.account.RunDry() {
		g.core.emitBudget(EventBudgetEmpty, g.account)
	}
}

func (g *budgetGate) Await(waits bool) {
	if waits {
		g.core.accounts.awaited[g.account] = g
		g.core.armRefill(g)
		return
	}
	delete(g.core.accounts.awaited, g.account)
	if g.timer >= 0 {
		g.core.accounts.timers.Remove(g)
	}
}

// armRefill sets the timer of a budget that keys wait for to its next refill.
func (c *core) armRefill(g *budgetGate) {
	c.catchUp(g.account)
	at := g.account.NextAt()
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
func (c *core) lacks(m *message) iter.Seq2[string, *budget.Account] {
	return func(yield func(string, *budget.Account) bool) {
		if m.key.queue.isDLQ() {
			return
		}
		for i, a := range c.accounts.of(m.throttles) {
			if (a == nil || !a.Covers(m.throttles.Charge)) && !yield(m.throttles.Budgets[i], a) {
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
	for _, a := range c.accounts.of(m.throttles) {
		if a != nil {
			c.catchUp(a)
		}
	}
}

// Lack is a budget that does not cover the next message of a key.
type Lack = budget.Lack

// lack describes the first budget that does not cover a message now, nil if all do.
func (c *core) lack(m *message) (first *Lack) {
	c.refillFor(m)
	for name, a := range c.lacks(m) {
		if l := budget.NewLack(name, a, m.throttles.Charge); first == nil {
			first = l
		} else {
			first.And(l)
		}
	}
	return first
}

package engine

import "github.com/faisca/fila/engine/budget"

// Messages move budgets in three steps. reserveCharge keeps the charge in each budget of a message
// when it is leased; the lease ends with one of
//
//	settleUse     its ack or nack: the charge is returned, and what was used is spent
//	returnCharge  any other end: the charge is returned
//
// message.reserved says which of the two is still to come, so each happens once. What is reserved
// is not stored: it is the sum over the leases, also after a recovery (reserveAgain).

// of returns the budgets of a throttle set, which may be nil, in the order of their names;
// nil for one that does not exist.
func (s *accountTable) of(l *throttleSet) []*budget.Account {
	if l == nil || len(l.Budgets) == 0 {
		return nil
	}
	return s.Find(&l.accounts, l.Budgets)
}

// reserveCharge keeps the charge of a message that is delivered in each of its budgets, which cover it.
func (c *core) reserveCharge(m *message) {
	if m.key.queue.isDLQ() {
		return
	}
	for i, a := range c.accounts.of(m.throttles) {
		c.catchUp(a) // what covered the charge may be a refill that is due
		a.Reserve(m.throttles.Charge)
		m.reserved |= 1 << i
	}
}

// reserveAgain keeps the charge of a lease that exists already, after a restart.
func (c *core) reserveAgain(m *message) {
	if m.key.queue.isDLQ() {
		return
	}
	for i, a := range c.accounts.of(m.throttles) {
		if a != nil {
			a.Reserve(m.throttles.Charge)
			m.reserved |= 1 << i
		}
	}
}

// reservedBy calls fn for each account that has reserved the charge of a message, and ends that.
func (c *core) reservedBy(m *message, fn func(a *budget.Account, charge int64)) {
	if m.reserved == 0 {
		return
	}
	for i, a := range c.accounts.of(m.throttles) {
		if m.reserved&(1<<i) != 0 && a != nil { // a charge of 0 reserves nothing, so the budget may be gone
			fn(a, m.throttles.Charge)
		}
	}
	m.reserved = 0
}

// returnCharge returns the charge of a message whose lease ends without a settlement.
func (c *core) returnCharge(m *message) {
	c.reservedBy(m, func(a *budget.Account, charge int64) {
		c.follow(a, c.accounts.Return(a, charge, c.moment()))
	})
}

// settleUse settles what the work on a message has used, in each of the budgets that have reserved its charge, and in
// its throttles by cost; nil: its charge, and its cost. Where its charge is another amount than its cost, it counts
// something else in its budgets, such as cents: then used is theirs alone. The caller ends the lease in the same turn.
func (c *core) settleUse(m *message, used *int64) {
	c.signals.recordUsed(c, m, used)
	if l := m.throttles; used != nil && l != nil && (len(l.Budgets) == 0 || l.Charge == int64(m.cost)) {
		most, began := int64(max(c.cfg.Limits.Cost, m.cost)), m.since
		if m.recovered { // the time of a recovery may be before that of its record
			began = 0
		}
		c.order.Settle(l.of(), int64(m.cost), min(*used, most), began)
	}
	c.reservedBy(m, func(a *budget.Account, charge int64) {
		n := charge
		if used != nil {
			n = *used
		}
		of := budget.Work{Queue: m.key.queue.name, Key: m.key.name, Message: m.id[:]}
		c.follow(a, c.accounts.Settle(a, charge, n, of, c.moment()))
	})
}

// creditsCommitted reports whether the credits that a message was delivered on are in the store:
// no budget of it has got more available in the open batch, or in one that is being written.
func (c *core) creditsCommitted(m *message) bool {
	for _, a := range c.accounts.of(m.throttles) {
		if a == nil || a.FreedIn() > c.out.committed {
			return false
		}
	}
	return true
}

package engine

// Settlements in the simulation: acks and nacks say what they have used, and throttles by cost take that in place of
// the cost. The oracle knows of each delivery which buckets it has taken its cost of: a bucket that began later, or
// that a restart has filled, must get nothing back, and a lease settles once.

// takes records that a delivery takes its cost of throttles.
func (o *oracle) takes(r Receipt, throttles []string) {
	for _, name := range throttles {
		if b := o.buckets[name]; b != nil && b.byCost {
			if o.took[r] == nil {
				o.took[r] = map[string]int{}
			}
			o.took[r][name] = b.began
		}
	}
}

// settles returns what records the end of a lease that says what it has used.
func (s *sim) settles(c *core, r Receipt, used *int64) func(ended bool) {
	m := c.leases.byID[r.ID]
	if used == nil || m == nil || m.throttles == nil {
		return func(bool) {}
	}
	l, cost, took := m.throttles, m.cost, s.oracle.took[r]
	began := m.since
	return func(ended bool) {
		if !ended || len(l.Budgets) > 0 && l.Charge != int64(cost) {
			return
		}
		for name, of := range took {
			if b := s.oracle.buckets[name]; b != nil && b.byCost && b.began == of {
				b.fill(s.step.now)
				b.tokens = min(b.burst, b.tokens+float64(cost)-float64(*used))
			}
		}
		if s.mutant == settledTwice { // as by an ack that is sent again, and again
			for range 3 {
				c.order.Settle(l.of(), int64(cost), *used, began)
			}
		}
	}
}

// takesNothing reports whether a message has no budgets, so that only its throttles are settled.
func (s *sim) takesNothing(id ID) bool { return s.money.paid[id].budgets == [simBudgets]bool{} }

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Budgets in the simulation of the scheduler. A message that a budget does not cover does not wait:
// it is no message that could go, and nothing may be kept for it. One that all of its budgets cover
// may wait for throttles only.

// schedBudget is a budget with its own record of the sums.
type schedBudget struct {
	sim                       *schedSim
	name                      string
	credited, spent, reserved int64
}

func (s *schedSim) budget(credits int64) *schedBudget {
	b := &schedBudget{sim: s, name: string(rune('a' + len(s.budgets)))}
	s.budgets = append(s.budgets, b)
	s.call(func(tx *Tx) error { return tx.SetBudget(b.name, &BudgetOptions{}) })
	if credits > 0 {
		b.credit(credits)
	}
	return b
}

func (b *schedBudget) credit(n int64) {
	b.sim.call(func(tx *Tx) error {
		b.credited += n
		_, err := tx.MoveBudget(&BudgetMove{Name: b.name, Amount: n})
		return err
	})
}

func (b *schedBudget) covers(charge int64) bool {
	return charge == 0 || charge <= b.credited-b.spent-b.reserved
}

// covered reports whether all budgets of a message cover its charge.
func (m *schedMessage) covered() bool {
	return !slices.ContainsFunc(m.budgets, func(b *schedBudget) bool { return !b.covers(m.charge) })
}

// reserve records that a message is leased, which its budgets must cover.
func (m *schedMessage) reserve() {
	for _, b := range m.budgets {
		if !b.covers(m.charge) {
			b.sim.fault("budget %s has %d credits, of which %d are reserved, and a message for %d goes out", b.name, b.credited-b.spent, b.reserved, m.charge)
		}
		b.reserved += m.charge
	}
}

// settle records what an ack says that a message has used, after the end of its lease.
func (m *schedMessage) settle(used *int64) {
	n := m.charge
	if used != nil {
		n = *used
	}
	for _, b := range m.budgets {
		b.spent += n
	}
	m.settleTokens(used)
}

// settleTokens records the same in the throttles by cost.
func (m *schedMessage) settleTokens(used *int64) {
	if used == nil || len(m.budgets) > 0 && m.charge != int64(m.cost) {
		return
	}
	for i, t := range m.class.throttles {
		if t.byCost && t.rate > 0 && t.life == m.took[i] {
			t.tokens, t.at = min(t.inBucket(t.sim.now)+float64(m.cost)-float64(*used), t.burst), t.sim.now
		}
	}
}

// uses decides what the end of a lease says it has used; nil: the charge or the cost of the message.
func (s *schedSim) uses(m *schedMessage) *int64 {
	switch {
	case m.seq%3 == 0 || len(m.budgets) == 0 && !s.settles:
		return nil
	case len(m.budgets) == 0:
		return new(int64(m.seq*7) % (2*int64(m.cost) + 1)) // the cost in the mean
	}
	return new(int64(m.seq*7) % (m.charge + 3))
}

// randomBudgets creates budgets in a part of the set-ups, which are credited at intervals.
func (u *setUp) randomBudgets(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // reproducible on purpose
	if seed%3 != 0 {
		return
	}
	u.paid = r
	for range 1 + r.IntN(3) {
		b := u.budget(r.Int64N(100))
		u.again(time.Duration(100+r.IntN(3000))*time.Millisecond, func() { b.credit(1 + r.Int64N(40)) })
	}
}

// payFor has budgets pay for the messages of a key.
func (u *setUp) payFor(k *schedKey) {
	if u.paid == nil || k.class == nil || u.paid.IntN(3) == 0 {
		return
	}
	k.class.budgets, k.class = true, nil // it leaves the ring and comes back
	for i, p := range u.paid.Perm(len(u.budgets)) {
		if i == 0 || u.paid.IntN(3) == 0 {
			k.budgets = append(k.budgets, u.budgets[p])
		}
	}
	most := 1 + u.paid.Int64N(20)
	k.charges = func() int64 { return u.paid.Int64N(most + 1) }
}

// TestBudgetsAndThrottlesAreTakenTogetherOrNotAtAll runs two queues under a throttle by cost, one by
// concurrency and a budget that trickles, so that each of them stops messages for which the others
// have room.
func TestBudgetsAndThrottlesAreTakenTogetherOrNotAtAll(t *testing.T) {
	for seed := range uint64(20) {
		s := newSchedSim(seed, nil)
		cost, places := s.throttleByCost(20, 40, 0), s.throttle(0, 0, 4)
		b, all := s.budget(10), s.budget(100)
		for range 2 {
			q := s.queue()
			for i := range 6 {
				k := q.key(1+uint32(i%3), [][]*schedThrottle{{cost}, {places}, {cost, places}}[i%3]...)
				k.class, k.keep = nil, 4
				if i < 4 {
					k.budgets, k.charges = []*schedBudget{b, all}[:1+i%2], func() int64 { return s.rng.Int64N(12) }
				}
				k.costs = func() uint32 { return 1 + s.rng.Uint32N(30) }
				k.refill()
			}
			s.crew(8, q)
		}
		var trickle func()
		trickle = func() {
			b.credit(1 + s.rng.Int64N(4))
			all.credit(1 + s.rng.Int64N(4))
			s.after(time.Duration(100+s.rng.IntN(900))*time.Millisecond, trickle)
		}
		trickle()
		s.run(200*time.Second, nil)
		if len(s.faults) > 0 || s.deliveries < 500 {
			t.Errorf("seed %d: %d deliveries, %q", seed, s.deliveries, s.faults)
		}
		if err := s.step.Check(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// TestNoTokensAreSavedForAMessageThatIsNotPaidFor has a dear message be next at a throttle by cost,
// and its budget lose the credits while the tokens for it accumulate: a cheap message of another key
// goes out as soon as there are tokens for that.
func TestNoTokensAreSavedForAMessageThatIsNotPaidFor(t *testing.T) {
	s := newSchedSim(1, nil)
	cost := s.throttleByCost(10, 100, 0)
	b := s.budget(5)
	q, other := s.queue(), s.queue()
	for _, x := range []struct {
		q       *schedQueue
		cost    uint32
		budgets []*schedBudget
	}{{q, 100, nil}, {q, 90, []*schedBudget{b}}, {q, 5, nil}, {other, 1, []*schedBudget{b}}} {
		k := x.q.key(1, cost)
		k.class, k.budgets, k.charges = nil, x.budgets, func() int64 { return 5 }
		if x.q == other {
			k.sets[0] = nil
		}
		k.put(x.cost, 4, 0)
		if x.q == q {
			s.run(time.Millisecond, nil)
			if x.cost == 100 {
				s.crew(4, q)
				s.run(time.Millisecond, nil)
			}
		}
	}
	s.run(100*time.Millisecond, nil)
	s.crew(1, other) // takes the credits without the throttle
	s.run(time.Second, nil)
	if len(s.faults) > 0 || q.got != 2 || other.got != 1 {
		t.Errorf("%d and %d messages went out, want the first, the cheap one and that of the other queue; %q", q.got, other.got, s.faults)
	}
}

// TestAQueueThatBecomesADLQChargesNothing: keys that wait for credits go on, and nothing is reserved.
func TestAQueueThatBecomesADLQChargesNothing(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("w", QueueOptions{NoDLQ: true})
	w.setBudget("acme", BudgetOptions{})
	w.pay("w", "k", 10, "acme")
	w.send(Enqueue{Queue: "w", Key: "k"})
	if ds := w.lease("w", 10); len(ds) != 0 {
		t.Fatalf("%d messages are handed out without credits", len(ds))
	}
	if i := w.budget("acme"); i.Waiting != 1 {
		t.Errorf("%d keys wait, want one", i.Waiting)
	}
	w.queue("src", QueueOptions{DLQ: new("w")})
	if ds := w.lease("w", 10); len(ds) != 2 {
		t.Errorf("%d messages are handed out", len(ds))
	}
	w.sums("acme", 0, 0, 0)
	if i := w.budget("acme"); i.Waiting != 0 {
		t.Errorf("%d keys wait", i.Waiting)
	}
}

package engine

import (
	"errors"
	"fmt"
	"time"
)

// bundle is a transaction of the simulation: the deliveries that it acks and the messages
// that it enqueues. A crash keeps all of it or nothing.
type bundle struct {
	order     int  // in the sequence of the engine's decisions
	committed bool // one of its messages was delivered
	lost      bool // a message that it acked was delivered again
}

// transact acks or nacks the leases of a client, enqueues further messages and leases more,
// in one transaction.
func (s *sim) transact(cl *simClient) {
	b := &bundle{}
	var calls []Call
	var thens []func(err error)
	add := func(call Call, then func(err error)) {
		calls, thens = append(calls, call), append(thens, then)
	}
	for range 1 + s.rng.IntN(2) {
		if len(s.inHand) > 0 {
			d := s.inHand[0]
			s.inHand = s.inHand[1:]
			s.addAnswer(d, b, add)
		}
	}
	for range s.rng.IntN(3) {
		s.addEnqueue(b, add)
	}
	if s.rng.IntN(2) == 0 {
		s.addCharge(1+s.rng.IntN(simBudgets-1), 1+s.rng.Int64N(5), add)
	}
	lease := &simLease{}
	if s.rng.IntN(2) == 0 {
		lease = s.addLease(cl, add)
	}
	if s.rng.IntN(4) == 0 {
		add(callFunc(func(tx *Tx) error { return tx.CreateQueue("a", QueueOptions{}) }), func(err error) {
			if err == nil {
				s.oracle.fail("a queue was created twice")
			}
		})
	}
	errs := make([]error, len(calls))
	s.submitLease(cl, func(tx *Tx) error {
		b.order = s.decisions
		if s.mutant == transactionInParts && len(calls) > 1 {
			if err := tx.Exec(calls[:1], errs[:1]); err != nil {
				return err
			}
			if w := s.step.core.cut(); w != nil {
				s.step.commit(w)
			}
			return tx.Exec(calls[1:], errs[1:])
		}
		return tx.Exec(calls, errs)
	}, func(err error) {
		for i, then := range thens {
			if err != nil {
				then(err)
			} else {
				then(errs[i])
			}
		}
	}, func() []*Delivery { return lease.ds })
}

func (s *sim) addAnswer(d *Delivery, b *bundle, add func(Call, func(error))) {
	id := d.Receipt.ID
	if s.rng.IntN(3) == 0 {
		s.oracle.mayEnd(d)
		s.money.mayEnd(id)
		c := &simNack{sim: s, d: d, held: func(error) {}, req: Nack{Queue: d.Queue, Receipt: d.Receipt, Error: "no luck", Delay: -1, Holds: s.drawHolds()}}
		add(c, func(err error) {
			if !errors.Is(err, ErrInvalid) { // for its holds
				c.held(err)
				s.oracle.nacked(d, c.res, err)
			}
		})
		return
	}
	var acked int
	s.oracle.maybeGone(id)
	used := s.useOf(id)
	p := s.money.mayUse(id, used)
	add(callFunc(func(tx *Tx) (err error) {
		settled := s.settles(tx.core, d.Receipt, used)
		if acked, err = tx.AckWith(d.Queue, []Receipt{d.Receipt}, AckOptions{Used: used}); acked == 1 {
			s.oracle.bundles[id] = b
		}
		settled(acked == 1)
		return err
	}), func(err error) {
		s.oracle.acked(d, acked, err)
		if err == nil {
			s.money.used(d, acked, p)
		}
	})
}

// addCharge charges a budget whatever it has.
func (s *sim) addCharge(i int, n int64, add func(Call, func(error))) {
	b := &s.money.budgets[i]
	b.spent[1] += n
	add(callFunc(func(tx *Tx) error {
		_, err := tx.MoveBudget(&BudgetMove{Name: budgetName(i), Amount: n, Charge: true, Force: true})
		return err
	}), func(err error) {
		if err == nil {
			b.spent[0] += n
		} else if !refusal(err) {
			s.oracle.fail("charge: %v", err)
		}
	})
}

func (s *sim) addEnqueue(b *bundle, add func(Call, func(error))) {
	req := &Enqueue{Queue: s.queue(), Key: fmt.Sprintf("k%d", s.rng.IntN(s.w.keys))}
	ask := s.makeUnique(req)
	paid := s.tellHook(req, s.payFor(req))
	tag := s.oracle.newTag(req.Queue, req.Key)
	req.Payload = []byte(tag)
	if err := s.step.Prepare(req); err != nil {
		s.oracle.fail("prepare: %v", err)
	}
	var id ID
	known := false
	s.oracle.unknown[tag] = true
	s.oracle.follows[tag] = b
	add(&simEnqueue{req, func(tx *Tx) (err error) {
		before := tx.core.ids.last
		id, err = tx.Enqueue(req)
		if known = tx.core.ids.last == before; err != nil || known {
			return err
		}
		s.money.paid[id] = paid
		if ask != nil {
			s.oracle.unique.names[tag], s.oracle.unique.until[tag] = ask.name, req.UntilLease
		}
		return nil
	}}, func(err error) {
		switch {
		case err == nil && known:
			s.oracle.answeredEarlier(tag, id, req, ask, time.Time{})
		case err == nil:
			s.oracle.enqueued(tag, id, time.Time{})
			s.oracle.enqueuedUnique(ask, tag)
		case errors.Is(err, ErrTakeover):
			delete(s.oracle.unknown, tag)
		case !notNow(err):
			s.oracle.fail("enqueue: %v", err)
		}
	})
}

func (s *sim) addLease(cl *simClient, add func(Call, func(error))) *simLease {
	c := &simLease{sim: s, client: cl, req: LeaseRequest{Queues: []string{"a", "b"}, Count: 3, Block: 0}}
	s.leaseOneKey(&c.req)
	add(c, func(err error) {
		if err != nil {
			if !refusal(err) {
				s.oracle.fail("lease: %v", err)
			}
			return
		}
		s.receive(cl, c.ds, c.order)
	})
	return c
}

// simNack and simLease are calls that need a preflight.
type simNack struct {
	sim *sim
	d   *Delivery
	req Nack
	res NackResult

	held func(err error) // notes the reply for its holds
}

func (c *simNack) Preflight(tx *Tx) error { return tx.PreflightNack(&c.req) }

func (c *simNack) Apply(tx *Tx) (err error) {
	holds := c.sim.holdsOf(tx, &c.req)
	c.res, err = tx.Nack(&c.req)
	c.held = holds(err)
	c.sim.oracle.retried(c.d, c.res, err, tx.Now())
	return err
}

type simLease struct {
	sim    *sim
	client *simClient
	req    LeaseRequest
	ds     []*Delivery
	order  int
}

func (c *simLease) Preflight(tx *Tx) error { return tx.PreflightLease(&c.req) }

func (c *simLease) Apply(tx *Tx) (err error) {
	c.order = c.sim.decisions
	c.ds, err = tx.Lease(&c.req)
	c.sim.ofOneKey(tx, &c.req, c.ds, true)
	c.sim.decided(tx, c.ds)
	if c.client.client.gone && len(c.ds) > 0 {
		c.sim.oracle.fail("a client that is gone was given messages")
	}
	return err
}

// together checks a delivery against the transactions: a message that one has enqueued and
// a message that the same one has acked cannot both exist.
func (o *oracle) together(d *Delivery, order int) {
	tag := tagOf(d.Queue, d.Payload())
	if b := o.follows[tag]; b != nil {
		b.committed = true
		if b.lost {
			o.fail("%s was enqueued by a transaction whose ack is lost", tag)
		}
	}
	if b := o.bundles[d.Receipt.ID]; b != nil && order > b.order {
		b.lost = true
		if b.committed {
			o.fail("%s is back, and what the transaction that acked it has enqueued was there", tag)
		}
	}
}

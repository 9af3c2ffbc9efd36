package engine

import (
	"errors"
	"fmt"
	"github.com/faisca/fila/internal/queueset"
	"slices"
	"time"
)

// The clients of the simulation.

// idleClient returns a client that may send a command: one without a pending command, or now
// and then one that does not wait for its replies.
func (s *sim) idleClient() *simClient {
	for _, i := range s.rng.Perm(len(s.clients)) {
		if n := len(s.clients[i].pending); n == 0 || n < pipelineMax && s.rng.IntN(10) == 0 {
			return s.clients[i]
		}
	}
	return nil
}

// disconnect ends the connection of a client as resp and commands do: the engine is told that
// the client has left, and each pending reply is dropped once its task is done.
func (s *sim) disconnect(cl *simClient) {
	if cl.gone {
		return
	}
	s.oracle.trace("client %d disconnects", cl.client.ID)
	s.step.Leave(cl.client)
	s.leaving = append(s.leaving, cl.pending...)
	cl.gone, cl.pending = true, nil
	if i := slices.Index(s.clients, cl); i >= 0 {
		s.clients[i] = s.newClient()
	}
}

// drop takes back the messages of a reply that no client got.
func (s *sim) drop(t *simTask) {
	if t.Err() == nil && t.deliveries != nil {
		s.takeBack(t.deliveries())
	}
}

// takeBack has a task without a client take deliveries back, as Handler.submitUndo does.
func (s *sim) takeBack(ds []*Delivery) {
	if len(ds) == 0 {
		return
	}
	if s.mutant == unfencedUndo {
		for i, d := range ds {
			d := *d
			d.Receipt.Bare = true
			ds[i] = &d
		}
	}
	s.undos = append(s.undos, &Task{Call: callFunc(func(tx *Tx) error {
		live := map[*Delivery]*message{}
		for _, d := range ds {
			if m := tx.core.leases.byID[d.Receipt.ID]; m != nil && m.fence == d.Receipt.Fence {
				live[d] = m
			}
		}
		err := tx.Undeliver(ds) // in slices: it is applied again until nothing is left
		for _, d := range ds {
			if m := live[d]; m != nil && tx.core.leases.byID[m.id] != m {
				s.oracle.refunded(m.throttleKeys(), m.cost)
			}
		}
		return err
	})})
}

// receive gives a client the deliveries of its reply. The connection may break as the reply is
// written, and a reply may have no room for all of its messages: those that do not reach the
// client are taken back.
func (s *sim) receive(cl *simClient, ds []*Delivery, order int) {
	reached := ds
	if len(ds) > 0 && s.rng.Float64() < s.w.lost {
		reached = ds[:s.rng.IntN(len(ds))]
		s.takeBack(ds[len(reached):])
		if len(reached) == 0 {
			s.disconnect(cl)
		}
	}
	s.take(reached, order)
}

func (s *sim) queue() string { return []string{"a", "b"}[s.rng.IntN(2)] }

// act lets a client run one random command.
func (s *sim) act(cl *simClient) {
	if s.rng.IntN(20) == 0 {
		s.actCron(cl)
		return
	}
	if s.rng.IntN(12) == 0 {
		s.actTopic(cl)
		return
	}
	if s.rng.IntN(12) == 0 || s.mutant == signalTimeWrong && s.rng.IntN(3) == 0 {
		s.actSignals(cl)
		return
	}
	if s.rng.IntN(12) == 0 {
		s.actBudget(cl)
		return
	}
	if s.rng.IntN(s.debouncing()) == 0 {
		s.debounce(cl)
		return
	}
	if s.rng.IntN(s.asking()) == 0 {
		s.ask(cl)
		return
	}
	n := s.rng.IntN(100)
	switch {
	case s.rng.IntN(10) == 0:
		s.administer(cl)
	case n < 40:
		s.enqueue(cl)
	case n < 65:
		s.lease(cl)
	case n < 94 && len(s.inHand) > 1 && n%5 == 0:
		s.answerSeveral(cl)
	case n < 94 && len(s.inHand) > 0:
		i := s.rng.IntN(len(s.inHand))
		d := s.inHand[i]
		s.inHand = slices.Delete(s.inHand, i, i+1)
		s.answer(cl, d, n)
	case n >= 94 && n <= 96:
		s.transact(cl)
	case n == 97:
		s.redrive(cl)
	case n == 98 && s.rng.IntN(3) == 0:
		s.holdThrottle(cl)
	case n == 98:
		s.setThrottle(cl)
	case n == 99:
		s.setKey(cl)
	}
}

func (s *sim) enqueue(cl *simClient) {
	req := &Enqueue{Queue: s.queue(), Key: fmt.Sprintf("k%d", s.rng.IntN(s.w.keys)), Meta: Meta{Weight: uint32(s.rng.IntN(4))}}
	if s.rng.IntN(6) == 0 {
		req.Priority = new(uint8(s.rng.IntN(10)))
	}
	if s.rng.IntN(6) == 0 {
		req.Delay = time.Duration(1+s.rng.IntN(400)) * time.Millisecond
	}
	req.Cost = uint32(s.rng.IntN(4))
	if s.rng.IntN(5) == 0 {
		req.TTL = req.Delay + time.Duration(1+s.rng.IntN(600))*time.Millisecond
	}
	if s.rng.IntN(4) == 0 {
		req.Dedup = fmt.Sprintf("d%d", s.rng.IntN(4))
	}
	ask := s.makeUnique(req)
	for t := range 3 {
		if s.rng.IntN(5) == 0 {
			req.Throttles = append(req.Throttles, fmt.Sprintf("t%d", t))
		}
	}
	own := s.giveRetries(req)
	paid := s.tellHook(req, s.payFor(req))
	tag := s.oracle.newTag(req.Queue, req.Key)
	req.Payload = []byte(tag)
	if err := s.step.Prepare(req); err != nil {
		s.oracle.fail("prepare: %v", err)
	}
	var id ID
	s.oracle.unknown[tag] = true // until the reply
	var due time.Time
	var at time.Time
	known := false
	s.announced = req
	purges := s.oracle.look.purges
	s.late = func() {
		if !known {
			s.oracle.enqueued(tag, id, due)
			m := s.oracle.byID[id]
			m.perhapsGone = m.perhapsGone || purges != s.oracle.look.purges // by a later leader, before this answer
		}
	}
	s.submit(cl, func(tx *Tx) (err error) {
		before := tx.core.ids.last
		id, err = tx.Enqueue(req)
		at, known = tx.Now(), tx.core.ids.last == before
		if known && err == nil {
			return nil
		}
		if err == nil {
			s.money.paid[id], s.oracle.own[id] = paid, own
		}
		if req.TTL > 0 && err == nil {
			s.oracle.ends[id] = tx.Now().Add(req.TTL)
		}
		if req.Dedup != "" && err == nil {
			s.oracle.named(tag, req.Queue, req.Dedup, at)
		}
		if ask != nil && err == nil {
			s.oracle.unique.names[tag], s.oracle.unique.until[tag] = ask.name, req.UntilLease
		}
		if req.Delay > 0 {
			s.oracle.handed[id] = true // it gets its position when it is due
			due = tx.Now().Add(req.Delay)
		}
		return err
	}, func(err error) {
		refused := s.refusesOption(req, err)
		switch {
		case err == nil && known:
			s.oracle.answeredEarlier(tag, id, req, ask, at)
		case err == nil:
			s.oracle.enqueued(tag, id, due)
			s.oracle.enqueuedUnique(ask, tag)
		case errors.Is(err, ErrTakeover), refused:
			delete(s.oracle.unknown, tag)
		case !notNow(err):
			s.oracle.fail("enqueue: %v", err)
		}
	})
}

// giveRetries gives a part of the requests retries of their own, and returns how many attempts they
// then have. Where the queue retries without limit no message dies of its failures, which other checks need.
func (s *sim) giveRetries(req *Enqueue) queueset.Optional {
	if s.rng.IntN(5) > 0 || s.w.attempts == 0 {
		return 0
	}
	most, backoff := s.rng.Uint64N(5), s.rng.Uint64N(400)
	r := queueset.Retries{MaxAttempts: queueset.Some(most), Backoff: queueset.Some(backoff), MaxBackoff: queueset.Some(backoff * most)}
	if most == 0 || s.rng.IntN(2) == 0 {
		r.Backoff, r.MaxBackoff = 0, 0
	}
	req.Retries = &r
	return r.MaxAttempts
}

func (s *sim) lease(cl *simClient) {
	req := &LeaseRequest{Queues: []string{s.queue()}, Count: 1 + s.rng.IntN(5), Block: -1}
	switch s.rng.IntN(6) {
	case 0:
		req.Queues = []string{"a", "b"}
	case 1:
		req.Queues = []string{"a.dlq"}
	}
	if s.rng.IntN(2) == 0 {
		req.Block = time.Duration(1+s.rng.IntN(500)) * time.Millisecond
	}
	if s.rng.IntN(3) == 0 {
		req.Visibility = time.Duration(1+s.rng.IntN(400)) * time.Millisecond
	}
	s.leaseOneKey(req)
	s.leaseAs(cl, req)
}

func (s *sim) leaseAs(cl *simClient, req *LeaseRequest) {
	var ds []*Delivery
	began := s.step.now
	inParts := false
	order, known := 0, map[Receipt]bool{} // known: receipts of a lease in parts that the oracle has seen
	t := s.submitLease(cl, func(tx *Tx) (err error) {
		order = s.decisions
		back := func() {}
		if s.mutant == leaseAboveLimit {
			back = s.unlimited(tx.core)
		}
		must := s.mustGather(tx.core)
		ds, err = tx.Lease(req)
		if !inParts { // else it has what it took earlier
			s.keptBack(must, ds)
		}
		s.gatesOpen(tx, ds)
		inParts = inParts || req.parts != nil
		s.ofOneKey(tx, req, ds, inParts)
		s.freeEarly(tx.core, ds)
		back()
		got := ds
		if err != nil && req.parts != nil {
			got = req.parts.got
		}
		s.decided(tx, slices.DeleteFunc(slices.Clone(got), func(d *Delivery) bool { return known[d.Receipt] }))
		for _, d := range got {
			known[d.Receipt] = true
		}
		return err
	}, func(err error) {
		if err != nil {
			if !refusal(err) {
				s.oracle.fail("lease: %v", err)
			}
			return
		}
		s.receive(cl, ds, order)
		if len(ds) == 0 && req.Block > 0 && !s.stopping && s.step.halted == nil && s.mutant != expiryNotUnderLoad && s.step.now.Before(began.Add(req.Block)) {
			s.oracle.fail("a blocking lease came back empty too early")
		}
	}, func() []*Delivery { return ds })
	if !t.Done() && s.rng.Float64() < s.w.lost {
		s.disconnect(cl)
	}
}

// decided reports the deliveries of the engine to the oracle, before and regardless of
// their replies.
func (s *sim) decided(tx *Tx, ds []*Delivery) {
	if s.replaced {
		return // what a leader that was replaced decides is told to no client
	}
	for _, d := range ds {
		s.oracle.decided(d, tx.Now())
		s.oracle.unique.lent[d.Receipt.ID] = true
		m := tx.core.leases.byID[d.Receipt.ID]
		s.oracle.passed(m.throttleKeys(), m.cost, s.step.now)
		s.oracle.takes(d.Receipt, m.throttleKeys())
		s.oracle.heldOver(m.throttleKeys(), tx.Now())
		s.oracle.leased(tx.core, d.Receipt, m.throttleKeys())
	}
}

// take gives a client the deliveries of its reply.
func (s *sim) take(ds []*Delivery, order int) {
	for _, d := range ds {
		if _, err := s.step.Load([]*Delivery{d}); err != nil {
			if m := s.oracle.byID[d.Receipt.ID]; m != nil && s.oracle.taken(m) || s.oracle.beingPurged(d.Queue[:1]+"/"+d.Key+"/") {
				continue // removed during its lease
			}
			if !errors.Is(err, ErrNoMessage) || s.step.now.Before(d.LeaseUntil) {
				s.oracle.fail("load: %v", err)
			}
			continue
		}
		s.oracle.delivered(d)
		s.money.handed(d)
		s.oracle.byID[d.Receipt.ID].leasedIn = order
		s.oracle.together(d, order)
		if s.oracle.carries(d.Receipt.ID, tagOf(d.Queue, d.Payload()), order) && s.mutant == replacementNotCommitted {
			s.oracle.order.handed = true
		}
		s.oracle.inOrder(d, order)
		s.inHand = append(s.inHand, d)
	}
}

// answer acks, nacks, extends, releases or forgets a delivery.
func (s *sim) answer(cl *simClient, d *Delivery, n int) {
	r := d.Receipt
	if s.mutant == unfencedReceipt {
		r.Bare = true
	}
	id := d.Receipt.ID
	s.oracle.trace("client %d answers %s with %d", cl.client.ID, r, n)
	switch {
	case n < 80:
		var acked int
		s.oracle.maybeGone(id)
		used := s.useOf(id)
		p := s.money.mayUse(id, used)
		s.late = func() { s.oracle.acked(d, acked, nil) }
		o := AckOptions{Used: used, Result: s.valueOf(d)}
		s.submit(cl, func(tx *Tx) (err error) {
			limits, settled := s.oracle.limitsOf(tx.core, r), s.settles(tx.core, r, used)
			if acked, err = tx.AckWith(d.Queue, []Receipt{r}, o); acked > 0 {
				s.oracle.inTime(d, tx.Now())
			}
			settled(acked > 0)
			s.oracle.limitsAfter(limits, outcomeOf(acked > 0, limitGrows))
			return err
		}, func(err error) {
			s.oracle.acked(d, acked, err)
			if err == nil {
				s.money.used(d, acked, p)
			}
		})
	case n < 88:
		s.money.mayEnd(id)
		s.oracle.mayEnd(d)
		req := &Nack{Queue: d.Queue, Receipt: r, Error: s.oracle.nackText(), Delay: -1, Dead: s.rng.IntN(5) == 0, Holds: s.drawHolds()}
		if m := s.oracle.byID[id]; m != nil && req.Dead {
			m.mayDie = true
		}
		if s.rng.IntN(2) == 0 {
			req.Delay = time.Duration(s.rng.IntN(300)) * time.Millisecond
			s.oracle.mayRetry(id)
		}
		if s.mutant == retryTooEarly && req.Delay > 0 {
			req.Delay /= 2
		}
		if s.takesNothing(id) {
			req.Used = s.useOf(id)
		}
		var res NackResult
		held := func(error) {} // notes the reply for its holds
		s.submit(cl, func(tx *Tx) (err error) {
			if m := tx.core.leases.byID[id]; m != nil && s.mutant == lateRetry {
				m.expires = 0
			}
			limits, settled := s.oracle.limitsOf(tx.core, r), s.settles(tx.core, r, req.Used)
			back, holds := s.unordered(tx.core), s.holdsOf(tx, req)
			res, err = tx.Nack(req)
			held = holds(err)
			settled(err == nil)
			back()
			for i := range limits {
				if s.mutant == limitNotCut {
					*limits[i].limit = limits[i].was
				}
			}
			cuts, limits := cutsOf(limits, req.Holds)
			s.oracle.limitsAfter(cuts, outcomeOf(err == nil, limitIsCut))
			s.oracle.limitsAfter(limits, outcomeOf(err == nil && !req.Dead, limitIsCut))
			s.oracle.retried(d, res, err, tx.Now())
			return err
		}, func(err error) {
			if s.mutant == retryTooEarly && req.Delay > 0 {
				res.ReadyAt = res.ReadyAt.Add(req.Delay)
			}
			if errors.Is(err, ErrInvalid) { // for its holds
				s.inHand = append(s.inHand, d)
				return
			}
			held(err)
			s.oracle.nacked(d, res, err)
			s.oracle.nackedWith(id, req.Error, err)
		})
	case n < 91:
		s.money.mayEnd(id)
		var until time.Time
		if m := s.oracle.byID[id]; m != nil {
			m.extending = true
		}
		o := s.progress(d)
		s.submit(cl, func(tx *Tx) (err error) {
			until, err = tx.ExtendWith(d.Queue, r, 500*time.Millisecond, o)
			return err
		}, func(err error) {
			if s.oracle.extended(d, until, err) {
				s.inHand = append(s.inHand, d)
				s.oracle.said(d, o)
			}
		})
	case n < 93 || s.mutant == releaseNotSeen:
		s.oracle.mayEnd(d)
		s.money.mayEnd(id)
		var count int
		s.submit(cl, func(tx *Tx) (err error) {
			limits := s.oracle.limitsOf(tx.core, r)
			end := s.deaf(tx.core)
			count, err = tx.Release(d.Queue, []Receipt{r})
			end()
			s.oracle.limitsAfter(limits, limitStays)
			return err
		}, func(err error) {
			s.oracle.released(d, count, err)
		})
	}
}

// setThrottle changes or removes a throttle or a pattern.
func (s *sim) setThrottle(cl *simClient) {
	name := [...]string{"t0", "t1", "t2", "t*", "t1*", "t2*"}[s.rng.IntN(6)]
	var o ThrottleOptions
	if s.rng.IntN(3) > 0 {
		o.Rate, o.ByCost = new(0.5+20*s.rng.Float64()), s.rng.IntN(2) == 0
		if s.rng.IntN(2) == 0 {
			o.Burst = new(uint64(1 + s.rng.IntN(5)))
		}
	}
	if o.Rate == nil || s.rng.IntN(2) == 0 {
		n := uint64(1 + s.rng.IntN(4))
		o.Concurrency = &n
		if o.Adaptive = n > 2; o.Adaptive {
			o.Min = new(n - 2)
			n++
		}
	}
	take := s.rng.IntN(4) == 0
	s.submit(cl, func(tx *Tx) error {
		if !s.replaced {
			defer s.oracle.throttlesSet(tx.core, name, s.step.now)
		}
		if take {
			_, err := tx.DeleteThrottle(name)
			return errors.Join(err, tx.recordThrottle(name))
		}
		err := tx.SetThrottle(name, o)
		if err == nil {
			err = tx.recordThrottle(name)
		}
		return err
	}, func(err error) {
		if err != nil && !refusal(err) {
			s.oracle.fail("throttle: %v", err)
		}
	})
}

// setKey changes the settings of a fairness key.
func (s *sim) setKey(cl *simClient) {
	q, k, n, depth := s.queue(), fmt.Sprintf("k%d", s.rng.IntN(s.w.keys)), s.rng.IntN(7), uint64(s.rng.IntN(12))
	s.submit(cl, func(tx *Tx) error {
		switch n {
		case 0:
			return tx.PauseKey(q, k, true)
		case 1, 2:
			return tx.PauseKey(q, k, false)
		case 3, 4:
			return tx.SetKey(q, k, KeyOptions{Weight: new(uint32(1 + s.rng.IntN(5)))})
		case 5:
			return tx.SetKey(q, k, KeyOptions{MaxDepth: &depth})
		default:
			_, err := tx.ResetKey(q, k)
			return err
		}
	}, func(err error) {
		if err != nil && !refusal(err) {
			s.oracle.fail("key: %v", err)
		}
	})
}

func (s *sim) redrive(cl *simClient) {
	s.oracle.look.redrives++
	req := &Redrive{DLQ: "a.dlq", Count: s.rng.IntN(5)}
	if s.rng.IntN(2) == 0 {
		req.Rate = 1 + s.rng.IntN(20)
	}
	switch s.rng.IntN(4) {
	case 0:
		req.Filter = &Filter{Error: new("*")}
	case 1:
		req.Filter = &Filter{Error: new(""), Origin: "a"}
	}
	s.submit(cl, func(tx *Tx) error {
		s.oracle.redriven(tx.core)
		_, err := tx.Redrive(req)
		return err
	}, func(err error) {
		if err != nil && !refusal(err) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrPaused) {
			s.oracle.fail("redrive: %v", err)
		}
	})
}

func (s *sim) resumeAll(cl *simClient) {
	for _, q := range []string{"a", "b"} {
		s.submit(cl, func(tx *Tx) error { return tx.Pause(q, true, true, false) }, func(error) {})
		for k := range s.w.keys {
			s.submit(cl, func(tx *Tx) error { return tx.PauseKey(q, fmt.Sprintf("k%d", k), false) }, func(error) {})
		}
	}
}

// mutantEnds stops mutants that would prevent the end of the run.
func (s *sim) mutantEnds() {
	if s.mutant == expiryNotUnderLoad || s.mutant == waiterForgotten {
		s.oracle.overdue(s.step)
		s.mutant = noMutant
	}
}

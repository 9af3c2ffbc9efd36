package engine

import "slices"

// A lease of very many messages takes them in parts, and goes on in a later turn when
// the step has used up its budget. The task has begun then: it waits for its turn and for
// no message, so it takes what there is and never waits to fill what was asked for.

// leasePart is how many messages are leased before the budget is looked at.
func (c *core) leasePart() int { return c.tasks.budget.part(16) }

// leaseParts is what has been leased for a request so far.
type leaseParts struct {
	epoch uint64
	until int64 // when a request that blocks ends; 0: never
	got   []*Delivery
}

// leaseMany is Lease for more than one part.
func (tx *Tx) leaseMany(req *LeaseRequest) ([]*Delivery, error) {
	c, size := tx.core, tx.core.leasePart()
	p := req.parts
	if p == nil || p.epoch != c.epoch {
		req.parts = nil
		until := c.blockUntil(req.Block)
		if w := tx.task.wait; w != nil {
			until = w.until
		}
		first := *req
		first.Count = size
		ds, err := tx.Lease(&first)
		if err != nil || len(ds) < size {
			return ds, err
		}
		tx.stored = false
		p = &leaseParts{epoch: c.epoch, until: until, got: slices.Grow(ds, size)}
		req.parts = p
	}
	for len(p.got) < req.Count {
		if !c.room() {
			c.stopWaiting(tx.task)
			return nil, tx.yield()
		}
		part := *req
		part.Count = min(size, req.Count-len(p.got))
		ds := c.deliver(c.queuesStill(req.Queues), &part)
		p.got = append(p.got, ds...)
		if len(ds) < part.Count {
			break
		}
	}
	req.parts = nil
	p.got = slices.DeleteFunc(p.got, func(d *Delivery) bool { // those that have ended meanwhile
		q := c.queues.byName[d.Queue]
		return q == nil || c.leaseOf(q, d.Receipt) == nil
	})
	if len(p.got) == 0 && req.Block >= 0 && (p.until == 0 || p.until > c.now) {
		return nil, tx.waitAgain(c.queuesStill(req.Queues), p.until)
	}
	tx.stored = len(p.got) > 0 && !slices.ContainsFunc(p.got, func(d *Delivery) bool { return !d.stored })
	return p.got, nil
}

// queuesStill returns those of the queues that have not been deleted meanwhile.
func (c *core) queuesStill(names []string) []*queue {
	var queues []*queue
	for _, name := range names {
		if q := c.queues.byName[name]; q != nil {
			queues = append(queues, q)
		}
	}
	return queues
}

// waitAgain makes a task wait for messages that has lost all it had got.
func (tx *Tx) waitAgain(queues []*queue, until int64) error {
	c, w := tx.core, tx.task.wait
	if w == nil {
		tx.park(queues, until, false)
		return ErrWouldBlock
	}
	c.standInLine(w, queues)
	w.onlyLoading = false
	if w.until = until; until > 0 {
		c.waits.timed.push(w)
	}
	if tx.task.Client != nil {
		tx.task.Client.waits.Store(true)
	}
	return ErrWouldBlock
}

// stopWaiting takes a task that has got something out of the lines that it stands in.
func (c *core) stopWaiting(t *Task) {
	w := t.wait
	if w == nil {
		return
	}
	c.leaveLines(w)
	if w.timer >= 0 {
		c.waits.timed.remove(w)
	}
	w.until = 0
	if t.Client != nil {
		t.Client.waits.Store(false)
	}
}

package engine

import (
	"time"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/internal/queueset"
)

// This file is where messages meet consumers. A consumer that waits is served by the step of the turn that bears the
// name, one that asks takes what is left. Both ask for the next message (take), and nothing else delivers:
//
//	serve, expire ──▶ serveReady ──▶ serveQueue ──▶ Task.resume ──▶ Tx.Lease ──▶ deliver ──▶ take
//	a lease that asks ──▶ Tx.Lease: serveReady, then deliver ──▶ take
//
// A lease that is being served never serves another: it ends where the turn is another queue's.

// serve delivers what became ready to waiting consumers. It runs after apply and before the
// cut: the lease of a message is in the same batch as what made the message ready, else a
// crash could lose one of them.
func (c *core) serve() {
	if c.health.failed != nil {
		c.order.Stop() // nothing is delivered, and recovery rebuilds what it lists
	}
	for c.room() {
		if c.serveReady(); len(c.waits.unblocked) == 0 {
			break
		}
		c.applyUnblocked()
	}
	if c.room() {
		c.waits.unblocked = nil
	}
}

// serveReady serves the queues that may deliver, one after the other, as far as the budget of the
// step goes.
func (c *core) serveReady() {
	for q := c.order.Ready(); q != nil; q = c.order.Ready() {
		c.serveQueue(q.Owner().(*queue))
	}
}

// serveQueue runs the tasks that wait for a queue, in the order of their arrival, as long as
// the queue can deliver. When nothing is being read for the queue any more, tasks that wait for
// window reads only are run as well: they end without a message, or take one of another queue.
func (c *core) serveQueue(q *queue) {
	for q.order.HasOpen() && q.waiters.Head() != nil && c.health.failed == nil {
		if !c.room() {
			q.order.Offer()
			return
		}
		first := q.waiters.Head()
		first.wait.task.resume(c)
		if q.waiters.Head() == first {
			break // it could take no message
		}
	}
	if q.awaitingRead > 0 {
		return
	}
	for n := q.waiters.Head(); n != nil; {
		w := n.wait
		n = n.Next()
		if w.kind.forReads() && w.task.wait == w && !w.loading() {
			w.task.resume(c)
		}
	}
}

// deliver leases up to req.Count messages, one of each queue in turn, and with req.SameKey one. The rotation of a set
// of queues is remembered between requests, so that many small leases are as fair among
// queues as one large lease. It delivers nothing while the store takes no writes. served says
// that the lease has waited and is being served; any other goes behind all that is ready. cl is the client
// that asks; nil: none is known.
func (c *core) deliver(cl *Client, queues []*queue, req *LeaseRequest, served bool) []*Delivery {
	if c.health.failed != nil {
		return nil
	}
	for _, q := range queues {
		q.askedAt = c.now
	}
	var ds []*Delivery
	most := max(req.Count, 1)
	if req.SameKey {
		most = 1 // the others follow it
	}
	turn := c.waits.rotation(queues)
	at := turn.Start(queues)
	for empty := 0; empty < len(queues) && len(ds) < most; at++ {
		q := queues[at%len(queues)]
		m := c.take(q, served)
		if m == nil {
			empty++
			continue
		}
		empty = 0
		turn.Served(q)
		if ds == nil {
			ds = make([]*Delivery, 0, min(req.Count, q.order.Keys()*4+16))
		}
		ds = append(ds, c.leaseFor(cl, req, m))
	}
	return ds
}

// leaseFor is lease with the settings of a request.
func (c *core) leaseFor(cl *Client, req *LeaseRequest, m *message) *Delivery {
	visibility := req.Visibility
	if visibility <= 0 {
		visibility = m.key.queue.set.Values.Duration(queueset.Visibility)
	}
	return c.lease(m, visibility, c.leases.consumerOf(cl, m.key.queue, req.Consumer))
}

// take removes the next message of the queue from its head cache, in the order of deficit
// round robin and within the throttles; nil if none is deliverable. It has consumed the
// credit of the key, and tokens and slots of the throttles. The caller must lease, move or
// return the message in the same turn.
func (c *core) take(q *queue, served bool) *message {
	if q.set.PausedOut {
		return nil
	}
	k := c.chosen(q)
	for k == nil && c.more(q, served) {
		// The last message may have passed the turn to another class, and each class that
		// was opened may be stopped by another of its throttles: look again until nothing
		// changes.
		k = c.chosen(q)
	}
	if k == nil {
		return nil
	}
	before := q.order.Rounds()
	q.order.Take(&k.Key)
	q.figures.Count(figures.Rounds, uint64(q.order.Rounds()-before))
	return c.takeFirst(k)
}

// following is take for the key that has just delivered, ahead of its turn; nil if throttles, budgets or a pause keep
// its next message back, or it is not in memory.
func (c *core) following(k *fairKey) *message {
	q := k.queue
	for !q.set.PausedOut && q.order.Follows(&k.Key) {
		if m := k.window.First(); c.groups.ends(c, m) {
			c.spend(1)
			c.groups.removeAtHead(c, m)
			continue
		}
		q.order.TakeAhead(&k.Key)
		return c.takeFirst(k)
	}
	return nil
}

// takeFirst removes the first message of a key from its head cache, when the order of delivery has counted it.
func (c *core) takeFirst(k *fairKey) *message {
	q := k.queue
	if m := k.window.First(); m.throttles != nil && len(m.throttles.Budgets) > 0 {
		c.reserveCharge(m)
	}
	m := k.window.Pop()
	c.heads.messages--
	q.figures.Took(&k.stats, k.name, c.now, m.cost)
	if q.figures.Rises(&k.stats, k.stats.Lately()) {
		c.history.follow(c, k)
	}
	k.leased++ // the key stays in memory while it has leases
	k.gatherAnew()
	q.figures.Change(figures.Messages{Leased: 1})
	c.settle(k)
	return m
}

// chosen returns the key that delivers next, without charging it; nil: none can deliver now. Messages whose time to live
// has passed, or whose group is cancelled, are removed on the way, a unit each.
func (c *core) chosen(q *queue) *fairKey {
	for {
		k := key(q.order.Next())
		if k == nil || !c.groups.ends(c, k.window.First()) {
			return k
		}
		if !c.room() {
			q.order.Offer()
			return nil
		}
		c.spend(1)
		c.groups.removeAtHead(c, k.window.First())
	}
}

// more gives away what has become ready while a lease takes messages, and reports whether the lease
// may find another message of the queue.
func (c *core) more(q *queue, served bool) bool {
	if !c.order.Pending() || !c.room() {
		return false
	}
	c.spend(1)
	if !served {
		c.serveReady()
		return true
	}
	return q.order.Again()
}

// lease makes a message that take returned leased, and returns its delivery. The delivery
// number exceeds all earlier ones of the message and those of all earlier starts. The lease
// record is deferred if Config.LeaseWriteDelay is set.
func (c *core) lease(m *message, visibility time.Duration, consumer *consumers.Consumer) *Delivery {
	c.spend(1)
	m.status = leased
	m.fence = max(m.fence, c.fenceBase()) + 1
	m.deliveries++
	q := m.key.queue
	waited := time.Duration(max(c.now-m.since, 0))
	m.since = c.order.LeaseTime()
	m.lease = lease{until: c.now + int64(visibility), held: c.leases.register.Lease(consumer, m.since)}
	c.leases.byID[m.id] = m
	c.leases.ends.Push(m)
	inOrder := !q.ordered() || c.isOut(m)
	if c.cfg.LeaseWriteDelay > 0 {
		c.leases.deferred = append(c.leases.deferred, deferredLease{m: m, fence: m.fence, due: c.now + int64(c.cfg.LeaseWriteDelay)})
	} else {
		c.writeLease(m)
	}
	q.figures.Delivered(waited)
	d := &Delivery{
		Receipt: Receipt{ID: m.id, Fence: m.fence}, Queue: q.name, Key: m.key.name, Attempt: m.attempt, Deliveries: m.deliveries,
		EnqueuedAt: m.id.Time(), LeaseUntil: time.Unix(0, m.until), Visibility: visibility, Waited: waited, Place: m.storageKey(),
		Stored: inOrder && c.mayReplyEarly(m),
	}
	if q.keepsDone() {
		d.Notes = c.leases.notes.KeepHeaders(m)
	}
	d.SetRecord(m.body)
	d.Expect(m.meta())
	c.releaseBody(m)
	return d
}

package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// leaseTable is the leases that last.
type leaseTable struct {
	byID     map[ID]*message
	ends     timers[*message]
	deferred []deferredLease // records that are not written yet, oldest first
}

func (t *leaseTable) reset() { *t = leaseTable{byID: map[ID]*message{}} }

func (t *leaseTable) next(*core) int64 {
	at := int64(never)
	if m, ok := t.ends.next(); ok {
		at = m.until
	}
	if len(t.deferred) > 0 {
		at = min(at, t.deferred[0].due)
	}
	return at
}

// expire ends the leases whose time is over, and writes the records of those that have
// lasted long enough.
func (t *leaseTable) expire(c *core) {
	least := c.tasks.budget.part(32)
	for c.room() {
		m, ok := t.ends.next()
		if !ok || m.until > c.now {
			break
		}
		c.spend(1)
		c.expireLease(m)
	}
	c.atLeast(least)
	c.writeDeferredLeases()
}

// expireLease takes a message back whose consumer has not answered in time.
func (c *core) expireLease(m *message) {
	q := m.key.queue
	if m.key.purged() {
		c.dropLease(m)
		return
	}
	if m.restored && m.until <= c.health.bootTime {
		// It ended while the broker was down: nobody could have acked it.
		c.releaseLease(m)
		return
	}
	if h := c.out.snapshot.Hook(q.name, hook.OnFailure); h != nil && !m.judged && !c.ttlExpired(m) {
		// The lease is over: its receipt is no good any more. But the message stays
		// where it is until the hook has decided, or a time after which nobody waits
		// for that.
		m.judged = true
		m.until = c.now + hookDecisionMax
		c.leases.ends.fix(m)
		fence := m.fence
		c.askFailure(h, m, m.attempt, "", func(c *core, d hook.FailureDecision) {
			if m.status == leased && m.fence == fence && c.leases.byID[m.id] == m && !m.key.purged() {
				c.endExpired(m, &d)
			}
		})
		return
	}
	c.endExpired(m, nil)
}

// hookDecisionMax is how long an expired message waits for its hook: far longer than
// any hook may run, far shorter than anybody would notice.
const hookDecisionMax = int64(5 * time.Second)

// endExpired ends the lease of a message whose time is over.
func (c *core) endExpired(m *message, d *hook.FailureDecision) {
	q := m.key.queue
	q.totals.leaseExpired++
	dead, delay, reason := c.failureOutcome(q, m.attempt, d)
	if d == nil || d.Action == hook.FailureDefault && d.Delay == nil {
		delay = 0 // without a word of the hook an expired message is ready at once
	}
	over := c.endsByTTL(m, dead)
	if over && c.hasDLQ(q) || dead && !over { // it goes to another queue
		if err := c.loadBody(m); err != nil {
			c.cfg.Log.Error().Err(err).Str("queue", q.name).Msg("a message cannot be read and stays leased")
			m.until = c.now + int64(q.backoff(m.attempt)) + int64(c.cfg.MendInterval)
			c.leases.ends.fix(m)
			return
		}
	}
	m.fail(c.now, "the lease expired")
	c.endLease(m)
	switch {
	case over:
		c.expireMessage(m)
	case dead:
		c.deadLetter(m, reason)
	default:
		c.retry(m, delay)
	}
}

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
			c.leaveWait(tx.task)
			return nil, tx.yield()
		}
		part := *req
		part.Count = min(size, req.Count-len(p.got))
		ds := c.deliver(c.existingQueues(req.Queues), &part)
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
		return nil, tx.parkAgain(c.existingQueues(req.Queues), p.until)
	}
	tx.stored = len(p.got) > 0 && !slices.ContainsFunc(p.got, func(d *Delivery) bool { return !d.stored })
	return p.got, nil
}

// existingQueues returns those of the queues that have not been deleted meanwhile.
func (c *core) existingQueues(names []string) []*queue {
	var queues []*queue
	for _, name := range names {
		if q := c.queues.byName[name]; q != nil {
			queues = append(queues, q)
		}
	}
	return queues
}

// parkAgain makes a task wait for messages that has lost all it had got.
func (tx *Tx) parkAgain(queues []*queue, until int64) error {
	c, w := tx.core, tx.task.wait
	if w == nil {
		tx.park(queues, until, false)
		return ErrWouldBlock
	}
	c.joinLines(w, queues)
	w.untilLoaded = false
	if w.until = until; until > 0 {
		c.waits.timed.push(w)
	}
	if tx.task.Client != nil {
		tx.task.Client.waits.Store(true)
	}
	return ErrWouldBlock
}

// leaveWait takes a task that has got something out of the lines that it stands in.
func (c *core) leaveWait(t *Task) {
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

// endLeases ends the leases that receipts stand for, in slices if there are many, and
// returns how many there were. A receipt whose lease is over is not counted and changes
// nothing. The task is answered when all of its parts are committed; a crash before that
// may have kept some of them, as if its client had named those alone.
func (tx *Tx) endLeases(queue string, receipts []Receipt, end func(c *core, m *message)) (int, error) {
	c := tx.core
	if len(receipts) <= receiptsFew {
		return tx.endFewLeases(queue, receipts, end)
	}
	p, err := tx.progress()
	if err != nil {
		return 0, err
	}
	q, err := c.queueToChange(queue)
	if err != nil {
		if p.at > 0 { // the queue was deleted meanwhile, and with it the other leases
			return p.n, nil
		}
		return 0, err
	}
	for ; p.at < len(receipts); p.at++ {
		if !tx.more() {
			return 0, tx.yieldAt(p)
		}
		if m := c.leaseOf(q, receipts[p.at]); m != nil {
			end(c, m)
			p.n++
			c.out.sync = true
		}
	}
	return p.n, nil
}

// receiptsFew is how many receipts are handled without asking for each of them.
const receiptsFew = 64

// endFewLeases is endLeases for what is not worth dividing.
func (tx *Tx) endFewLeases(queue string, receipts []Receipt, end func(c *core, m *message)) (n int, err error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return 0, err
	}
	c.spend(len(receipts))
	for i := range receipts {
		if m := c.leaseOf(q, receipts[i]); m != nil {
			end(c, m)
			n++
		}
	}
	if n > 0 {
		c.out.sync = true
	}
	return n, nil
}

// Ack removes messages whose leases the receipts stand for and returns how many
// there were. A receipt whose lease is over is not counted and changes nothing.
func (tx *Tx) Ack(queue string, receipts []Receipt) (int, error) {
	return tx.endLeases(queue, receipts, func(c *core, m *message) {
		m.key.queue.totals.acked++
		c.endLease(m)
		c.emitMessage(EventAcked, m)
		c.remove(m)
	})
}

// remove takes the records of a message off the disk. It must be in no structure
// of the memory any more.
func (c *core) remove(m *message) {
	k := m.key
	c.out.batch.SingleDelete(storage.Messages, c.messageKey(m))
	if m.retried {
		c.out.batch.Delete(storage.Attempts, c.out.key)
	}
	if m.expires != 0 {
		c.unindex(&c.ttl.index, m.expires, m.storageKey())
	}
	c.dropBody(m)
	m.status = gone
	k.queue.recordGone(m.id)
	k.touch(m.place)
	k.total--
	k.queue.total--
	c.markShrunk(k.queue)
	c.settle(k)
}

// Extend lets a lease end d from now, at least a millisecond, and returns when.
func (tx *Tx) Extend(queue string, r Receipt, d time.Duration) (time.Time, error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return time.Time{}, err
	}
	if d < time.Millisecond || d > durationMax {
		return time.Time{}, fmt.Errorf("%w: a lease lasts from 1 to %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	m := c.leaseOf(q, r)
	if m == nil {
		return time.Time{}, fmt.Errorf("extend %s: %w", r, ErrLeaseLost)
	}
	m.until = c.now + int64(d)
	m.restored = false // it is held by someone who is there
	c.leases.ends.fix(m)
	if m.writes > 0 { // otherwise the lag writes the new end, or never has to
		c.writeLease(m)
	}
	return time.Unix(0, m.until), nil
}

// Release gives leased messages back, ready at once, without counting a failure.
// It returns how many of the receipts still stood for a lease.
func (tx *Tx) Release(queue string, receipts []Receipt) (int, error) {
	return tx.endLeases(queue, receipts, func(c *core, m *message) {
		m.key.queue.totals.released++
		c.releaseLease(m)
	})
}

// Undeliver gives back deliveries that never reached their client: the message
// is as if they had not been, but for their numbers, which are not used again.
// Of many it returns ErrWouldBlock: those that are left follow in later turns.
func (tx *Tx) Undeliver(ds []*Delivery) error {
	c := tx.core
	if c.health.failed != nil {
		return nil //nolint:nilerr // the leases are gone with the memory that knew them
	}
	for _, d := range ds {
		q := c.queues.byName[d.Queue]
		if q == nil {
			continue
		}
		m := c.leaseOf(q, d.Receipt)
		if m == nil {
			continue // also where an earlier turn has given it back
		}
		if !tx.more() {
			return tx.yield()
		}
		m.deliveries--
		q.totals.delivered--
		m.key.stats.delivered--
		c.refund(m)
		c.releaseLease(m)
	}
	return nil
}

// releaseLease ends a lease and makes its message ready in its place.
func (c *core) releaseLease(m *message) {
	c.endLease(m)
	c.writeAttempt(m, 0)
	c.makeReady(m)
}

// writeAttempt keeps what the message's own record, written once, cannot say:
// how often it was handed out and failed, and when it is due again (0: now).
func (c *core) writeAttempt(m *message, readyAt int64) {
	rec := storage.Attempt{Attempt: m.attempt, Deliveries: m.deliveries, ReadyAt: readyAt, Fence: m.fence}
	if f := m.failure; f != nil {
		rec.Error, rec.FirstFailedAt, rec.LastFailedAt = f.text, f.first, f.last
	}
	m.retried = true
	m.key.queue.recordAttempt(m)
	c.out.batch.Put(storage.Attempts, c.messageKey(m), rec.Append(nil))
	m.key.touch(m.place)
}

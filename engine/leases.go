package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/delivery"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/internal/hook"
)

// expire ends the leases whose visibility timeout has passed and writes the deferred
// records that are due. Both have a share of the budget of their own, so that many expiries
// do not delay the records.
func (t *leaseTable) expire(c *core) {
	least := c.tasks.budget.Part(32)
	for c.room() {
		m, ok := t.ends.First()
		if !ok || m.until > c.now {
			break
		}
		c.spend(1)
		c.expireLease(m)
	}
	c.atLeast(least)
	c.writeDeferredLeases()
}

// expireLease acts on a lease whose visibility timeout has passed; see leaseTable.
func (c *core) expireLease(m *message) {
	q := m.key.queue
	if m.key.purged() {
		c.dropLease(m)
		return
	}
	if m.retrying {
		c.endLease(m)
		c.makeReady(m)
		return
	}
	if m.recovered && m.until <= c.health.bootTime {
		// The lease ended while the broker was down, when no ack was possible: that is no
		// failure of the consumer.
		c.releaseLease(m)
		return
	}
	if h := c.out.snapshot.Hook(q.name, hook.OnFailure); h != nil && !m.deciding && !m.expired(c.now) {
		// From here on the receipt is invalid. The message waits in place for the hook's
		// decision; its timer is set to hookDecisionMax in case the decision never comes.
		m.deciding = true
		m.until = c.now + hookDecisionMax
		c.leases.ends.Fix(m)
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

// hookDecisionMax bounds the wait of an expired message for its on_failure hook. It is much
// longer than any hook may run, and short enough to go unnoticed.
const hookDecisionMax = int64(5 * time.Second)

// LeaseExpired is the error text of a delivery whose lease has expired.
const LeaseExpired = "the lease expired"

// endExpired ends an expired lease as a failure of its message. d is the decision of the
// hook; nil if there is none, or if it has not come in time. A message that must move to
// another queue but cannot be read stays leased, and the move is retried after its backoff.
func (c *core) endExpired(m *message, d *hook.FailureDecision) {
	q := m.key.queue
	q.figures.Count(figures.Expired, 1)
	dead, delay, reason := c.failureOutcome(m, m.attempt, d)
	if d == nil || d.Action == hook.FailureDefault && d.Delay == nil {
		delay = 0 // by default a message is ready at once: its lease was pause enough
	}
	over := c.endsByTTL(m, dead)
	if over && c.queues.haveDLQ(q) || dead && !over { // the message moves to another queue
		if err := c.loadBody(m); err != nil {
			c.cfg.Log.Error().Err(err).Str("queue", q.name).Msg("a message with an expired lease cannot be read; it stays leased, retrying later")
			m.until = c.now + int64(m.tied().retries.Delay(m.attempt, &m.key.queue.set.Values)) + int64(c.cfg.RetryInterval)
			c.leases.ends.Fix(m)
			return
		}
	}
	cause := ""
	if d != nil {
		cause = d.Cause
	}
	c.fail(m, LeaseExpired, cause, true)
	c.failed(m, dead, reason)
	c.holdFor(m, d.Holding())
	c.observeWork(m, figures.OutcomeExpired)
	c.endLease(m)
	switch {
	case over:
		c.expireMessage(m)
	case dead:
		c.deadLetter(m, reason)
	case c.groups.cancels(m):
		c.groups.cancelMember(c, m)
	default:
		c.retry(m, delay)
	}
}

// A large lease is divided into parts. When the budget of the step is used up, the task
// yields and continues in a later turn. It has begun then, so it takes what is ready and
// never waits to reach its count.

// endLeases calls end for each live lease that the receipts name and returns how many there
// were. Receipts without a live lease are skipped. It validates the queue before the first
// change.
//
// More than receiptsFew receipts are processed in slices, in several batches; the task is
// answered after the last commit. A crash in between may keep the first part, as if the
// client had named those receipts alone. If the queue is deleted between slices, the rest
// of the leases went with it: the count so far is the answer.
func (tx *Tx) endLeases(queue string, receipts []Receipt, end func(c *core, m *message)) (int, error) {
	c := tx.core
	if tx.atomic || len(receipts) <= receiptsFew {
		return tx.endFewLeases(queue, receipts, end)
	}
	p, err := tx.progress()
	if err != nil {
		return 0, err
	}
	q, err := c.queueToChange(queue)
	if err != nil {
		if p.at > 0 { // the queue was deleted meanwhile, with its leases
			return p.n, nil
		}
		return 0, err
	}
	for ; p.at < len(receipts); p.at++ {
		if !tx.more() {
			return 0, tx.yieldAt(p)
		}
		if m := c.hold(q, &receipts[p.at]); m != nil {
			end(c, m)
			p.n++
			c.out.sync = true
		}
	}
	return p.n, nil
}

// receiptsFew is how many receipts are processed in one turn, without checking the budget
// for each.
const receiptsFew = 64

// endFewLeases is endLeases within one turn, so that the batch has all ends or none.
func (tx *Tx) endFewLeases(queue string, receipts []Receipt, end func(c *core, m *message)) (n int, err error) {
	c := tx.core
	q, err := c.queueToChange(queue)
	if err != nil {
		return 0, err
	}
	c.spend(len(receipts))
	for i := range receipts {
		if m := c.hold(q, &receipts[i]); m != nil {
			end(c, m)
			n++
		}
	}
	if n > 0 {
		c.out.sync = true
	}
	return n, nil
}

// Extend sets the end of a lease to d from now and returns it. d is from 1 ms to
// durationMax, else the error is ErrInvalid; ErrLeaseLost if the receipt has no live lease.
// The new end may be earlier than the old one. ErrCancelled if the group of the message is cancelled.
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
	if c.groups.cancels(m) {
		return time.Time{}, fmt.Errorf("extend %s: %w", r, ErrCancelled)
	}
	m.until = c.now + int64(d)
	m.since, m.recovered = c.leasedAt(m), false // its consumer is alive: an expiry is a failure again
	c.leases.ends.Fix(m)
	if m.writes > 0 { // a deferred record will have the new end
		c.writeLease(m)
	}
	return time.Unix(0, m.until), nil
}

// ProgressBytes is the longest text of ExtendOptions.Progress, in bytes.
const ProgressBytes = delivery.ProgressBytes

// ExtendOptions say more about a lease than that it goes on.
type ExtendOptions struct {
	Progress *string // how far the work is, at most ProgressBytes; "": takes back what was said; nil: leaves it
}

// ExtendWith is Extend with options. A text that is too long is ErrTooBig, and then the lease keeps its end.
func (tx *Tx) ExtendWith(queue string, r Receipt, d time.Duration, o ExtendOptions) (time.Time, error) {
	if o.Progress != nil && len(*o.Progress) > ProgressBytes {
		return time.Time{}, fmt.Errorf("%w: PROGRESS of %d bytes, the limit is %d", ErrTooBig, len(*o.Progress), ProgressBytes)
	}
	until, err := tx.Extend(queue, r, d)
	if err == nil && o.Progress != nil {
		tx.core.noteProgress(tx.core.leases.byID[r.ID], *o.Progress)
	}
	return until, err
}

// noteProgress notes how far the work on a leased message is.
func (c *core) noteProgress(m *message, text string) {
	c.leases.notes.SetProgress(m, text)
	c.showProgress(m, text)
	if q := m.key.queue; c.subscribed(EventProgress) {
		c.emit(Event{Kind: EventProgress, Queue: q.name, ID: m.id, Key: m.key.name, Progress: text})
	}
}

// showProgress passes on how far the work is to the requests that wait for the end of the message, whose time may be
// over before that.
func (c *core) showProgress(m *message, text string) {
	q := m.key.queue
	if len(q.resultWaits) == 0 || m.key.purged() {
		return
	}
	if all := q.resultWaits[m.id]; all != nil {
		for a := all.Head(); a != nil; a = a.Next() {
			if a.req.Result.Status == ResultPending {
				a.req.Result.Progress = text
			}
		}
	}
}

// Release ends leases without a failure: the messages are ready at once, in their
// positions, with the same attempt. It returns how many receipts had a live lease.
func (tx *Tx) Release(queue string, receipts []Receipt) (int, error) {
	return tx.endLeases(queue, receipts, func(c *core, m *message) {
		m.key.queue.figures.Count(figures.Released, 1)
		c.observeWork(m, figures.OutcomeReleased)
		c.dedup.freeLent(c, m)
		c.releaseLease(m)
	})
}

// Undeliver takes back deliveries whose reply never reached the client. The messages are
// ready again as if they had not been delivered; only their delivery numbers stay used, and
// they stay counted: no counter goes back. Tokens are refunded. It returns ErrWouldBlock when
// the budget is used up, and continues in later turns.
//
// After a failed commit it does nothing: the leases were dropped with the memory.
func (tx *Tx) Undeliver(ds []*Delivery) error {
	c := tx.core
	if c.health.failed != nil {
		return nil //nolint:nilerr // the leases were dropped with the memory
	}
	for _, d := range ds {
		q := c.queues.byName[d.Queue]
		if q == nil {
			continue
		}
		m := c.leaseOf(q, d.Receipt)
		if m == nil {
			continue // ended, or taken back by an earlier slice
		}
		if !tx.more() {
			return tx.yield()
		}
		m.deliveries--
		q.figures.Count(figures.Undelivered, 1)
		c.order.Undo(m.throttles.of(), m.cost)
		c.releaseLease(m)
	}
	return nil
}

// releaseLease ends a lease without a failure and makes its message ready in its position, unless its group is cancelled.
// The attempt record keeps the delivery number.
func (c *core) releaseLease(m *message) {
	if c.endLease(m); c.groups.cancels(m) {
		c.groups.cancelMember(c, m)
		return
	}
	c.writeAttempt(m, 0)
	c.makeReady(m)
}

// Ack deletes the messages whose live leases the receipts name, and returns how many there
// were. Receipts without a live lease change nothing and are not counted, so a repeated Ack
// is harmless. The error is that of an unknown queue, or ErrMisconf while the store takes
// no writes.
func (tx *Tx) Ack(queue string, receipts []Receipt) (int, error) {
	return tx.AckWith(queue, receipts, AckOptions{})
}

// AckOptions say more about an ack than that the work is done.
type AckOptions struct {
	Used   *int64 // what the budgets and the throttles by cost of each message are settled with, 0 to credit.ChargeMax; nil: its charge, its cost
	Result []byte // for Result, at most Limits.Result; empty but not nil: an empty one; nil: none
}

// AckWith is Ack with options. An ack is never refused for lack of credits. A result that is too
// large is ErrTooBig, and then no message is acked.
func (tx *Tx) AckWith(queue string, receipts []Receipt, o AckOptions) (int, error) {
	if n, most := len(o.Result), tx.core.cfg.Limits.Result; n > most {
		return 0, fmt.Errorf("%w: RESULT of %d bytes, the limit is %d", ErrTooBig, n, most)
	}
	if err := tx.keepHeld(queue, receipts); err != nil {
		return 0, err
	}
	return tx.endLeases(queue, receipts, func(c *core, m *message) {
		m.key.queue.figures.Acked(&m.key.stats)
		c.observeWork(m, figures.OutcomeAcked)
		c.order.Succeeded(m.throttles.of())
		c.settleUse(m, o.Used)
		key := c.dedup.keepEnd(c, m, o.Result) // before the lease is over: it knows the consumer
		c.endLease(m)
		c.emitMessage(EventAcked, m)
		m.key.queue.tell(c, m, &Result{Status: ResultDone, Value: o.Result, At: unix(c.now), key: key})
		c.groups.memberEnded(m, group.Done)
		c.remove(m)
	})
}

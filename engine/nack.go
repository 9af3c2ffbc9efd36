package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/group"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// Nack is a request to end a lease as failed.
type Nack struct {
	Queue   string
	Receipt Receipt
	Error   string        // why the delivery failed; kept with the message, clipped to ErrorBytes
	Cause   string        // a name for the cause; empty: what the hook says, else the error
	Delay   time.Duration // until the retry; negative: the queue's backoff
	Dead    bool          // no retry: dead-letter the message at once
	Holds   []HoldFor     // of throttle keys that the message names
	Used    *int64        // what the budgets and the throttles by cost are settled with, 0 to credit.ChargeMax; nil: nothing

	decided  *hook.FailureDecision // the decision of the on_failure hook; nil: none so far
	attempts uint32                // failures that the hook was given, this one included
	look     *lookup               // of a message that a call of the same transaction leases
}

// HoldFor is for how long a throttle key is held.
type HoldFor = hook.HoldFor

// ErrorBytes bounds the error text that is kept with a message, in bytes. It is cut at a
// character.
const ErrorBytes = 8 << 10

// The values of NackResult.Action.
const (
	ActionRetry = "retry" // ready again, at once or after a delay
	ActionDead  = "dlq"   // dead-lettered, or removed: there is no dead-letter queue, or its group is cancelled
)

// NackResult describes what became of a nacked message.
type NackResult struct {
	Action  string
	Attempt uint32    // of the next delivery; for a message that is not tried again, of the last one
	ReadyAt time.Time // when the message is ready again; zero if it is not
	DLQ     string    // the queue of a dead message; "": it was removed
}

// What becomes of a failed message. The first line that holds decides:
//
//   Dead, or the hook's FailureDead,
//   or all attempts used ───────────▶ dead-letter queue, or dropped without one
//   its TTL has passed ─────────────▶ expires: dead with the reason ttl
//   its group is cancelled ─────────▶ removed
//   a delay ────────────────────────▶ delayed
//   no delay ───────────────────────▶ ready, in its position
//
// Dead and Delay of the request override the hook; the hook overrides the settings of the
// queue. A dead-letter queue has no dead-letter queue: there the TTL comes first, and a message of the first line is
// ready again.

// Nack ends a lease as failed, with the outcome described above. A delay may end after the
// message's TTL; the message then expires while it is delayed.
//
// Where the queue has an on_failure hook, Nack parks the task until the hook has decided
// (ErrWouldBlock). Errors: ErrLeaseLost if the receipt has no live lease, also when the
// lease ended during the hook; ErrInvalid for a delay above durationMax, or a hold of a throttle key
// that the message does not name; ErrTooBig for a Cause above hook.CauseBytes; an error of the store if a message that must change its queue cannot be read. After an error the lease is
// as before.
func (tx *Tx) Nack(req *Nack) (NackResult, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return NackResult{}, err
	}
	if err := req.check(); err != nil {
		return NackResult{}, err
	}
	m := c.leaseOf(q, req.Receipt)
	if m == nil {
		return NackResult{}, fmt.Errorf("nack %s: %w", req.Receipt, ErrLeaseLost)
	}
	if err := c.checkHolds(m, req.Holds); err != nil {
		return NackResult{}, err
	}
	if !tx.atomic {
		if err := tx.awaitFailureHook(req, m, m.attempt); err != nil {
			return NackResult{}, err
		}
	}
	failed := m.attempt
	dead, delay, reason := c.failureOutcome(m, failed, req.decided)
	switch {
	case req.Dead:
		dead, reason = true, reasonNack
	case req.Delay >= 0:
		dead, delay = false, req.Delay
	}
	over := c.endsByTTL(m, dead)
	if over && c.queues.haveDLQ(q) || dead && !over { // the message moves to another queue
		if err := c.loadBody(m); err != nil {
			return NackResult{}, err
		}
	}
	cancelled := !over && !dead && c.groups.cancels(m)
	if over || dead || cancelled {
		if err := tx.keep(req.Queue, m.id); err != nil {
			return NackResult{}, err
		}
	}
	c.fail(m, errtext.Clip(req.Error, ErrorBytes), cmp.Or(req.Cause, req.decided.Named()), false)
	q.figures.Count(figures.Nacked, 1)
	c.out.sync = true
	c.observeWork(m, figures.OutcomeNacked)
	c.failed(m, dead, reason)
	c.holdFor(m, req.Holds)
	c.holdFor(m, req.decided.Holding())
	if req.Used != nil {
		c.settleUse(m, req.Used)
	}
	c.endLease(m)
	switch {
	case over:
		return NackResult{Action: ActionDead, Attempt: failed, DLQ: c.expireMessage(m)}, nil
	case dead:
		return NackResult{Action: ActionDead, Attempt: failed, DLQ: c.deadLetter(m, reason)}, nil
	case cancelled:
		c.groups.cancelMember(c, m)
		return NackResult{Action: ActionDead, Attempt: failed}, nil
	}
	return NackResult{Action: ActionRetry, Attempt: m.attempt, ReadyAt: time.Unix(0, c.retry(m, delay))}, nil
}

// check refuses what no message allows.
func (req *Nack) check() error {
	switch {
	case req.Delay > durationMax:
		return fmt.Errorf("%w: DELAY is at most %d ms", ErrInvalid, durationMax.Milliseconds())
	case len(req.Cause) > hook.CauseBytes:
		return fmt.Errorf("%w: CAUSE of %d bytes, the limit is %d", ErrTooBig, len(req.Cause), hook.CauseBytes)
	}
	return nil
}

// checkHolds refuses holds with ErrInvalid of throttle keys that a message does not name.
func (c *core) checkHolds(m *message, holds []HoldFor) error {
	for i := range holds {
		if err := c.checkHold(holds[i].Key, holds[i].For); err != nil {
			return err
		}
		if !slices.Contains(m.throttleKeys(), holds[i].Key) {
			return fmt.Errorf("%w: the message does not name throttle %.80q, HOLD is for those that it names", ErrInvalid, holds[i].Key)
		}
	}
	return nil
}

// holdFor holds throttle keys of a message that has failed, also for the adaptive limits of these. It opens none: that
// is the operator's (Tx.Hold). What a hook has decided of a message that names other keys by now is left out.
func (c *core) holdFor(m *message, holds []HoldFor) {
	for i := range holds {
		h := &holds[i]
		if !slices.Contains(m.throttleKeys(), h.Key) {
			continue
		}
		c.order.Failed(&dispatch.Set{Names: []string{h.Key}}, c.leasedAt(m))
		if h.For > 0 {
			c.holdKey(h.Key, h.For)
		}
	}
}

// endsByTTL reports whether a failed message ends because its TTL has passed. A message
// that is dead anyway keeps that reason, unless its queue is a dead-letter queue, which
// would keep it.
func (c *core) endsByTTL(m *message, dead bool) bool {
	return m.expired(c.now) && (!dead || m.key.queue.isDLQ())
}

// awaitFailureHook asks the on_failure hook about a message with a number of failures, parks
// the task and returns ErrWouldBlock. It returns nil where there is no hook, where the
// request or the TTL leaves nothing to decide, or where the hook has decided for that
// number already: the same call may have waited for another reason and is repeated.
func (tx *Tx) awaitFailureHook(req *Nack, m *message, attempts uint32) error {
	h := tx.core.out.snapshot.Hook(req.Queue, hook.OnFailure)
	if explicit := req.Dead || req.Delay >= 0; h == nil || explicit || m.expired(tx.core.now) || req.decided != nil && req.attempts == attempts {
		return nil
	}
	task := tx.task
	tx.core.askFailure(h, m, attempts, req.Error, func(c *core, d hook.FailureDecision) {
		if task.wait != nil { // else it was concluded meanwhile, and the request is the client's
			req.decided, req.attempts = &d, attempts
			task.resume(c)
		}
	})
	return tx.await()
}

// PreflightNack obtains the decision of the on_failure hook for a nack of a transaction,
// also for a message that an earlier call of the same transaction will lease. Earlier nacks
// of the message in the transaction count as failures. Errors of the request are left to
// Nack.
func (tx *Tx) PreflightNack(req *Nack) error {
	c := tx.core
	q := c.queues.byName[req.Queue]
	if q == nil {
		return nil
	}
	id := req.Receipt.ID
	m := c.leaseOf(q, req.Receipt)
	switch {
	case m != nil:
	case !tx.preflight.leases[req.Queue] || c.out.snapshot.Hook(req.Queue, hook.OnFailure) == nil:
		return nil // no earlier call leases it, or there is no hook
	default:
		if m = c.leases.byID[id]; m != nil && m.key.queue == q {
			break
		}
		if err := tx.preflightLookup(req.Queue, &req.look, []ID{id}, true); err != nil {
			return err
		}
		f := req.look.found
		if req.look.err != nil || f[0] == nil || c.locate(&req.look.changeLog, f[0]) == gone {
			return nil //nolint:nilerr // Nack reports that the message does not exist or cannot be read
		}
		m = f[0].m
	}
	if r := req.Receipt; m != c.leases.byID[id] && !r.Bare && r.Fence <= m.fence {
		return nil // the receipt of an ended lease
	}
	attempts := m.attempt + tx.preflight.nacks[id]
	tx.preflight.nack(id)
	return tx.awaitFailureHook(req, m, attempts)
}

// failureOutcome decides what becomes of a message that has failed for the nth time: by the
// hook's decision where d has one, else by its own retries or the queue's settings. reason is set if dead is.
func (c *core) failureOutcome(m *message, failed uint32, d *hook.FailureDecision) (dead bool, delay time.Duration, reason string) {
	if d == nil {
		d = &hook.FailureDecision{}
	}
	if d.Delay != nil {
		delay = min(*d.Delay, durationMax)
	} else {
		delay = c.retryDelay(m, failed)
	}
	switch d.Action {
	case hook.FailureRetry:
		return false, delay, ""
	case hook.FailureDead:
		return true, 0, reasonHook
	default:
		return m.attemptsExhausted(failed), delay, reasonAttempts
	}
}

// attemptsExhausted reports whether a message with so many failures is not retried. In a dead-letter queue its own number
// does not count: it has been used up, and there is nowhere else to go.
func (m *message) attemptsExhausted(failed uint32) bool {
	q, own := m.key.queue, m.tied().retries
	if q.isDLQ() {
		own = nil
	}
	return own.Exhausted(failed, &q.set.Values)
}

// retryDelay returns the backoff after the nth failure, shortened by a random part of up to
// BackoffJitter percent, so that messages that failed together do not return together. It
// is drawn once for each failure and its result is stored: a restart does not draw again.
func (c *core) retryDelay(m *message, failed uint32) time.Duration {
	full := m.tied().retries.Delay(failed, &m.key.queue.set.Values)
	most := int64(full/100) * int64(m.key.queue.set.Values[queueset.BackoffJitter])
	if most <= 0 {
		return full
	}
	return full - time.Duration(c.ids.jitter.Int64N(most+1))
}

// retry makes a failed message ready after a delay and returns the time, in Unix
// nanoseconds.
func (c *core) retry(m *message, delay time.Duration) int64 {
	c.emitFailure(m, Event{Kind: EventFailed, ReadyAt: unix(c.now + int64(max(delay, 0)))})
	c.dedup.freeLent(c, m)
	return c.makeReadyAfter(m, delay)
}

// makeReadyAfter makes a message that is in no structure ready or, with a delay above 0,
// delayed, in an ordered queue retrying. It returns when the message is ready, in Unix nanoseconds.
func (c *core) makeReadyAfter(m *message, delay time.Duration) int64 {
	if delay <= 0 {
		c.writeAttempt(m, 0)
		c.makeReady(m)
		return c.now
	}
	at := c.now + int64(delay)
	c.writeAttempt(m, at)
	if m.key.queue.ordered() {
		c.retryInOrder(m, at)
	} else {
		c.schedule(m, at)
	}
	c.settle(m.key)
	return at
}

// loadBody makes sure that the record of a message is in memory and can be decoded. A lease
// that was recovered from the store is known without the record. The read takes place in
// the turn; it is needed only where a message moves to another queue, never for a delivery
// or an ack, except of what the same transaction has leased (keep).
func (c *core) loadBody(m *message) error {
	if m.body != nil {
		return nil
	}
	b, err := storage.GetMessage(c.store, c.messageKey(m))
	if err != nil {
		return fmt.Errorf("read message %s: %w", m.id, err)
	}
	var rec storage.Message
	if err := rec.Decode(b); err != nil {
		return fmt.Errorf("message %s: %w", m.id, err)
	}
	c.heads.setBody(m, b)
	return nil
}

// deadLetter moves a message whose body is loaded to the dead-letter queue and returns the
// name of that queue; without one it drops the message and returns "". A message that is in
// a dead-letter queue already is ready there again. The message must be in no structure.
func (c *core) deadLetter(m *message, reason string) string {
	q := m.key.queue
	if q.isDLQ() {
		c.emitFailure(m, Event{Kind: EventFailed, ReadyAt: unix(c.now)})
		c.writeAttempt(m, 0)
		c.makeReady(m)
		return q.name
	}
	dlq := c.queues.byName[q.set.DLQ]
	if dlq == nil {
		q.figures.Count(figures.Dropped, 1)
		c.emitFailure(m, Event{Kind: EventDead, Reason: reason})
		q.tellDead(c, m, reason)
		c.groups.memberEnded(m, group.Dead)
		c.remove(m)
		return ""
	}
	q.figures.Count(figures.DeadLettered, 1)
	q.figures.Count(deadReason(reason), 1)
	c.emitFailure(m, Event{Kind: EventDead, Reason: reason, DLQ: dlq.name})
	q.tellDead(c, m, reason)
	var rec storage.Message
	if err := rec.Decode(m.body); err != nil {
		// The record was decoded when it was loaded.
		panic(fmt.Sprintf("engine: message %s: %v", m.id, err))
	}
	rec.Dead = &storage.Dead{
		Queue: q.name, Reason: reason, DiedAt: c.now, Attempts: m.attempt - 1, Deliveries: m.deliveries,
	}
	rec.Dead.Error, rec.Dead.Cause, rec.Dead.FirstFailedAt, rec.Dead.LastFailedAt, _ = m.failure.Parts()
	rec.ReadyAt = 0
	c.move(m, dlq, &rec, nil)
	return dlq.name
}

// move removes a message from its queue and inserts it into another with the record rec,
// ready at once, with the same id, key name and position. Attempts restart at 1 and the TTL
// is that of the new queue from now on; the delivery number is kept, so that old receipts
// stay invalid, and so is the list of failures. A unique id is freed in the one and, unless the message is dead, taken in the
// other, where it must be free. Payload and headers are stored with the record. Removal and insertion are in one batch: a crash finds the message in
// exactly one queue.
func (c *core) move(m *message, to *queue, rec *storage.Message, lent *message) {
	rec.ExpiresAt, rec.Body = 0, ID{}
	c.groups.move(m, to, rec)
	record := rec.Append(nil)
	k := c.keyOf(to, m.key.name)
	moved := &message{
		rank: m.rank, id: m.id, key: k, attempt: 1, timer: -1, batch: c.out.batchNo, fence: m.fence,
		failure: m.failure.History(),
	}
	moved.give(&rec.Meta, m.throttles, false)
	if ttl := to.set.Values.Duration(queueset.TTL); ttl > 0 {
		moved.expires = c.now + int64(ttl)
	}
	c.remove(m)
	c.insert(moved, record, 0)
	if rec.Unique != "" && rec.Dead == nil { // a redrive, which has found the id free
		c.dedup.take(c, moved, rec.Unique, lent)
	}
	if moved.fence > 0 {
		c.writeAttempt(moved, 0) // the delivery number must survive without the message in memory
	}
	c.out.sync = true
}

// verdict is the job that asks an on_failure hook about a message that has failed. Hook and
// store are called off the loop. The message stays leased until the decision arrives:
//
//  1. askFailure adds the job to the outbox.
//  2. After the commit, do reads the headers from the store and calls the hook.
//  3. Apply runs in a later turn and passes the decision to then, which must check that the
//     lease still exists.
type verdict struct {
	hook     hook.Hook
	snapshot *Snapshot
	now      int64
	msg      hook.Message
	mk       storage.MessageKey
	then     func(c *core, d hook.FailureDecision)

	decision hook.FailureDecision
}

// askFailure asks an on_failure hook what to do with a message. attempts includes the failure,
// and text is its error. then is called with the decision in a later turn.
func (c *core) askFailure(h hook.Hook, m *message, attempts uint32, text string, then func(c *core, d hook.FailureDecision)) {
	v := &verdict{hook: h, snapshot: c.out.snapshot, now: c.calendar(), mk: m.storageKey(), then: then}
	v.msg = hook.Message{
		Queue: m.key.queue.name, Key: m.key.name, ID: m.id.String(), Attempts: attempts, Error: text,
	}
	v.msg.Weight = m.key.weight
	c.out.jobs = append(c.out.jobs, v)
}

// do implements job.
func (v *verdict) do(store Store) {
	var rec storage.Message
	body, err := storage.GetMessage(store, v.mk.Append(nil))
	if err == nil {
		err = rec.Decode(body)
	}
	if err != nil {
		return // removed in the meantime, or unreadable: the zero decision is the safe one
	}
	v.msg.Headers, v.msg.PayloadSize = rec.Headers, len(rec.Payload)
	rec.Weight = v.msg.Weight
	v.msg.Meta = rec.Meta
	now := unix(v.now)
	v.decision, _ = v.hook.OnFailure(now, &v.msg, v.snapshot.View(now), v.snapshot.Bounds(v.msg.Queue)) // see decide
}

// Apply implements Call: it passes the decision on.
func (v *verdict) Apply(tx *Tx) error {
	v.then(tx.core, v.decision)
	return nil
}

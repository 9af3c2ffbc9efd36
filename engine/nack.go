package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// Nack says that a delivery has failed.
type Nack struct {
	Queue   string
	Receipt Receipt
	Error   string        // kept with the message, cut at errorBytesMax
	Delay   time.Duration // until the retry; negative: the queue's backoff
	Dead    bool          // no retry: to the dead-letter queue at once

	decided  *hook.FailureDecision // what the on_failure hook has said
	attempts uint32                // failures that it was told of, this one included
	look     *lookup               // of a message that is leased only by its transaction
}

// errorBytesMax bounds the error text kept with a message.
const errorBytesMax = 8 << 10

// What becomes of a nacked message.
const (
	ActionRetry = "retry"
	ActionDead  = "dlq"
)

// NackResult says what became of the message.
type NackResult struct {
	Action  string
	Attempt uint32    // number of the next delivery, or of the one that was the last
	ReadyAt time.Time // zero for a dead message
	DLQ     string    // where a dead message went; "": it was dropped
}

// Nack ends a lease as failed. The message is retried after a delay, or dead if
// its attempts are used up; an explicit Delay or Dead overrides that. After its time to
// live nothing is retried. A delay may last longer than the message lives: then it dies
// while it waits, as a message without a lease does.
func (tx *Tx) Nack(req *Nack) (NackResult, error) {
	c := tx.core
	q, err := c.queueToChange(req.Queue)
	if err != nil {
		return NackResult{}, err
	}
	if req.Delay > durationMax {
		return NackResult{}, fmt.Errorf("%w: DELAY is at most %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	m := c.leaseOf(q, req.Receipt)
	if m == nil {
		return NackResult{}, fmt.Errorf("nack %s: %w", req.Receipt, ErrLeaseLost)
	}
	if !tx.atomic && tx.awaitFailureHook(req, m, m.attempt) {
		return NackResult{}, ErrWouldBlock
	}
	failed := m.attempt
	dead, delay, reason := c.failureOutcome(q, failed, req.decided)
	switch {
	case req.Dead:
		dead, reason = true, reasonNack
	case req.Delay >= 0:
		dead, delay = false, req.Delay
	}
	over := c.endsByTTL(m, dead)
	if over && c.hasDLQ(q) || dead && !over { // it goes to another queue
		if err := c.loadBody(m); err != nil {
			return NackResult{}, err
		}
	}
	m.fail(c.now, req.Error[:min(len(req.Error), errorBytesMax)])
	q.totals.nacked++
	c.out.sync = true
	c.endLease(m)
	switch {
	case over:
		return NackResult{Action: ActionDead, Attempt: failed, DLQ: c.expireMessage(m)}, nil
	case dead:
		return NackResult{Action: ActionDead, Attempt: failed, DLQ: c.deadLetter(m, reason)}, nil
	}
	return NackResult{Action: ActionRetry, Attempt: m.attempt, ReadyAt: time.Unix(0, c.retry(m, delay))}, nil
}

// endsByTTL says that a message which has failed ends because its time to live is over: it
// is neither retried, nor does it stay where dead messages stay.
func (c *core) endsByTTL(m *message, dead bool) bool {
	return c.ttlExpired(m) && (!dead || m.key.queue.isDLQ())
}

// awaitFailureHook asks the hook of the queue what is to become of a message that has failed
// so many times, where there is one and it has a say, and reports whether the task waits
// for that.
func (tx *Tx) awaitFailureHook(req *Nack, m *message, attempts uint32) bool {
	h := tx.core.out.snapshot.Hook(req.Queue, hook.OnFailure)
	if explicit := req.Dead || req.Delay >= 0; h == nil || explicit || tx.core.ttlExpired(m) || req.decided != nil && req.attempts == attempts {
		return false
	}
	task := tx.task
	tx.core.askFailure(h, m, attempts, req.Error, func(c *core, d hook.FailureDecision) {
		if task.wait != nil { // else its client has gone
			req.decided, req.attempts = &d, attempts
			c.run(task)
		}
	})
	tx.park(nil, 0, false)
	return true
}

// PreflightNack waits for what the hook says of the failure, also of a message that is
// leased by a call before it in the same transaction.
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
		return nil // it will not be leased, or there is no hook to ask
	default:
		if m = c.leases.byID[id]; m != nil && m.key.queue == q {
			break
		}
		if err := tx.preflightLookup(req.Queue, &req.look, []ID{id}, true); err != nil {
			return err
		}
		f := req.look.found
		if req.look.err != nil || f[0] == nil || c.locate(&req.look.changeLog, f[0]) == gone {
			return nil //nolint:nilerr // the nack itself says that there is none, or that it cannot be read
		}
		m = f[0].m
	}
	if r := req.Receipt; m != c.leases.byID[id] && !r.Bare && r.Fence <= m.fence {
		return nil // of a lease that is over
	}
	attempts := m.attempt + tx.preflight.nacks[id]
	tx.preflight.nack(id)
	if tx.awaitFailureHook(req, m, attempts) {
		return ErrWouldBlock
	}
	return nil
}

// failureOutcome is what becomes of a message that has failed for the nth time: what the hook
// has decided, else a retry until the attempts are used up.
func (c *core) failureOutcome(q *queue, failed uint32, d *hook.FailureDecision) (dead bool, delay time.Duration, reason string) {
	if d == nil {
		d = &hook.FailureDecision{}
	}
	if d.Delay != nil {
		delay = min(*d.Delay, durationMax)
	} else {
		delay = c.retryDelay(q, failed)
	}
	switch d.Action {
	case hook.FailureRetry:
		return false, delay, ""
	case hook.FailureDead:
		return true, 0, reasonHook
	default:
		return q.attemptsExhausted(failed), delay, reasonAttempts
	}
}

// attemptsExhausted says whether a message that failed so many times gets no further try.
func (q *queue) attemptsExhausted(failed uint32) bool {
	return q.set.MaxAttempts > 0 && failed >= q.set.MaxAttempts
}

// jitterMax is a whole pause, in percent.
const jitterMax = 100

// jitterStream parts the chance of pauses from that of ids.
const jitterStream = 0x6a697474

// pause is the backoff after the nth failure, less what the queue's jitter takes off:
// messages that failed together come back one after another. It is drawn once for each
// failure; the time that follows from it is in the message's record.
func (c *core) retryDelay(q *queue, failed uint32) time.Duration {
	full := q.backoff(failed)
	most := int64(full/jitterMax) * int64(q.set.BackoffJitter)
	if most <= 0 {
		return full
	}
	return full - time.Duration(c.ids.jitter.Int64N(most+1))
}

// backoff is the longest pause after the nth failure: it doubles with each.
func (q *queue) backoff(failed uint32) time.Duration {
	ms, most := q.set.BackoffMs, q.set.MaxBackoffMs
	for ; failed > 1 && ms < most; failed-- {
		if ms = 2 * ms; ms == 0 {
			break
		}
	}
	return time.Duration(min(ms, most)) * time.Millisecond //nolint:gosec // bounded when it is set
}

// retry makes a message that has failed ready after a delay and returns when that is.
func (c *core) retry(m *message, delay time.Duration) int64 {
	c.emitFailure(m, Event{Kind: EventFailed, ReadyAt: unix(c.now + int64(max(delay, 0)))})
	return c.makeReadyAfter(m, delay)
}

// makeReadyAfter makes a message that is in no structure ready after a delay and returns when
// that is.
func (c *core) makeReadyAfter(m *message, delay time.Duration) int64 {
	if delay <= 0 {
		c.writeAttempt(m, 0)
		c.makeReady(m)
		return c.now
	}
	at := c.now + int64(delay)
	c.writeAttempt(m, at)
	c.schedule(m, at)
	c.settle(m.key)
	return at
}

// Why a message is dead.
const (
	reasonAttempts = "attempts"
	reasonNack     = "nack"
	reasonHook     = "on_failure"
)

// loadBody makes sure that a message's record is in memory, and can be understood: a
// lease that outlives a restart is known without it. It is needed only where a message
// moves to another queue, never on its ordinary way.
func (c *core) loadBody(m *message) error {
	if m.body != nil {
		return nil
	}
	b, err := c.store.Get(storage.Messages, c.messageKey(m))
	if err != nil {
		return fmt.Errorf("read message %s: %w", m.id, err)
	}
	var rec storage.Message
	if err := rec.Decode(b); err != nil {
		return fmt.Errorf("message %s: %w", m.id, err)
	}
	c.setBody(m, b)
	return nil
}

// deadLetter moves a message whose body is loaded to the dead-letter queue and returns
// that queue's name, or drops it where there is none. A message that is in a
// dead-letter queue already stays there.
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
		q.totals.dropped++
		c.emitFailure(m, Event{Kind: EventDead, Reason: reason})
		c.remove(m)
		return ""
	}
	q.totals.deadLettered++
	c.emitFailure(m, Event{Kind: EventDead, Reason: reason, DLQ: dlq.name})
	var rec storage.Message
	if err := rec.Decode(m.body); err != nil {
		// The record was checked when it came into memory.
		panic(fmt.Sprintf("engine: message %s: %v", m.id, err))
	}
	rec.Dead = &storage.Dead{
		Queue: q.name, Reason: reason, DiedAt: c.now, Attempts: m.attempt - 1, Deliveries: m.deliveries,
	}
	if f := m.failure; f != nil {
		rec.Dead.Error, rec.Dead.FirstFailedAt, rec.Dead.LastFailedAt = f.text, f.first, f.last
	}
	rec.ReadyAt = 0
	c.move(m, dlq, &rec)
	return dlq.name
}

// move takes a message out of its queue and puts it into another as rec, ready
// at once in the same place of the same key, with its attempts starting again. Its
// time to live is that of the other queue, from now on.
func (c *core) move(m *message, to *queue, rec *storage.Message) {
	rec.ExpiresAt = 0
	record := rec.Append(nil)
	k := c.keyOf(to, m.key.name)
	moved := &message{
		place: m.place, key: k, cost: m.cost, throttles: m.throttles, attempt: 1, timer: -1, batch: c.out.batchNo, fence: m.fence,
	}
	if ttl := to.set.TTLMs; ttl > 0 {
		moved.expires = c.now + int64(ttl)*int64(time.Millisecond) //nolint:gosec // bounded when it is set
	}
	c.remove(m)
	c.insert(moved, record, 0)
	if moved.fence > 0 {
		c.writeAttempt(moved, 0) // keeps the fence if the message leaves memory
	}
	c.out.sync = true
}

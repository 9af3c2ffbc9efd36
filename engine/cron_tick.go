package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/faisca/fila/engine/cron"
)

// A tick, step by step:
//
//  1. A round takes the ticks that are due, unless one is under way (cron.Table.Round).
//  2. The round runs as an off-loop job: it reads the contents of the messages from the
//     store and asks the on_enqueue hooks.
//  3. Its result is a task. For each entry it enqueues the message like any other and moves
//     the entry to the following tick, in one batch: a crash finds both or neither.
//     With REPLACE the message is enqueued by a task of its own, which may wait for a read.
//
// Package cron has the states of entries and ticks.

const (
	// roundBytes bounds the bytes of the messages of a round.
	roundBytes = 4 << 20
	// cronPublishMax bounds the bytes that the messages of one tick have together.
	cronPublishMax = 32 << 20
)

// cronJob is a tick in a round. The round fills req and err; the loop owns
// everything else.
type cronJob struct {
	*cron.Tick
	req      Enqueue
	publish  *Publish // in place of req; nil: it is no topic
	err      error
	deferred bool // the round was full
}

// cronRound is an off-loop job that makes the messages of due ticks.
type cronRound struct {
	jobs     []*cronJob
	snapshot *Snapshot
	batch    uint64 // committed when the job begins
	limits   Limits
	now      int64
}

// expire starts a round for the ticks that are due, unless one is under way. What is left follows in the next turn.
func (t *cronTable) expire(c *core) {
	if t.round != nil || c.now < t.retryAt {
		return
	}
	ticks, missed := t.Round(c.calendar(), c.out.batch)
	c.health.counters.missed += missed
	if len(ticks) == 0 {
		return
	}
	t.round = newRound(c, ticks...)
	c.out.jobs = append(c.out.jobs, t.round)
}

// newRound returns a round of ticks.
func newRound(c *core, ticks ...*cron.Tick) *cronRound {
	r := &cronRound{snapshot: c.out.snapshot, batch: c.out.batchNo, limits: c.cfg.Limits, now: c.calendar()}
	r.limits.Headers += cron.Headers
	for _, k := range ticks {
		r.jobs = append(r.jobs, &cronJob{Tick: k})
	}
	return r
}

// do makes the messages, off the loop. It reads only what was copied into the round. Jobs
// beyond roundBytes are deferred to the next round.
func (r *cronRound) do(store Store) {
	bytes := 0
	for _, j := range r.jobs {
		if j.deferred = bytes > roundBytes; j.deferred {
			continue
		}
		j.err = j.make(store, r)
		if bytes += len(j.req.record); j.publish != nil && j.err == nil {
			bytes += j.publish.Bytes()
		}
	}
}

// make prepares the enqueue of a tick from the stored content of the message.
func (j *cronJob) make(store Store, r *cronRound) error {
	m, err := j.Content(store)
	if err != nil {
		return err
	}
	j.req = cronRequest(j.Tick)
	j.req.Headers, j.req.Payload = m.Headers, m.Payload
	j.req.AddContent(&m.Meta)
	now := func() int64 { return r.now }
	if !j.Record.Topic {
		return prepare(&j.req, &r.limits, r.snapshot, store, r.batch, now)
	}
	j.publish, j.req = &Publish{Topic: j.Record.Queue, Message: j.req, BytesMax: cronPublishMax}, Enqueue{}
	if err := j.publish.begin(&r.limits); err != nil {
		return err
	}
	return j.publish.prepare(r.snapshot, store, r.batch, now)
}

// Apply enqueues the messages of the round. A round from before a recovery is ignored: its
// entries are due again.
func (r *cronRound) Apply(tx *Tx) error {
	c := tx.core
	if c.cron.round != r {
		return nil // started before a recovery
	}
	c.cron.round = nil
	for _, j := range r.jobs {
		switch {
		case !c.cron.Holds(j.Tick): // the entry was changed or deleted since
		case j.Record.Replace > 0:
			j.Alone = true
			c.run(&Task{Call: j})
		default:
			_ = j.tick(tx) // it waits for nothing
			c.cron.Release(j.Tick)
		}
	}
	return nil
}

// Apply is the task of a tick whose message may replace another one, which may have to be read first.
func (j *cronJob) Apply(tx *Tx) error {
	c := tx.core
	if !c.cron.Holds(j.Tick) {
		return nil // it was changed, or a recovery has dropped it: then it is due again
	}
	if err := j.tick(tx); err != nil {
		return err
	}
	c.cron.Release(j.Tick)
	return nil
}

// tick enqueues the message of a tick and moves its entry to the next one. A refused
// message counts as a missed tick, with its error. A tick stays due if its job was
// deferred, its limited queue is not counted yet, or nothing new is taken for lack of disk or memory. The
// error is ErrWouldBlock if the task of the tick is parked, and nil otherwise.
func (j *cronJob) tick(tx *Tx) error {
	c := tx.core
	if j.deferred {
		return nil // the tick stays due
	}
	if c.writableForNew() != nil {
		c.cron.retryAt = c.now + int64(c.cfg.RetryInterval)
		return nil //nolint:nilerr // it is tried again
	}
	if j.publish != nil && tx.refreshPublish(j.publish) != nil {
		return nil // the topic has other bindings by now: the next round makes the messages again
	}
	if c.ops.census != nil && j.limited(c) {
		// Whether the queue has room is not known yet. Only this entry waits; if Enqueue
		// waited for the counts, so would the rest of the round.
		c.cron.Defer(j.Tick)
		return nil
	}
	answered, err := j.answered(c)
	if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
		return nil // the look-up is too old: the next round repeats it
	}
	if err == nil {
		err = j.enqueue(tx)
		answered = answered || j.Alone && j.publish == nil && j.req.record != nil
	}
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return err
	case errors.Is(err, ErrMisconf): // the store has failed within this turn
		return nil
	}
	switch {
	case err != nil:
		c.health.counters.missed++
		j.End(cron.Refused, err.Error(), c.calendar())
	case answered:
		j.End(cron.Skipped, "", c.calendar())
	default:
		c.health.counters.ticked++
		j.End(cron.Fired, "", c.calendar())
	}
	j.Entry.Put(c.out.batch)
	return nil
}

// answered reports whether a message that holds the unique id of a tick in its queue answers the tick.
// For a topic, each queue decides by itself, and a tick with REPLACE finds out when it enqueues. The
// error is that of the job, or ErrWouldBlock.
func (j *cronJob) answered(c *core) (bool, error) {
	q := c.queues.byName[j.req.Queue]
	if j.err != nil || j.publish != nil || j.Alone || q == nil {
		return false, j.err
	}
	p, err := c.dedup.earlier(c, q, &j.req)
	return p.known != (ID{}), err
}

// limited reports whether a queue that gets the message of a tick is limited.
func (j *cronJob) limited(c *core) bool {
	limited := func(name string) bool { q := c.queues.byName[name]; return q != nil && q.limited() }
	if j.publish == nil {
		return limited(j.req.Queue)
	}
	return slices.ContainsFunc(j.publish.requests, func(one Enqueue) bool { return limited(one.Queue) })
}

// enqueue enqueues or publishes the message of a tick.
func (j *cronJob) enqueue(tx *Tx) (err error) {
	if j.publish != nil {
		_, err = tx.Publish(j.publish)
	} else {
		_, err = tx.Enqueue(&j.req)
	}
	return err
}

// CronRun is a request to enqueue the message of a recurring message now.
type CronRun struct {
	Name string

	run *cronRun // nil: the message is not made yet
}

// cronRun makes one message, as a round makes those of ticks.
type cronRun struct {
	cronRound
	epoch uint64
}

// RunCron enqueues the message of a recurring message now, and returns its ids, of one queue
// or of those of a topic; its ticks and
// their counts stay as they are. The message is made off the loop, and the task parks meanwhile
// (ErrWouldBlock). One that is set anew meanwhile is made again. Errors: ErrInvalid if there is no
// recurring message of that name, those of Enqueue, errors of the store. In a transaction it is
// refused.
func (tx *Tx) RunCron(req *CronRun) ([]Published, error) {
	c := tx.core
	e := c.cron.Get(req.Name)
	if e == nil {
		return nil, fmt.Errorf("%w: there is no recurring message %.80q, FILA.CRON LIST shows those that are set", ErrInvalid, req.Name)
	}
	if tx.atomic {
		return nil, errWaits
	}
	if err := c.writableForNew(); err != nil {
		return nil, err
	}
	r, rec := req.run, e.Record()
	if r == nil || r.epoch != c.epoch || r.jobs[0].Entry != e || r.jobs[0].Record.SetAt != rec.SetAt {
		r = &cronRun{cronRound: *newRound(c, &cron.Tick{Entry: e, At: c.calendar(), Record: rec}), epoch: c.epoch}
		return nil, tx.awaitRead(func(store Store) func() {
			r.do(store)
			return func() { req.run = r }
		})
	}
	if err := r.jobs[0].err; err != nil {
		return nil, err
	}
	if publish := r.jobs[0].publish; publish != nil {
		return tx.Publish(publish)
	}
	id, err := tx.Enqueue(&r.jobs[0].req)
	if err != nil {
		return nil, err
	}
	return []Published{{rec.Queue, id}}, nil
}

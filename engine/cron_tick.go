package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/storage"
)

// A tick, step by step:
//
//  1. startRound takes due entries into a round, after skipMissed has moved them past the
//     missed ticks that their rule gives up.
//  2. The round runs as an off-loop job: it reads the contents of the messages from the
//     store and asks the on_enqueue hooks.
//  3. Its result is a task. For each entry it enqueues the message like any other and moves
//     NextAt to the following tick, in one batch: a crash finds both or neither.
//
// NextAt alone says which ticks are still to come, and it never goes back. So no tick
// enqueues two messages, whatever the clock does.

const (
	// cronGrace is how late a tick may be without being missed, so that a restart or a slow
	// disk costs no tick. Later ticks fall under the entry's CatchUp rule, whatever the
	// cause of the delay.
	cronGrace = 10 * time.Second
	// madeUpMax is how many missed ticks in a row CatchUpAll enqueues; of the ticks that
	// follow, it enqueues only the last.
	madeUpMax = 10_000
	// roundMax bounds the entries of a round, roundBytes the bytes of its messages.
	roundMax   = 64
	roundBytes = 4 << 20
	// cronPublishMax bounds the bytes that the messages of one tick have together.
	cronPublishMax = 32 << 20
	// countMax bounds how far skipped ticks are counted at a time, and skipMax the steps of
	// skipping in one turn.
	countMax = 1000
	skipMax  = 512
	// The headers that tell a consumer the entry and the time of the tick, in Unix
	// milliseconds.
	headerCron   = "fila-cron"
	headerCronAt = "fila-cron-at"
	// cronErrorMax bounds the error text kept with an entry, in bytes.
	cronErrorMax = 512
)

// cronJob is the tick of one entry in a round. The round fills req and err; the loop owns
// everything else.
type cronJob struct {
	entry    *cronEntry
	name     string
	tick     int64
	set      storage.Cron // the settings of the entry when the tick was due
	req      Enqueue
	publish  *Publish // in place of req; nil: it is no topic
	err      error
	deferred bool // the round was full
	alone    bool // it has left the round and is a task of its own
}

// cronRound is an off-loop job that makes the messages of due ticks.
type cronRound struct {
	jobs     []*cronJob
	snapshot *Snapshot
	batch    uint64 // committed when the job begins
	limits   Limits
	now      int64
}

// startRound starts a round for the entries that are due, unless one is under way. Skipping
// missed ticks is bounded by skipMax steps in a turn; what is left follows in the next one.
func (c *core) startRound() {
	t := &c.cron
	if t.round != nil || c.now < t.retryAt {
		return
	}
	var round *cronRound
	for steps := 0; steps < skipMax; {
		e, ok := t.due.First()
		if !ok || e.set.NextAt > c.calendar() {
			break
		}
		if n := c.skipMissed(e); n > 0 {
			steps += n
			continue
		}
		if round == nil {
			round = &cronRound{snapshot: c.out.snapshot, batch: c.out.batchNo, limits: c.cfg.Limits, now: c.calendar()}
			round.limits.Headers += 2 // headerCron and headerCronAt
		}
		e.job = &cronJob{entry: e, name: e.name, tick: e.set.NextAt, set: e.set}
		t.arm(e)
		if round.jobs = append(round.jobs, e.job); len(round.jobs) == roundMax {
			break
		}
	}
	if round != nil {
		t.round = round
		c.out.jobs = append(c.out.jobs, round)
	}
}

// skipMissed moves an entry past the missed ticks that its rule gives up, and returns the
// steps that this took: 0 if the next tick is to enqueue a message.
func (c *core) skipMissed(e *cronEntry) int {
	s := &e.set
	limit := c.calendar() - int64(cronGrace) // earlier ticks are missed
	if s.NextAt >= limit {
		s.MadeUp = 0
		return 0
	}
	var to int64
	switch rule := CatchUp(s.CatchUp); {
	case rule == CatchUpAll && s.MadeUp < madeUpMax:
		return 0
	case rule == CatchUpNone:
		to = e.schedule.After(s.NextAt, limit-1)
	default:
		if to = e.schedule.Last(s.NextAt, limit-1); to <= s.NextAt {
			return 0 // the last missed tick
		}
	}
	n := e.schedule.Count(s.NextAt, to, countMax)
	s.Missed += uint64(n)
	c.health.counters.missed += uint64(n)
	s.NextAt = to
	c.putCron(e)
	c.cron.arm(e)
	const search = 64 // steps of the search for the last tick
	return n + search
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
	body, err := store.Get(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, j.name))
	var m storage.Message
	if err == nil {
		err = m.Decode(body)
	}
	if err != nil {
		return fmt.Errorf("read the message: %w", err)
	}
	ms := j.tick / int64(time.Millisecond)
	m.Headers = append(m.Headers, Header{Name: []byte(headerCron), Value: []byte(j.name)},
		Header{Name: []byte(headerCronAt), Value: strconv.AppendInt(nil, ms, 10)})
	j.req = Enqueue{
		Queue: j.set.Queue, Key: j.set.Key, Meta: j.set.Meta, Headers: m.Headers, Payload: m.Payload,
		Priority: priorityOf(&j.set), Delay: time.Duration(j.set.DelayMs) * time.Millisecond,
		TTL:    time.Duration(j.set.TTLMs) * time.Millisecond,
		Charge: chargeOf(&j.set), lenient: true,
	}
	j.req.AddContent(&m.Meta)
	j.req.Replace, j.req.MaxDelay = replaceOf(&j.set)
	now := func() int64 { return r.now }
	if !j.set.Topic {
		return prepare(&j.req, &r.limits, r.snapshot, store, r.batch, now)
	}
	j.publish, j.req = &Publish{Topic: j.set.Queue, Message: j.req, BytesMax: cronPublishMax}, Enqueue{}
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
		switch e := j.entry; {
		case e.job != j: // the entry was changed or deleted since
		case j.set.Replace > 0:
			j.alone = true
			c.run(&Task{Call: j})
			continue
		default:
			e.job = nil
			_ = c.tick(tx, e, j) // it waits for nothing
		}
		c.cron.arm(j.entry)
	}
	return nil
}

// Apply is the task of a tick whose message may replace another one, which may have to be read first.
func (j *cronJob) Apply(tx *Tx) error {
	c, e := tx.core, j.entry
	if c.cron.entries[e.name] != e || e.job != j {
		return nil // it was changed, or a recovery has dropped it: then it is due again
	}
	if err := c.tick(tx, e, j); err != nil {
		return err
	}
	e.job = nil
	c.cron.arm(e)
	return nil
}

// tick enqueues the message of a tick and moves its entry to the next one. A refused
// message counts as a missed tick, with its error. A tick stays due if its job was
// deferred, its limited queue is not counted yet, or nothing new is taken for lack of disk or memory. The
// error is ErrWouldBlock if the task of the tick is parked, and nil otherwise.
func (c *core) tick(tx *Tx, e *cronEntry, j *cronJob) error {
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
	if c.ops.census != nil && c.tickLimited(j) {
		// Whether the queue has room is not known yet. Only this entry waits; if Enqueue
		// waited for the counts, so would the rest of the round.
		e.uncounted = true
		c.cron.uncounted = append(c.cron.uncounted, e)
		return nil
	}
	answered, err := c.tickAnswered(j)
	if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
		return nil // the look-up is too old: the next round repeats it
	}
	if err == nil {
		err = j.enqueue(tx)
		answered = answered || j.alone && j.publish == nil && j.req.record != nil
	}
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
		return err
	case errors.Is(err, ErrMisconf): // the store has failed within this turn
		return nil
	}
	s := &e.set
	switch {
	case err != nil:
		s.Missed++
		c.health.counters.missed++
		s.LastError, s.ErrorAt = errtext.Clip(err.Error(), cronErrorMax), c.calendar()
	case answered:
		s.Skipped++
	default:
		s.Fired++
		c.health.counters.ticked++
		s.LastAt = j.tick
	}
	if j.tick < c.calendar()-int64(cronGrace) {
		s.MadeUp++
	}
	s.NextAt = e.schedule.After(j.tick, j.tick)
	c.putCron(e)
	return nil
}

// tickAnswered reports whether a message that holds the unique id of a tick in its queue answers the tick.
// For a topic, each queue decides by itself, and a tick with REPLACE finds out when it enqueues. The
// error is that of the job, or ErrWouldBlock.
func (c *core) tickAnswered(j *cronJob) (bool, error) {
	q := c.queues.byName[j.req.Queue]
	if j.err != nil || j.publish != nil || j.alone || q == nil {
		return false, j.err
	}
	p, err := c.earlier(q, &j.req)
	return p.known != (ID{}), err
}

// tickLimited reports whether a queue that gets the message of a tick is limited.
func (c *core) tickLimited(j *cronJob) bool {
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

// resumeUncounted arms the entries whose ticks have waited for the census.
func (c *core) resumeUncounted() {
	t := &c.cron
	for _, e := range t.uncounted {
		e.uncounted = false
		t.arm(e)
	}
	t.uncounted = nil
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
	e := c.cron.entries[req.Name]
	if e == nil {
		return nil, fmt.Errorf("%w: there is no recurring message %.80q, FILA.CRON LIST shows those that are set", ErrInvalid, req.Name)
	}
	if tx.atomic {
		return nil, errWaits
	}
	if err := c.writableForNew(); err != nil {
		return nil, err
	}
	r := req.run
	if r == nil || r.epoch != c.epoch || r.jobs[0].entry != e || r.jobs[0].set.SetAt != e.set.SetAt {
		job := &cronJob{entry: e, name: e.name, tick: c.calendar(), set: e.set}
		r = &cronRun{cronRound: cronRound{jobs: []*cronJob{job}, snapshot: c.out.snapshot, batch: c.out.batchNo, limits: c.cfg.Limits, now: c.calendar()}, epoch: c.epoch}
		r.limits.Headers += 2 // headerCron and headerCronAt
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
	return []Published{{e.set.Queue, id}}, nil
}

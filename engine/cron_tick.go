package engine

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/faisca/fila/storage"
)

// What happens at a tick. The message is made beside the loop: what it holds is
// read from the store, and the queue's on_enqueue hook is asked. It comes back as
// a call, which enqueues it as any other and moves the entry on to its next tick:
// one batch, so that a crash finds both or neither. The next tick is the only
// thing that says which ticks are still to come; it never goes back, and so no
// tick comes twice, whatever the clock does.

const (
	// cronGrace is how late a tick may be and still be on time: through a
	// restart or a slow disk each of them makes its message. Those later than
	// that are missed, whatever kept them, and fall under the entry's CatchUp.
	cronGrace = 10 * time.Second
	// madeUpMax is how many missed ticks in a row CatchUpAll makes up for; of
	// those that follow only the last is.
	madeUpMax = 10_000
	// roundMax and roundBytes bound one round beside the loop.
	roundMax   = 64
	roundBytes = 4 << 20
	// countMax bounds how far missed ticks are counted that are passed over at
	// once, and skipMax what one turn does of that.
	countMax = 1000
	skipMax  = 512
	// What a message is told of the tick it is for.
	headerCron   = "fila-cron"
	headerCronAt = "fila-cron-at"
	// cronErrorMax bounds the error kept with an entry.
	cronErrorMax = 512
)

// cronJob is a tick that is due.
type cronJob struct {
	entry    *cronEntry
	name     string
	tick     int64
	set      storage.Cron // as it was when the tick was due
	req      Enqueue
	err      error
	deferred bool // the round was full
}

// cronRound makes the messages of ticks, beside the loop.
type cronRound struct {
	jobs     []*cronJob
	snapshot *Snapshot
	limits   Limits
	now      int64
}

// startRound has the messages of due ticks made, a round at a time.
func (c *core) startRound() {
	t := &c.cron
	if t.round != nil {
		return
	}
	var round *cronRound
	for steps := 0; steps < skipMax; {
		e, ok := t.due.next()
		if !ok || e.set.NextAt > c.now {
			break
		}
		if n := c.skipMissed(e); n > 0 {
			steps += n
			continue
		}
		if round == nil {
			round = &cronRound{snapshot: c.out.snapshot, limits: c.cfg.Limits, now: c.now}
			round.limits.Headers += 2
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

// skipMissed moves an entry past the missed ticks that its rule gives up, and
// returns the steps that took: 0 if its next tick is to make a message.
func (c *core) skipMissed(e *cronEntry) int {
	s := &e.set
	limit := c.now - int64(cronGrace) // a tick before it is missed
	if s.NextAt >= limit {
		s.MadeUp = 0
		return 0
	}
	var to int64
	switch rule := CatchUp(s.CatchUp); { //nolint:gosec // three values
	case rule == CatchUpAll && s.MadeUp < madeUpMax:
		return 0
	case rule == CatchUpNone:
		to = e.schedule.After(s.NextAt, limit-1)
	default:
		if to = e.schedule.Last(s.NextAt, limit-1); to <= s.NextAt {
			return 0 // it is the last one
		}
	}
	n := e.schedule.Count(s.NextAt, to, countMax)
	s.Missed += uint64(n) //nolint:gosec // not negative
	s.NextAt = to
	c.putCron(e)
	c.cron.arm(e)
	const search = 64 // what finding the last one takes
	return n + search
}

// do makes the messages. It touches nothing that the loop may touch.
func (r *cronRound) do(store Store) {
	bytes := 0
	for _, j := range r.jobs {
		if j.deferred = bytes > roundBytes; j.deferred {
			continue
		}
		j.err = j.make(store, r)
		bytes += len(j.req.record)
	}
}

func (j *cronJob) make(store Store, r *cronRound) error {
	body, err := store.Get(storage.State, storage.AppendStateKey(nil, stateCronMessage, j.name))
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
		Queue: j.set.Queue, Key: j.set.Key, Weight: m.Weight, Cost: m.Cost, Throttles: m.Throttles, Headers: m.Headers, Payload: m.Payload,
		Priority: priorityOf(&j.set), Delay: time.Duration(j.set.DelayMs) * time.Millisecond, //nolint:gosec // at most durationMax
		TTL: time.Duration(j.set.TTLMs) * time.Millisecond, //nolint:gosec // at most durationMax
	}
	return prepare(&j.req, &r.limits, r.snapshot, func() int64 { return r.now })
}

// Apply enqueues what was made.
func (r *cronRound) Apply(tx *Tx) error {
	c := tx.core
	if c.cron.round != r {
		return nil // the memory was rebuilt since
	}
	c.cron.round = nil
	for _, j := range r.jobs {
		if e := j.entry; e.job == j { // else it was changed or deleted since
			e.job = nil
			c.tick(tx, e, j)
		}
		c.cron.arm(j.entry)
	}
	return nil
}

// tick enqueues the message of a tick and moves its entry on.
func (c *core) tick(tx *Tx, e *cronEntry, j *cronJob) {
	if j.deferred || c.health.failed != nil {
		return // tried again
	}
	if q := c.queues.byName[j.req.Queue]; q != nil && q.limited() && c.ops.census != nil {
		// Whether there is room is not known yet. The others of the round need not
		// wait for that, as they would if Enqueue did.
		e.uncounted = true
		c.cron.uncounted = append(c.cron.uncounted, e)
		return
	}
	err := j.err
	if err == nil {
		_, err = tx.Enqueue(&j.req)
	}
	if errors.Is(err, ErrMisconf) {
		return
	}
	s := &e.set
	if err != nil {
		text := err.Error()
		s.Missed++
		s.LastError, s.ErrorAt = text[:min(len(text), cronErrorMax)], c.now
	} else {
		s.Fired++
		s.LastAt = j.tick
	}
	if j.tick < c.now-int64(cronGrace) {
		s.MadeUp++
	}
	s.NextAt = e.schedule.After(j.tick, j.tick)
	c.putCron(e)
}

// resumeUncounted has the ticks made that have waited for the end of the census.
func (c *core) resumeUncounted() {
	t := &c.cron
	for _, e := range t.uncounted {
		e.uncounted = false
		t.arm(e)
	}
	t.uncounted = nil
}

package engine

import (
	"time"

	"github.com/faisca/fila/storage"
)

// Time never goes back: leases, delays and times to live keep their duration when the system clock
// is set back, while the broker runs (package loop) and over a restart or a change of leader. For the
// latter the store has the newest time (storage.StateNow), which the next start begins with.
// It is written
//
//   - with a batch that is written anyway, timeStep after the last record, or with each batch where
//     another node may take over (Config.KeepTime);
//   - on its own if no batch has been written for a while and a lease, a delay or a time to live is
//     running: a second after the last record, or later where the first of them has more than a
//     minute to go, so that waiting for days costs some hundreds of records.
//
// So a lease that a restart finds is longer by at most the greater of a second and timeShare of
// what it had left. None of these writes is synced for its own sake.
//
// What is set by the calendar follows the system clock instead: recurring messages, refills of
// budgets, and messages for a time of day. While the system clock is behind, they wait for it.

const (
	// timeStep is the time between two records in batches that are written anyway.
	timeStep = 100 * time.Millisecond
	// timeOwn is the least time before a write of its own, and timeShare the share of what remains
	// until the first timer.
	timeOwn   = time.Second
	timeShare = 64
	// behindMin is the least difference by which the system clock counts as behind.
	behindMin = time.Second
)

// timekeeper is the component that writes the time.
type timekeeper struct {
	kept   int64 // the newest record, in the store or in a batch
	behind int64 // by how much the system clock is behind the time of the engine; 0: at most behindMin
}

// reset keeps both: recoverState reads what is kept.
func (*timekeeper) reset() {}

// next returns when the time is written on its own.
func (t *timekeeper) next(c *core) int64 {
	first := min(c.delayed.index.next(), c.ttl.index.next())
	if m, ok := c.leases.ends.First(); ok {
		first = min(first, m.until)
	}
	if first == never || c.health.full != nil {
		return never
	}
	return t.kept + max(int64(timeOwn), (first-t.kept)/timeShare)
}

func (t *timekeeper) expire(c *core) {
	if t.next(c) <= c.now {
		t.put(c)
	}
}

// put writes the time with the open batch.
func (t *timekeeper) put(c *core) {
	t.kept = c.now
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateNow), storage.EncodeUint(uint64(c.now)))
}

// stamp writes the time with a batch that is about to be cut, if the last record is old enough.
func (t *timekeeper) stamp(c *core) {
	if c.now-t.kept >= int64(timeStep) || c.cfg.KeepTime && t.kept != c.now {
		t.put(c)
	}
}

func (t *timekeeper) check(c *core, bad report) {
	if t.kept > c.now {
		bad(35, "the store has the time %d, and it is %d", t.kept, c.now)
	}
}

// setBehind notes by how much the system clock is behind the time of the next turn.
func (t *timekeeper) setBehind(d time.Duration) {
	if t.behind = 0; d > behindMin {
		t.behind = int64(d)
	}
}

// watchClock notes by how much the system clock is behind the time of the next turn, and logs when it falls behind and
// when it catches up.
func (c *core) watchClock(behind time.Duration) {
	before := time.Duration(c.time.behind)
	c.time.setBehind(behind)
	now := time.Duration(c.time.behind)
	switch {
	case now == 0 && before != 0:
		c.cfg.Log.Info().Msg("the system clock has caught up with the broker")
	case now > before+behindMin || now < before-behindMin:
		c.cfg.Log.Warn().Dur("behind_ms", now).Time("reached", unix(c.now)).
			Msg("the system clock was set back; leases, delays and times to live keep their duration, recurring messages and refills wait for the clock")
	}
}

// calendar returns the time of the turn by the system clock, for what is set by the calendar.
func (c *core) calendar() int64 { return c.now - c.time.behind }

// onCalendar returns the time of the engine at which the system clock reaches a time.
func (c *core) onCalendar(at int64) int64 {
	if at > never-c.time.behind {
		return never
	}
	return at + c.time.behind
}

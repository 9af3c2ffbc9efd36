package engine

import (
	"time"

	"github.com/faisca/fila/engine/clock"
)

// timekeeper is the component that writes the time, see package clock.
type timekeeper struct{ clock.Keeper }

// reset keeps it: recoverState reads what is written.
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
	return t.Own(first)
}

func (t *timekeeper) expire(c *core) {
	if t.next(c) <= c.now {
		t.Put(c.now, c.out.batch)
	}
}

func (t *timekeeper) check(c *core, bad report) {
	if t.Kept() > c.now {
		bad(35, "the store has the time %d, and it is %d", t.Kept(), c.now)
	}
}

// watchClock notes by how much the system clock is behind the time of the next turn, and logs when it falls behind and
// when it catches up.
func (c *core) watchClock(behind time.Duration) {
	switch c.time.SetBehind(behind) {
	case clock.AsBefore:
	case clock.CaughtUp:
		c.cfg.Log.Info().Msg("the system clock has caught up with the broker")
	case clock.SetBack:
		c.cfg.Log.Warn().Dur("behind_ms", c.time.Behind()).Time("reached", unix(c.now)).
			Msg("the system clock was set back; leases, delays and times to live keep their duration, recurring messages and refills wait for the clock")
	}
}

// calendar returns the time of the turn by the system clock, for what is set by the calendar.
func (c *core) calendar() int64 { return c.time.Calendar(c.now) }

// onCalendar returns the time of the engine at which the system clock reaches a time.
func (c *core) onCalendar(at int64) int64 { return c.time.OnCalendar(at) }

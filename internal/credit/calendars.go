package credit

import (
	"sync/atomic"

	"github.com/faisca/fila/internal/schedule"
)

// Ticks name the ticks of a refill: an expression in a time zone.
type Ticks struct{ Expression, TimeZone string }

// Shared is the calendar of all accounts whose refill has the same ticks.
type Shared struct {
	Ticks
	schedule atomic.Pointer[schedule.Schedule]
	accounts int
}

// Schedule returns the ticks. nil: there is no calendar, or the expression or zone cannot be read any
// more, and nothing ticks. Any goroutine may call it.
func (s *Shared) Schedule() *schedule.Schedule {
	if s == nil {
		return nil
	}
	return s.schedule.Load()
}

// Repair gives a calendar that could not be read its ticks.
func (s *Shared) Repair(ticks *schedule.Schedule) { s.schedule.Store(ticks) }

// Calendars shares calendars between accounts, so that a million of them take little memory and
// few expressions are parsed. A calendar exists while an account has it. The zero value is empty.
type Calendars struct{ byTicks map[Ticks]*Shared }

// Take returns the calendar of some ticks for one more account. parse is called if no account
// has it yet; it may return nil.
func (c *Calendars) Take(t Ticks, parse func() *schedule.Schedule) *Shared {
	s := c.byTicks[t]
	if s == nil {
		if c.byTicks == nil {
			c.byTicks = map[Ticks]*Shared{}
		}
		s = &Shared{Ticks: t}
		s.schedule.Store(parse())
		c.byTicks[t] = s
	}
	s.accounts++
	return s
}

// Return ends the use of a calendar by an account; nil is none.
func (c *Calendars) Return(s *Shared) {
	if s == nil {
		return
	}
	if s.accounts--; s.accounts == 0 {
		delete(c.byTicks, s.Ticks)
	}
}

// Taken returns how many accounts have a calendar, and how many calendars there are.
func (c *Calendars) Taken() (accounts, calendars int) {
	for _, s := range c.byTicks {
		accounts += s.accounts
	}
	return accounts, len(c.byTicks)
}

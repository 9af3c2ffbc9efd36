package loop

import "time"

// wallNanos is the time of the system clock in Unix nanoseconds. It is read on connections, outside of turns.
func wallNanos() int64 { return time.Now().UnixNano() }

// clock is the time of turns: the system clock at the start, or the newest time in the store
// if that is later, advanced by the monotonic clock.
// It follows the system clock forward by steps of more than a second (a suspended machine, a
// late NTP step), but never backward, so no lease that has expired becomes valid again.
type clock struct {
	start  time.Time     // has a monotonic reading
	offset time.Duration // sum of the steps of the system clock that were followed
	behind time.Duration // by how much the system clock was behind at the last reading; below 0: it was ahead
}

// newClock returns a clock that begins at the system clock's time or at least, whichever is later.
func newClock(least time.Time) *clock {
	now := time.Now()
	return &clock{start: now, offset: max(least.Sub(now.Round(0)), 0)}
}

// now returns the current time for a turn.
func (c *clock) now() time.Time {
	const step = time.Second
	t := time.Now()
	elapsed := t.Sub(c.start)
	at := c.start.Add(elapsed + c.offset)
	c.behind = at.Round(0).Sub(t.Round(0))
	if ahead := -c.behind; ahead > step {
		c.offset += ahead
		at = at.Add(ahead)
		c.behind = 0
	}
	return at
}

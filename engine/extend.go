package engine

import (
	"fmt"
	"time"
)

// Extend lets a lease end d from now, at least a millisecond, and returns when.
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
	m.until = c.now + int64(d)
	m.restored = false // it is held by someone who is there
	c.leases.ends.fix(m)
	if m.writes > 0 { // otherwise the lag writes the new end, or never has to
		c.writeLease(m)
	}
	return time.Unix(0, m.until), nil
}

package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/settings"
)

// holdTable is the component of throttle keys that are held (dispatch.Order.Hold).
type holdTable struct{ settings.Holds }

func (s *holdTable) reset() { *s = holdTable{} }

// next is the end of the first hold.
func (s *holdTable) next(*core) int64 {
	if _, until, ok := s.First(); ok {
		return until
	}
	return never
}

// expire ends the holds that are over.
func (s *holdTable) expire(c *core) {
	for c.room() {
		key, until, ok := s.First()
		if !ok || until > c.now {
			return
		}
		c.spend(1)
		s.End(key, c.out.batch)
		c.order.Release(key)
	}
}

// check verifies that each hold has an end (40).
func (s *holdTable) check(c *core, bad report) {
	if err := s.Check(c.cfg.Limits.Holds); err != nil {
		bad(40, "%v", err)
	}
}

// Hold has no message be delivered that names a throttle key, for that long from now, whether the key has limits or not. Of two
// holds of a key the later end counts; a time of 0 ends the hold. Where there are Limits.Holds of other keys, the one of
// these that ends first ends now. The hold is durable when the reply leaves.
//
// Errors: ErrMisconf, ErrInvalid for a pattern or a time above ten years or below 0, ErrTooBig for a long key.
func (tx *Tx) Hold(key string, d time.Duration) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.checkHold(key, d); err != nil {
		return err
	}
	c.holdKey(key, d)
	return nil
}

// checkHold returns ErrInvalid or ErrTooBig for a hold that cannot be.
func (c *core) checkHold(key string, d time.Duration) error {
	if err := c.cfg.Limits.CheckThrottleKey(key); err != nil {
		return err
	}
	if dispatch.IsPattern(key) {
		return fmt.Errorf("%w: %.80q is a pattern, hold the throttle keys that it covers", ErrInvalid, key)
	}
	if d < 0 || d > durationMax {
		return fmt.Errorf("%w: a hold is at most %d ms", ErrInvalid, durationMax.Milliseconds())
	}
	return nil
}

// holdKey begins or ends a hold that checkHold has found valid.
func (c *core) holdKey(key string, d time.Duration) {
	b := c.out.batch
	if d == 0 {
		if c.holds.End(key, b) {
			c.out.sync = true
			c.order.Release(key)
		}
		return
	}
	until, over, held := c.holds.Hold(key, c.now, d, c.cfg.Limits.Holds, b)
	if over != "" {
		c.order.Release(over)
	}
	if held {
		c.out.sync = true
		c.order.Hold(key, until)
	}
}

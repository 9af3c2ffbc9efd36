package engine

import (
	"cmp"
	"fmt"
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// holdTable are the throttle keys that are held: no message that names one is delivered before a time (dispatch.Order.Hold).
// A hold is a record until it is over. It is written with what has asked for it, and deleted in the turn that ends it; one
// that a crash has left behind ends with the first turn.
type holdTable struct {
	byKey map[string]*hold
	ends  intrusive.Heap[*hold]
}

type hold struct {
	key   string
	until int64 // Unix nanoseconds
	at    int   // index in holdTable.ends
}

func (h *hold) Before(o *hold) bool {
	return cmp.Or(cmp.Compare(h.until, o.until), cmp.Compare(h.key, o.key)) < 0
}
func (h *hold) Index() *int { return &h.at }

func (s *holdTable) reset() { *s = holdTable{byKey: map[string]*hold{}} }

// next is the end of the first hold.
func (s *holdTable) next(*core) int64 {
	if h, ok := s.ends.First(); ok {
		return h.until
	}
	return never
}

// expire ends the holds that are over.
func (s *holdTable) expire(c *core) {
	for c.room() {
		h, ok := s.ends.First()
		if !ok || h.until > c.now {
			return
		}
		c.spend(1)
		c.endHold(h)
	}
}

// check verifies that each hold has an end (40).
func (s *holdTable) check(c *core, bad report) {
	if s.ends.Len() != len(s.byKey) || len(s.byKey) > c.cfg.Limits.Holds {
		bad(40, "%d holds, %d of them end", len(s.byKey), s.ends.Len())
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

// holdKey begins or ends a hold that checkHold has found valid. It ends with a whole millisecond, as clients are shown.
func (c *core) holdKey(key string, d time.Duration) {
	s := &c.holds
	h, until := s.byKey[key], unix(c.now+int64(d)+int64(time.Millisecond)-1).Truncate(time.Millisecond).UnixNano()
	switch {
	case d == 0 && h != nil:
		c.out.sync = true
		c.endHold(h)
		return
	case d == 0, h != nil && h.until >= until:
		return
	case h == nil:
		if first, _ := s.ends.First(); len(s.byKey) >= c.cfg.Limits.Holds {
			c.endHold(first)
		}
		h = &hold{key: key, until: until}
		s.add(h)
	default:
		h.until = until
		s.ends.Fix(h)
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateHold, key), storage.EncodeUint(uint64(until)))
	c.out.sync = true
	c.order.Hold(key, until)
}

// add adds a hold to the table.
func (s *holdTable) add(h *hold) {
	s.byKey[h.key] = h
	s.ends.Push(h)
}

// endHold ends a hold and deletes its record.
func (c *core) endHold(h *hold) {
	c.holds.ends.Remove(h)
	delete(c.holds.byKey, h.key)
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateHold, h.key))
	c.order.Release(h.key)
}

// recoverHolds reads the holds, also those that were over before.
func (c *core) recoverHolds() error {
	return c.scan(storage.State, storage.AppendStateKey(nil, storage.StateHold), func(k, v []byte) error {
		parts, err := storage.ParseStateKey(k)
		if err != nil || len(parts) != 2 {
			return fmt.Errorf("hold %q: %w", k, storage.ErrCorrupt)
		}
		until, err := storage.DecodeUint(v)
		if err != nil {
			return fmt.Errorf("hold of %q: %w", parts[1], err)
		}
		c.holds.add(&hold{key: parts[1], until: int64(until)})
		c.order.Hold(parts[1], int64(until))
		return nil
	})
}

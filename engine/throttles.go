package engine

import (
	"time"

	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/plan"
	"github.com/faisca/fila/internal/throttleset"
	"github.com/faisca/fila/storage"
)

// ThrottleOptions are the settings of a throttle.
type ThrottleOptions = throttleset.Options

// SetThrottle sets what a throttle key allows. It replaces an earlier setting as a whole and
// takes effect immediately, for the backlog and for waiting consumers. A new bucket is full, and
// so is one for which a token means something else, since ByCost has changed; another one
// retains its tokens up to the new Burst, or its debt. Leases that name the key already count
// toward Concurrency, and may exceed it until they end. A throttle that was adaptive and still is
// keeps its limit, within the new bounds. The setting is durable when the reply leaves.
//
// A key that ends in * is a pattern: each throttle key that begins with what precedes the * and has no setting of its
// own has a throttle of its own with these limits, by the pattern with the longest prefix.
//
// Errors: ErrMisconf, ErrInvalid, ErrTooBig.
func (tx *Tx) SetThrottle(key string, o ThrottleOptions) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.cfg.Limits.CheckThrottleKey(key); err != nil {
		return err
	}
	set, err := plan.Setting(&o)
	if err != nil {
		return err
	}
	if units := c.order.Units(key, dispatch.Limits(set)); units > 0 {
		if err := tx.afford(units); err != nil {
			return err
		}
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateThrottle, key), set.Append(nil))
	c.out.sync = true
	if c.order.SetThrottle(key, dispatch.Limits(set)) {
		c.reclassifyAll()
	}
	c.history.FollowThrottle(key, false, c.now)
	return nil
}

// DeleteThrottle deletes the setting of a throttle key, which then has the limits of a pattern or none, or a pattern, and
// reports whether there was one. The error is ErrMisconf while the store takes no writes.
func (tx *Tx) DeleteThrottle(key string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	if !c.order.DropThrottle(key) {
		return false, nil
	}
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateThrottle, key))
	c.out.sync = true
	c.reclassifyAll()
	return true, nil
}

// ThrottleInfo describes a throttle at one moment.
type ThrottleInfo = dispatch.ThrottleInfo

// Blocker is a throttle that does not admit the next message of a key now.
type Blocker = dispatch.Blocker

// Throttle describes the throttle of a key, or a pattern. ok is false if nothing limits the key.
func (tx *Tx) Throttle(key string) (info ThrottleInfo, ok bool) { return tx.core.order.Throttle(key) }

// Throttles returns a page of the settings and patterns whose names match, in the order of creation, and with
// instances after them the throttles in memory that have the limits of a pattern. It
// looks at count throttles at most, and returns the cursor of the next page, 0 at the end; the
// first page has cursor 0. A throttle that exists throughout a listing is listed exactly once.
func (tx *Tx) Throttles(cursor uint64, count int, instances bool, match func(string) bool) (next uint64, list []ThrottleInfo) {
	return tx.core.order.ListThrottles(cursor, count, instances, match)
}

// WalkInstances shows up to count throttles in memory that have the limits of patterns, with their deliveries and the time
// that keys have waited for them, and returns the cursor of the next ones, 0 at the end. The first cursor is 0.
func (tx *Tx) WalkInstances(cursor uint64, count int, see func(name string, admitted uint64, waited time.Duration)) (next uint64) {
	return tx.core.order.WalkInstances(cursor, count, see)
}

// ThrottleHistory is History of a throttle, or of a pattern with all its throttles, of the last hour at most. One that had none
// is followed from now on, and for some minutes at least. The error is ErrTooBig.
func (tx *Tx) ThrottleHistory(name string, last time.Duration) ([]ThrottleMoment, error) {
	c := tx.core
	if err := c.cfg.Limits.CheckThrottleKey(name); err != nil {
		return nil, err
	}
	c.history.FollowThrottle(name, true, c.now)
	return c.history.OfThrottle(name, steps(last)), nil
}

// blockers returns the throttles that do not admit a message now, in the order of its throttle keys.
func (c *core) blockers(m *message) []Blocker {
	return c.order.Blockers(&m.key.Key, m.throttles.of(), m.cost)
}

// failed tells the adaptive throttles of a leased message that its work has failed. A message that
// is dead for another reason than its attempts was wrong itself, which says nothing about them.
func (c *core) failed(m *message, dead bool, reason string) {
	if dead && reason != reasonAttempts {
		return
	}
	c.order.Failed(m.throttles.of(), c.leasedAt(m))
}

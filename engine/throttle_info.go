package engine

import "time"

// ThrottleInfo describes a throttle at one moment. Counters begin at zero when the throttle is
// created in memory: by SetThrottle or at a start.
type ThrottleInfo struct {
	Key                string
	Rate               float64       // tokens per second; 0: not limited
	Burst, Concurrency uint64        // capacity of the bucket, live leases; 0: not limited
	ByCost             bool          // a delivery takes the cost of its message in tokens, else one
	Tokens             float64       // in the bucket now; below 0: the debt of a message that took more than Burst
	InUse              int64         // live leases that name the key
	Waiting            int64         // fairness keys, not paused, whose next message it does not admit now
	Admitted, Refused  uint64        // deliveries that it admitted; times that it stopped a class of keys
	Waited             time.Duration // sum over keys
	NextAt             time.Time     // when the bucket will suffice for the message that is next, if keys wait for tokens; else zero
	Min                uint64        // the least that an adaptive throttle allows; 0: it is not adaptive
	Limit              float64       // what it allows now: the whole part is live leases; 0: it is not adaptive
	Cuts               uint64        // failures that have cut Limit
}

// pausedKeys returns how many of the keys in the line of a throttle are of paused queues, in time
// proportional to the number of those or of the queues in the line, whichever is less. Paused keys
// are in no class and not in the line.
func (c *core) pausedKeys(t *throttle) (n int64) {
	if len(t.entries) < len(c.queues.pausedOut) {
		for q, e := range t.entries {
			if q.set.PausedOut {
				n += e.keys
			}
		}
		return n
	}
	for q := range c.queues.pausedOut {
		if e := t.entries[q]; e != nil {
			n += e.keys
		}
	}
	return n
}

// throttleInfo describes a throttle, see pausedKeys for its time.
func (c *core) throttleInfo(t *throttle) ThrottleInfo {
	now := c.now
	t.countWaiting(now, 0)
	i := ThrottleInfo{
		Key: t.name, Rate: t.set.Rate, Burst: t.set.Burst, Concurrency: t.set.Concurrency, ByCost: t.set.ByCost,
		Tokens: t.level(now), InUse: t.inUse, Admitted: t.admitted, Refused: t.refused, Waited: time.Duration(t.waited),
	}
	if l := t.adaptive; l != nil {
		i.Min, i.Limit, i.Cuts = t.set.AdaptiveMin, l.Value(), l.Cuts()
	}
	if i.Tokens > -tokenSlack {
		i.Tokens = max(i.Tokens, 0)
	}
	next := t.nextNeed()
	if !t.admits(now, next) {
		i.Waiting = t.keys - c.pausedKeys(t)
	}
	if i.Waiting > 0 && !t.holds(now, t.required(next)) {
		i.NextAt = time.Unix(0, t.holdsAt(now, t.required(next)+t.reserved))
	}
	return i
}

// Throttle describes the throttle of a key. ok is false if the key has no setting.
func (tx *Tx) Throttle(key string) (info ThrottleInfo, ok bool) {
	t := tx.core.throttles.byName[key]
	if t == nil {
		return ThrottleInfo{}, false
	}
	return tx.core.throttleInfo(t), true
}

// Throttles returns a page of the throttles whose keys match, in the order of creation. It
// looks at count throttles at most, and returns the cursor of the next page, 0 at the end; the
// first page has cursor 0. A throttle that exists throughout a listing is listed exactly once.
func (tx *Tx) Throttles(cursor uint64, count int, match func(string) bool) (next uint64, list []ThrottleInfo) {
	next = tx.core.throttles.list.Walk(cursor, count, func(t *throttle) {
		if match(t.name) {
			list = append(list, tx.core.throttleInfo(t))
		}
	})
	return next, list
}

package engine

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/faisca/fila/storage"
)

// throttle limits the messages that name its key, in whatever queue: by a token
// bucket, by the leases that are in use, or by both. It exists in memory if it has
// a setting; a throttle key without one limits nothing. admission.go says which class
// of messages it admits next.
type throttle struct {
	name string
	seq  uint64 // place in lists
	set  storage.Throttle

	tokens float64 // in the bucket at at
	at     int64
	inUse  int64 // leases of messages that name it

	entries     map[*queue]*entry // of the queues whose keys name it
	line        timers[*entry]    // those that have classes waiting, by turn
	vtime       float64           // start tag of the turn that was taken last
	claims      []*class          // by their numbers
	reservedFor *class            // a place or token is kept for it
	notified    bool              // in core.notified
	wakeAt      int64             // when the next token comes that something waits for
	timer       int               // index in core.tokens, -1: not in it

	freedAt int64   // when a place became free last
	gap     float64 // a running mean of the nanoseconds between two such times

	keys              int64 // whose next message names it
	waiting           int64 // of those, the ones in classes that wait here
	countedAt         int64 // up to when waited counts them
	admitted, refused uint64
	waited            int64 // nanoseconds that keys have waited
}

func (t *throttle) before(o *throttle) bool { return t.wakeAt < o.wakeAt }
func (t *throttle) index() *int             { return &t.timer }

// tokenSlack lets a bucket admit that misses a token by no more than rounding.
const tokenSlack = 1e-9

// level is how many tokens the bucket holds. It is worked out from the last change, so
// that looking often at a slow bucket adds no rounding.
func (t *throttle) level(now int64) float64 {
	if t.at == now {
		return t.tokens // as for most messages of a turn
	}
	return min(float64(t.set.Burst), t.tokens+float64(now-t.at)*t.set.Rate/1e9)
}

// kept is how many places and tokens are kept for a claim: 1 or 0.
func (t *throttle) reservedRoom() int64 {
	if t.reservedFor != nil {
		return 1
	}
	return 0
}

// room is how many messages may be delivered now, beside what is kept for a claim.
func (t *throttle) room(now int64) int64 { return t.roomWithReserved(now, t.reservedRoom()) }

// roomWithReserved is how many messages may be delivered if so much is kept.
func (t *throttle) roomWithReserved(now, kept int64) int64 {
	n := int64(math.MaxInt64)
	if t.set.Rate > 0 {
		n = int64(t.level(now)+tokenSlack) - kept
	}
	if t.set.Concurrency > 0 {
		n = min(n, int64(t.set.Concurrency)-t.inUse-kept) //nolint:gosec // bounded when it is set
	}
	return n
}

// interval is how many nanoseconds pass between two times at which the throttle gets room.
func (t *throttle) interval() float64 {
	if t.set.Rate > 0 {
		return max(1e9/t.set.Rate, t.gap*float64(min(t.set.Concurrency, 1)))
	}
	return t.gap
}

// reserveFor is for how many nanoseconds its room is worth keeping. A token that is kept
// leaves its bucket no room for the next one.
func (t *throttle) reserveFor() float64 {
	if t.set.Rate > 0 {
		return 0.8 * t.interval()
	}
	return 4 * t.interval()
}

// placesFull says that a lease has to end before it has room.
func (t *throttle) placesFull() bool {
	return t.set.Concurrency > 0 && t.inUse >= int64(t.set.Concurrency) //nolint:gosec // bounded when it is set
}

// wait is how many nanoseconds it takes until it gets room, as far as is known: a lease
// that has lasted for long may last as long again.
func (t *throttle) wait(now int64) float64 {
	switch {
	case t.placesFull():
		return max(t.gap, float64(now-t.freedAt))
	case t.set.Rate > 0:
		return float64(t.nextToken(now) - now)
	default:
		return 0
	}
}

// consume takes a token and a place of each throttle of a message that is delivered:
// they have just admitted it, and its lease follows.
func (c *core) consume(m *message) {
	ts := c.throttlesOf(m)
	for _, t := range ts {
		t.admitted++
		t.inUse++
		if t.set.Rate > 0 {
			t.tokens, t.at = t.level(c.now)-1, c.now
		}
	}
	m.key.stats.admitted += uint64(len(ts))
}

// refund gives the tokens back of a message that did not go out after all.
func (c *core) refund(m *message) {
	for _, t := range c.throttlesOf(m) {
		if t.set.Rate > 0 {
			t.tokens, t.at = min(t.level(c.now)+1, float64(t.set.Burst)), c.now
			c.notify(t)
		}
	}
}

// countInUse counts a lease that is there already, as after a restart; consume, and
// useUnset for the keys without a setting, count those that begin. endUse is the end of all.
func (c *core) countInUse(m *message) {
	for _, t := range c.throttlesOf(m) {
		t.inUse++
	}
	c.useUnset(m)
}

func (c *core) endUse(m *message) {
	const newest = 0.1 // part of the newest value in a running mean
	for _, t := range c.throttlesOf(m) {
		t.inUse--
		t.gap += newest * (float64(c.now-t.freedAt) - t.gap)
		t.freedAt = c.now
		if t.set.Concurrency > 0 {
			c.notify(t)
		}
	}
	c.endUnset(m)
}

// count brings up to date for how long keys have waited, before their number changes.
func (t *throttle) countWaiting(now, change int64) {
	t.waited += t.waiting * (now - t.countedAt)
	t.waiting, t.countedAt = t.waiting+change, now
}

// ThrottleOptions are what a throttle is set to; nil: not limited by that.
type ThrottleOptions struct {
	Rate        *float64 // messages a second, from rateMin to rateMax
	Burst       *uint64  // tokens a bucket holds, at least 1; nil: a second's worth
	Concurrency *uint64  // leases held at a time, at least 1
}

const (
	rateMax        = 1e9
	rateMin        = 1e-9 // a token in 31 years
	burstMax       = 1_000_000_000
	concurrencyMax = 1_000_000_000
)

// plain writes a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func (o *ThrottleOptions) setting() (storage.Throttle, error) {
	var set storage.Throttle
	if o.Rate == nil && o.Concurrency == nil {
		return set, fmt.Errorf("%w: a throttle needs RATE or CONCURRENCY; FILA.THROTTLE DEL takes it away", ErrInvalid)
	}
	if r := o.Rate; r != nil {
		if !(*r >= rateMin && *r <= rateMax) { // NaN is neither
			return set, fmt.Errorf("%w: RATE must be from %s to %s a second", ErrInvalid, plain(rateMin), plain(rateMax))
		}
		set.Rate = *r
		set.Burst = uint64(max(1, math.Ceil(*r)))
	}
	if b := o.Burst; b != nil {
		if o.Rate == nil {
			return set, fmt.Errorf("%w: BURST needs RATE", ErrInvalid)
		}
		if *b < 1 || *b > burstMax {
			return set, fmt.Errorf("%w: BURST must be from 1 to %d", ErrInvalid, uint64(burstMax))
		}
		set.Burst = *b
	}
	if n := o.Concurrency; n != nil {
		if *n < 1 || *n > concurrencyMax {
			return set, fmt.Errorf("%w: CONCURRENCY must be from 1 to %d", ErrInvalid, uint64(concurrencyMax))
		}
		set.Concurrency = *n
	}
	return set, nil
}

// SetThrottle sets what a throttle key allows, in place of what was set before.
// It acts at once: on the backlog, and on those who wait. A new bucket is full,
// an existing one keeps its tokens.
func (tx *Tx) SetThrottle(key string, o ThrottleOptions) error {
	c := tx.core
	if err := c.writable(); err != nil {
		return err
	}
	if err := c.checkThrottleKey(key); err != nil {
		return err
	}
	set, err := o.setting()
	if err != nil {
		return err
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, stateThrottle, key), set.Append(nil))
	c.out.sync = true
	t := c.throttles.byName[key]
	if t == nil {
		t = c.addThrottle(key, set)
		t.inUse = c.takeUnset(key)
		c.reclassifyAll()
		return nil
	}
	tokens := t.level(c.now)
	if t.set.Rate == 0 {
		tokens = float64(set.Burst)
	}
	t.set = set
	t.tokens, t.at = min(tokens, float64(set.Burst)), c.now
	c.notify(t)
	return nil
}

func (c *core) addThrottle(key string, set storage.Throttle) *throttle {
	t := &throttle{name: key, set: set, tokens: float64(set.Burst), at: c.now, entries: map[*queue]*entry{}, countedAt: c.now, freedAt: c.now, timer: -1}
	c.throttles.byName[key] = t
	c.throttles.version++
	t.seq = c.throttles.list.add(t)
	return t
}

func (c *core) checkThrottleKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: a throttle key has at least one byte", ErrInvalid)
	}
	if len(key) > c.cfg.Limits.Throttle {
		return fmt.Errorf("%w: throttle key of %d bytes, the limit is %d", ErrTooBig, len(key), c.cfg.Limits.Throttle)
	}
	return nil
}

// DeleteThrottle takes a throttle's setting away: it limits nothing any more. It
// reports whether there was one.
func (tx *Tx) DeleteThrottle(key string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	t := c.throttles.byName[key]
	if t == nil {
		return false, nil
	}
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, stateThrottle, key))
	c.out.sync = true
	delete(c.throttles.byName, key)
	c.throttles.version++
	c.throttles.list.remove(t.seq)
	c.leaveUnset(t)
	t.set = storage.Throttle{} // it has room for whatever waits for it, one class after the other
	c.disarm(t)
	c.notify(t)
	c.reclassifyAll()
	return true, nil
}

// ThrottleInfo describes a throttle.
type ThrottleInfo struct {
	Key                string
	Rate               float64 // 0: not limited
	Burst, Concurrency uint64  // 0: not limited
	Tokens             float64 // in the bucket now
	InUse              int64   // leases that count towards Concurrency
	Waiting            int64   // fairness keys that may deliver, and whose next message it does not admit now
	Admitted, Refused  uint64  // messages let pass; keys sent to wait
	Waited             time.Duration
	NextAt             time.Time // the next token while keys wait; else zero
}

func (c *core) throttleInfo(t *throttle) ThrottleInfo {
	now := c.now
	t.countWaiting(now, 0)
	i := ThrottleInfo{
		Key: t.name, Rate: t.set.Rate, Burst: t.set.Burst, Concurrency: t.set.Concurrency, Tokens: max(t.level(now), 0), InUse: t.inUse,
		Admitted: t.admitted, Refused: t.refused, Waited: time.Duration(t.waited),
	}
	if t.room(now) < 1 {
		i.Waiting = t.keys
		for q := range c.queues.pausedOut { // keys that are paused themselves are in no class
			if e := t.entries[q]; e != nil {
				i.Waiting -= e.keys
			}
		}
	}
	if i.Waiting > 0 && t.set.Rate > 0 && t.level(now)+tokenSlack < 1 {
		i.NextAt = time.Unix(0, t.nextToken(now))
	}
	return i
}

// Throttle describes a throttle; ok is false if the key has no setting.
func (tx *Tx) Throttle(key string) (info ThrottleInfo, ok bool) {
	t := tx.core.throttles.byName[key]
	if t == nil {
		return ThrottleInfo{}, false
	}
	return tx.core.throttleInfo(t), true
}

// Throttles lists throttles from a cursor on, at most count. The next cursor is 0
// at the end. One that exists throughout a listing is listed exactly once.
func (tx *Tx) Throttles(cursor uint64, count int, match func(string) bool) (next uint64, list []ThrottleInfo) {
	next = tx.core.throttles.list.walk(cursor, count, func(t *throttle) {
		if match(t.name) {
			list = append(list, tx.core.throttleInfo(t))
		}
	})
	return next, list
}

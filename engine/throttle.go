package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faisca/fila/storage"
)

// throttle limits the messages that name its key, in whatever queue: by a token
// bucket, by the leases that are held, or by both. It exists in memory if it has
// a setting; a throttle key without one limits nothing.
//
// A fairness key whose next message a throttle does not let pass leaves its ring
// and stands in the throttle's line. From there it is woken when there is
// something to be had: by a timer (tokens) or by an event (a lease ended, the
// setting changed). As many are woken as may pass, and no more, so that neither
// a thousand keys run for one token nor a token is left while keys wait.
type throttle struct {
	name string
	seq  uint64 // place in lists
	set  storage.Throttle

	tokens float64 // as of at
	at     int64
	held   int64 // leases of messages that name it

	line   line
	woken  int64 // keys that were woken and have not had their turn since
	wakeAt int64 // when the next token is there for one who waits
	timer  int   // index in core.tokens, -1: not in it

	passed, refused uint64
	waited          int64 // nanoseconds that keys have spent in the line
}

func (t *throttle) before(o *throttle) bool { return t.wakeAt < o.wakeAt }
func (t *throttle) index() *int             { return &t.timer }

// tokenSlack lets a bucket pass that misses a token by no more than rounding.
const tokenSlack = 1e-9

// refill brings the bucket up to date.
func (t *throttle) refill(now int64) {
	if t.at == now {
		return // as for most messages of a turn
	}
	if t.set.Rate > 0 {
		t.tokens = min(float64(t.set.Burst), t.tokens+float64(now-t.at)*t.set.Rate/1e9)
	}
	t.at = now
}

// room is how many messages may pass now.
func (t *throttle) room(now int64) int64 {
	n := int64(math.MaxInt64)
	if t.set.Rate > 0 {
		t.refill(now)
		n = int64(t.tokens + tokenSlack)
	}
	if t.set.Concurrency > 0 {
		n = min(n, int64(t.set.Concurrency)-t.held) //nolint:gosec // bounded when it is set
	}
	return n
}

// limits are the throttle keys of a message. Messages of a fairness key that have the
// same ones share them, so that the throttles need not be looked up for each.
type limits struct {
	names   []string
	set     []*throttle // those of them that have a setting
	version uint64      // of core.throttles, for which that holds
}

// newLimits returns nil for no keys.
func newLimits(names []string) *limits {
	if len(names) == 0 {
		return nil
	}
	return &limits{names: names}
}

// limit returns the limits with these keys, the same ones as long as the key's
// messages have the same.
func (k *fairKey) limit(names []string) *limits {
	if len(names) == 0 {
		return nil
	}
	if k.limits == nil || !slices.Equal(k.limits.names, names) {
		k.limits = newLimits(names)
	}
	return k.limits
}

// throttleKeys are those of a message.
func (m *message) throttleKeys() []string {
	return m.limits.keys()
}

func (l *limits) keys() []string {
	if l == nil {
		return nil
	}
	return l.names
}

// throttlesOf returns the throttles that hold for a message, in the order of its keys.
func (c *core) throttlesOf(m *message) []*throttle {
	l := m.limits
	if l == nil {
		return nil
	}
	if l.version != c.throttleVersion {
		l.version, l.set = c.throttleVersion, nil
		for _, name := range l.names {
			if t := c.throttles[name]; t != nil {
				l.set = append(l.set, t)
			}
		}
	}
	return l.set
}

// blocking returns the first throttle that does not let a message pass, or nil.
func (c *core) blocking(m *message) *throttle {
	for _, t := range c.throttlesOf(m) {
		if t.room(c.now) < 1 {
			return t
		}
	}
	return nil
}

// pass takes a token and a place of each throttle of a message that really goes
// out: blocking has just let it, and its lease follows.
func (c *core) pass(m *message) {
	ts := c.throttlesOf(m)
	for _, t := range ts {
		t.passed++
		t.held++
		if t.set.Rate > 0 {
			t.tokens--
		}
	}
	m.key.stats.passed += uint64(len(ts))
}

// refund gives the tokens back of a message that did not go out after all.
func (c *core) refund(m *message) {
	for _, t := range c.throttlesOf(m) {
		if t.set.Rate > 0 {
			t.refill(c.now)
			t.tokens = min(t.tokens+1, float64(t.set.Burst))
			c.wake(t)
		}
	}
}

// hold counts a lease that is there already, as after a restart; pass counts those
// that begin. unhold is the end of both.
func (c *core) hold(m *message) {
	for _, t := range c.throttlesOf(m) {
		t.held++
	}
}

func (c *core) unhold(m *message) {
	for _, t := range c.throttlesOf(m) {
		t.held--
		if t.set.Concurrency > 0 && t.line.first != nil {
			c.wake(t)
		}
	}
}

// block takes a key out of its ring and puts it into the throttle's line: at the
// head if it was in the middle of its turn (its credit is not spent, and the
// others had theirs), behind those if it was woken for nothing, else at the end.
func (c *core) block(k *fairKey, t *throttle, midTurn bool) {
	t.refused++
	k.stats.refused++
	woken := k.wokenBy != nil
	k.queue.ring.leave(k)
	k.blockedBy, k.blockedHead, k.blockedSince, k.midTurn = t, k.window[0], c.now, midTurn
	switch {
	case midTurn:
		t.line.pushFront(k)
	case woken:
		t.line.pushAfterMidTurn(k)
	default:
		t.line.pushBack(k)
	}
	c.resolve(k)
	c.arm(t)
}

// unblock takes a key out of the line it stands in. settle must follow.
func (c *core) unblock(k *fairKey) {
	t := k.blockedBy
	if t == nil {
		return
	}
	t.line.remove(k)
	waited := c.now - k.blockedSince
	if k.emptied() {
		waited = k.queue.emptiedAt - k.blockedSince
	}
	t.waited += waited
	k.stats.waited += waited
	k.blockedBy, k.blockedHead = nil, nil
}

// resolve notes that a woken key has had its turn, or will not have it.
func (c *core) resolve(k *fairKey) {
	if t := k.wokenBy; t != nil {
		k.wokenBy = nil
		t.woken--
		c.wake(t)
	}
}

// wake lets as many keys of the line go on as may pass.
func (c *core) wake(t *throttle) {
	for t.line.first != nil && t.woken < t.room(c.now) {
		k := t.line.first
		if k.emptied() {
			if c.swept >= c.sweepMax {
				break // sweep comes to it, and wakes who is behind it
			}
			c.swept++
			c.unblock(k)
			continue
		}
		c.unblock(k)
		if !k.queue.set.PausedOut { // its turn would not come, and others could use the place
			k.wokenBy = t
			t.woken++
		}
		c.settle(k)
	}
	c.arm(t)
}

// arm sets the timer for the next token that somebody waits for.
func (c *core) arm(t *throttle) {
	if t.line.first == nil || t.set.Rate == 0 {
		c.disarm(t)
		return
	}
	t.refill(c.now)
	missing := float64(t.woken) + 1 - t.tokens - tokenSlack
	most := int64(t.set.Burst) //nolint:gosec // bounded when it is set
	if t.set.Concurrency > 0 {
		most = min(most, int64(t.set.Concurrency)-t.held) //nolint:gosec // bounded when it is set
	}
	if t.woken >= most {
		c.disarm(t) // something else must come first: a woken key's turn, or the end of a lease
		return
	}
	wait := int64(math.Ceil(max(missing, 0) * 1e9 / t.set.Rate))
	t.wakeAt = c.now + min(max(wait, 1), int64(durationMax))
	if t.timer < 0 {
		c.tokens.push(t)
	} else {
		c.tokens.fix(t)
	}
}

func (c *core) disarm(t *throttle) {
	if t.timer >= 0 {
		c.tokens.remove(t)
	}
}

// wakeDue wakes those whose tokens have come.
func (c *core) wakeDue() {
	for {
		t, ok := c.tokens.next()
		if !ok || t.wakeAt > c.now {
			return
		}
		c.disarm(t)
		c.wake(t)
	}
}

// line is who waits for a throttle, in order.
type line struct {
	first, last *fairKey
	n           int64
}

func (l *line) insert(k, before *fairKey) {
	after := l.last
	if before != nil {
		after = before.linePrev
	}
	k.linePrev, k.lineNext = after, before
	if after != nil {
		after.lineNext = k
	} else {
		l.first = k
	}
	if before != nil {
		before.linePrev = k
	} else {
		l.last = k
	}
	l.n++
}

func (l *line) pushFront(k *fairKey) { l.insert(k, l.first) }
func (l *line) pushBack(k *fairKey)  { l.insert(k, nil) }

func (l *line) pushAfterMidTurn(k *fairKey) {
	at := l.first
	for at != nil && at.midTurn {
		at = at.lineNext
	}
	l.insert(k, at)
}

func (l *line) remove(k *fairKey) {
	if k.linePrev != nil {
		k.linePrev.lineNext = k.lineNext
	} else {
		l.first = k.lineNext
	}
	if k.lineNext != nil {
		k.lineNext.linePrev = k.linePrev
	} else {
		l.last = k.linePrev
	}
	k.linePrev, k.lineNext = nil, nil
	l.n--
}

// ThrottleOptions are what a throttle is set to; nil: not limited by that.
type ThrottleOptions struct {
	Rate        *float64 // messages a second, above 0
	Burst       *uint64  // tokens a bucket holds, at least 1; nil: a second's worth
	Concurrency *uint64  // leases held at a time, at least 1
}

const (
	rateMax        = 1e9
	burstMax       = 1_000_000_000
	concurrencyMax = 1_000_000_000
)

func (o *ThrottleOptions) setting() (storage.Throttle, error) {
	var set storage.Throttle
	if o.Rate == nil && o.Concurrency == nil {
		return set, fmt.Errorf("%w: a throttle needs RATE or CONCURRENCY; FILA.THROTTLE DEL takes it away", ErrInvalid)
	}
	if r := o.Rate; r != nil {
		if !(*r > 0 && *r <= rateMax) { // NaN is neither
			return set, fmt.Errorf("%w: RATE must be above 0 and at most %g a second", ErrInvalid, float64(rateMax))
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
	c.batch.Put(storage.State, storage.AppendStateKey(nil, stateThrottle, key), set.Append(nil))
	c.sync = true
	t := c.throttles[key]
	if t == nil {
		t = c.addThrottle(key, set)
		for _, m := range c.leases {
			for _, name := range m.throttleKeys() {
				if name == key {
					t.held++
				}
			}
		}
		return nil
	}
	t.refill(c.now)
	if t.set.Rate == 0 {
		t.tokens = float64(set.Burst)
	}
	t.set = set
	t.tokens = min(t.tokens, float64(set.Burst))
	c.wake(t)
	return nil
}

func (c *core) addThrottle(key string, set storage.Throttle) *throttle {
	t := &throttle{name: key, set: set, tokens: float64(set.Burst), at: c.now, timer: -1}
	c.throttles[key] = t
	c.throttleVersion++
	t.seq = c.throttleList.add(t)
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
	t := c.throttles[key]
	if t == nil {
		return false, nil
	}
	c.batch.Delete(storage.State, storage.AppendStateKey(nil, stateThrottle, key))
	c.sync = true
	delete(c.throttles, key)
	c.throttleVersion++
	c.throttleList.remove(t.seq)
	c.disarm(t)
	for t.line.first != nil {
		k := t.line.first
		c.unblock(k)
		if !k.emptied() {
			c.settle(k)
		}
	}
	return true, nil
}

// ThrottleInfo describes a throttle.
type ThrottleInfo struct {
	Key                string
	Rate               float64 // 0: not limited
	Burst, Concurrency uint64  // 0: not limited
	Tokens             float64 // in the bucket now
	Held               int64   // leases that count towards Concurrency
	Waiting            int64   // fairness keys that wait for it
	Passed, Refused    uint64  // messages let pass; keys sent to wait
	Waited             time.Duration
	NextAt             time.Time // the next token while keys wait; else zero
}

func (t *throttle) info(now int64) ThrottleInfo {
	t.refill(now)
	i := ThrottleInfo{
		Key: t.name, Rate: t.set.Rate, Burst: t.set.Burst, Concurrency: t.set.Concurrency, Tokens: max(t.tokens, 0), Held: t.held,
		Waiting: t.line.n, Passed: t.passed, Refused: t.refused, Waited: time.Duration(t.waited),
	}
	if t.timer >= 0 {
		i.NextAt = time.Unix(0, t.wakeAt)
	}
	return i
}

// Throttle describes a throttle; ok is false if the key has no setting.
func (tx *Tx) Throttle(key string) (info ThrottleInfo, ok bool) {
	t := tx.core.throttles[key]
	if t == nil {
		return ThrottleInfo{}, false
	}
	return t.info(tx.core.now), true
}

// Throttles lists throttles from a cursor on, at most count. The next cursor is 0
// at the end. One that exists throughout a listing is listed exactly once.
func (tx *Tx) Throttles(cursor uint64, count int, match func(string) bool) (next uint64, list []ThrottleInfo) {
	next = tx.core.throttleList.walk(cursor, count, func(t *throttle) {
		if match(t.name) {
			list = append(list, t.info(tx.core.now))
		}
	})
	return next, list
}

package engine

import (
	"fmt"
	"math"
	"strconv"

	"github.com/faisca/fila/internal/adaptive"
	"github.com/faisca/fila/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// throttle limits the deliveries of messages that name its throttle key, in all queues: by a
// token bucket, by the number of leases in use, or by both. It exists in memory while its key
// has a setting; a throttle key without a setting limits nothing (see unsetKey). Buckets and
// counts are in memory only: after a restart a bucket is full, and the leases in use are
// counted from those recovered.
//
// admission.go describes which class of messages a throttle with room admits next.
//
// A delivery takes a slot and an amount of tokens, which is its need: one, or the cost of its
// message under a throttle by cost. A bucket that is full admits any need: a delivery that takes
// more leaves it in debt, with tokens below zero, and the next one waits until the rate has paid
// for both. So nothing is stuck for ever, and the rate is exact in the long run. Room of a
// throttle for a delivery:
//
//	full      tokens < min(need, Burst), or inUse at the slots: Concurrency, or what adaptive allows
//	room      the tokens and a slot are free, and grant gives them away
//	reserved  the last room is reserved for a claim
//
//	full → room       a token is due, endUse, refund, SetThrottle, DeleteThrottle
//	room → full       consume
//	room → reserved   reserve: a class with a claim waits for another throttle
//	reserved → room   unreserve: the claim ends or the reservation expires
type throttle struct {
	name string
	seq  uint64 // its number in the roster: the order of creation
	set  storage.Throttle

	tokens float64 // in the bucket at time at, below 0 in debt; see level
	at     int64   // of the last change of tokens, Unix nanoseconds
	inUse  int64   // leases of messages that name it

	adaptive *adaptive.Limit // the slots now, at most Concurrency; nil: always Concurrency

	entries     map[*queue]*entry      // by queue, of queues with classes that name it
	line        intrusive.Heap[*entry] // entries that take part in its room, by turn
	vtime       float64                // virtual time: the start tag of the last turn, see admission.go
	claims      []*class               // classes with a claim on it, by the number of the claim
	reservedFor *class                 // the class for which a slot and its need of tokens are reserved; nil: none
	reserved    int64                  // tokens that are reserved for it
	first       *class                 // by cost: the class whose turn is next, for which tokens are saved, see claims.go
	savers      []*throttle            // throttles by cost that save tokens for a class that needs this one, too
	listed      bool                   // it is in grants.throttles
	wakeAt      int64                  // time of its timer, Unix nanoseconds
	timer       int                    // index in throttleTable.timers; -1: no timer

	freedAt   int64   // when a lease that it counts ended last, Unix nanoseconds
	gap       float64 // exponential moving average of the nanoseconds between two such ends
	gapSquare float64 // the same of the squares

	keys              int64  // keys whose next message names it
	admitted, refused uint64 // deliveries; classes that it stopped
	waitingKeys              // of keys, those in classes that wait in its line
}

func (t *throttle) Before(o *throttle) bool { return t.wakeAt < o.wakeAt }
func (t *throttle) Index() *int             { return &t.timer }

// tokenSlack is the part of a token by which a bucket may be short and still admit. It covers
// the rounding of level.
const tokenSlack = 1e-9

// level is the number of tokens in the bucket now, at most Burst. It is computed from the last
// change rather than accumulated, so frequent looks at a slow bucket add no rounding errors.
func (t *throttle) level(now int64) float64 {
	if t.at == now {
		return t.tokens // the common case: several messages in one turn
	}
	return min(float64(t.set.Burst), t.tokens+float64(now-t.at)*t.set.Rate/1e9)
}

// need is how many tokens a delivery of the message takes of the throttle with that index in its
// throttle set.
func (m *message) need(i int) int64 { return m.throttles.need(i, m.cost) }

// need is how many tokens a message of that cost takes of a throttle of its set, given by its index.
func (l *throttleSet) need(i int, cost uint32) int64 {
	switch {
	case l.set[i].set.ByCost:
		return int64(cost)
	case l.needs != nil:
		return l.needs[i]
	default:
		return 1
	}
}

// required is how many tokens the bucket must hold for a delivery of that need.
func (t *throttle) required(need int64) int64 { return min(need, int64(t.set.Burst)) }

// admits reports whether a delivery of that need may happen now without using what is reserved
// for a claim.
func (t *throttle) admits(now, need int64) bool {
	return t.slotsBeside(t.reservedSlots()) && t.holds(now, t.required(need)+t.reserved)
}

// admitsReserved reports the same of the delivery for which room is reserved.
func (t *throttle) admitsReserved(now, need int64) bool {
	return t.slotsBeside(0) && t.holds(now, t.required(need))
}

// reservedSlots is the number of slots that are reserved for a claim: 1 or 0.
func (t *throttle) reservedSlots() int64 {
	if t.reservedFor != nil {
		return 1
	}
	return 0
}

// slotsBeside reports whether a slot is free beside those that are kept.
func (t *throttle) slotsBeside(kept int64) bool {
	return t.set.Concurrency == 0 || t.inUse+kept < t.slots()
}

// slots is how many leases a throttle with a concurrency allows at a time now.
func (t *throttle) slots() int64 {
	if t.adaptive != nil {
		return t.adaptive.Slots()
	}
	return int64(t.set.Concurrency)
}

// holds reports whether the bucket holds so many tokens.
func (t *throttle) holds(now, tokens int64) bool {
	return t.set.Rate == 0 || t.level(now)+tokenSlack >= float64(tokens)
}

// reserveFor is how long room of the throttle for that need may stay reserved, in nanoseconds.
//
//	slots alone     nothing is lost but the use of one: several intervals
//	tokens bind     less than the time until as many tokens again, because a bucket that is full with the
//	                reserved ones loses those
//	slots bind,     longer than an interval: of two throttles of a class that both have a rate, the one with
//	beside a rate   the longer interval may then be reserved while the class waits for the other. With
//	                less, neither was, and the class kept its claim, and all later ones, for ever
func (t *throttle) reserveFor(need int64) float64 {
	switch tokens := t.refill(need); {
	case tokens == 0:
		return 4 * t.nextEnd()
	case t.set.Concurrency == 0 || tokens >= t.nextEnd():
		return 0.8 * tokens
	default:
		return 1.5 * t.nextEnd()
	}
}

// refill is the time in which the bucket gets tokens for that need, in nanoseconds; 0 without a rate.
func (t *throttle) refill(need int64) float64 {
	if t.set.Rate == 0 {
		return 0
	}
	return float64(need) * 1e9 / t.set.Rate
}

// holdsAt is the time at which the bucket will hold so many tokens, in Unix nanoseconds, later
// than now. At very low rates it is capped at durationMax from now.
func (t *throttle) holdsAt(now, tokens int64) int64 {
	missing := max(float64(tokens)-tokenSlack-t.level(now), 0)
	wait := math.Ceil(missing * 1e9 / t.set.Rate)
	return now + int64(min(max(wait, 1), float64(durationMax)))
}

// nextEnd is the expected time until the next end of a lease, in nanoseconds: half of the mean pause
// in which a moment lies. Leases that end together do not make it shorter.
func (t *throttle) nextEnd() float64 { return t.gapSquare / max(2*t.gap, 1) }

// wait is the expected time until the throttle has a slot and so many tokens, in nanoseconds. The
// longer no lease has ended, the longer the next end is likely to take.
func (t *throttle) wait(now, tokens int64) float64 {
	switch {
	case !t.slotsBeside(0):
		return max(t.nextEnd(), float64(now-t.freedAt))
	case t.set.Rate > 0:
		return float64(t.holdsAt(now, tokens) - now)
	default:
		return 0
	}
}

// consume takes the needed tokens and a concurrency slot of each throttle of the next message of a key. The
// throttles must have admitted it in this turn, and the caller delivers it.
func (c *core) consume(k *dispatchKey) {
	ts := c.limits(k.set)
	for i, t := range ts {
		t.admitted++
		t.inUse++
		if t.set.Rate > 0 {
			t.tokens, t.at = t.level(c.now)-float64(k.set.need(i, k.placedCost)), c.now
		}
	}
	k.key().stats.admitted += uint64(len(ts))
	k.class.scheduler.queue.throttled.admitted += uint64(len(ts))
}

// refund returns the tokens of a message that was not delivered after all. The end of its use
// returns the slots.
func (c *core) refund(m *message) {
	for i, t := range c.throttlesOf(m) {
		if t.set.Rate > 0 {
			t.tokens, t.at = min(t.level(c.now)+float64(m.need(i)), float64(t.set.Burst)), c.now
			c.list(t)
		}
	}
}

// countInUse counts a lease that exists already, as after a restart. A new lease is counted by
// consume and, for throttle keys without a setting, by useUnset. endUse undoes all three.
func (c *core) countInUse(m *message) {
	for _, t := range c.throttlesOf(m) {
		t.inUse++
	}
	c.useUnset(m)
}

// endUse returns the concurrency slots of a lease that has ended, and wakes the throttles for
// them.
func (c *core) endUse(m *message) {
	const newest = 0.05 // weight of the newest value in the moving average
	for _, t := range c.throttlesOf(m) {
		t.inUse--
		gap := float64(c.now - t.freedAt)
		t.gap += newest * (gap - t.gap)
		t.gapSquare += newest * (gap*gap - t.gapSquare)
		t.freedAt = c.now
		if t.set.Concurrency > 0 {
			c.list(t)
		}
	}
	c.endUnset(m)
}

// ThrottleOptions are the settings of a throttle. At least one of Rate and Concurrency must be
// set; nil means not limited by it.
type ThrottleOptions struct {
	Rate        *float64 // tokens per second, from 1e-9 to 1e9
	Burst       *uint64  // capacity of the bucket in tokens, from 1 to 1e9; needs Rate; nil: Rate, rounded up, at least 1
	Concurrency *uint64  // live leases at a time, from 1 to 1e9
	ByCost      bool     // a delivery takes the cost of its message in tokens, else one; needs Rate
	Adaptive    bool     // the live leases that are allowed shrink while work fails; needs Concurrency
	Min         *uint64  // the fewest that Adaptive leaves, from 1 to Concurrency; nil: 1
}

const (
	rateMax        = 1e9
	rateMin        = 1e-9 // one token in 31 years
	burstMax       = 1_000_000_000
	concurrencyMax = 1_000_000_000
)

// plain formats a number without an exponent.
func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// setting checks the options and returns them as they are stored, with defaults filled in.
// Errors wrap ErrInvalid.
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
	if set.ByCost = o.ByCost; set.ByCost && o.Rate == nil {
		return set, fmt.Errorf("%w: BY COST needs RATE", ErrInvalid)
	}
	if n := o.Concurrency; n != nil {
		if *n < 1 || *n > concurrencyMax {
			return set, fmt.Errorf("%w: CONCURRENCY must be from 1 to %d", ErrInvalid, uint64(concurrencyMax))
		}
		set.Concurrency = *n
	}
	if err := o.adapt(&set); err != nil {
		return storage.Throttle{}, err
	}
	return set, nil
}

// adapt checks the options of an adaptive throttle.
func (o *ThrottleOptions) adapt(set *storage.Throttle) error {
	switch {
	case o.Adaptive && o.Concurrency == nil:
		return fmt.Errorf("%w: ADAPTIVE needs CONCURRENCY", ErrInvalid)
	case o.Adaptive && o.Min == nil:
		set.AdaptiveMin = 1
	case o.Adaptive:
		if set.AdaptiveMin = *o.Min; set.AdaptiveMin < 1 || set.AdaptiveMin > set.Concurrency {
			return fmt.Errorf("%w: MIN must be from 1 to CONCURRENCY, %d", ErrInvalid, set.Concurrency)
		}
	case o.Min != nil:
		return fmt.Errorf("%w: MIN needs ADAPTIVE", ErrInvalid)
	}
	return nil
}

// SetThrottle sets what a throttle key allows. It replaces an earlier setting as a whole and
// takes effect immediately, for the backlog and for waiting consumers. A new bucket is full, and
// so is one for which a token means something else, since ByCost has changed; another one
// retains its tokens up to the new Burst, or its debt. Leases that name the key already count
// toward Concurrency, and may exceed it until they end. A throttle that was adaptive and still is
// keeps its limit, within the new bounds. The setting is durable when the reply leaves.
//
// Errors: ErrMisconf, ErrInvalid, ErrTooBig.
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
	t := c.throttles.byName[key]
	if t != nil && t.set.ByCost != set.ByCost {
		if err := tx.afford(1 + len(t.entries)/entriesPerUnit); err != nil { // restartTurns
			return err
		}
	}
	c.out.batch.Put(storage.State, storage.AppendStateKey(nil, storage.StateThrottle, key), set.Append(nil))
	c.out.sync = true
	if t == nil {
		t = c.addThrottle(key, set)
		t.inUse = c.takeUnset(key)
		c.reclassifyAll()
		return nil
	}
	tokens := t.level(c.now)
	if t.set.Rate == 0 || t.set.ByCost != set.ByCost {
		tokens = float64(set.Burst)
	}
	if t.set.ByCost != set.ByCost {
		t.restartTurns()
	}
	t.set = set
	t.adapt(t.adaptive)
	t.tokens, t.at = min(tokens, float64(set.Burst)), c.now
	c.list(t)
	return nil
}

// entriesPerUnit is the number of queues in the line of a throttle that a unit of work pays for.
const entriesPerUnit = 8

// restartTurns makes it the turn of all queues, because a turn has another length from now on.
func (t *throttle) restartTurns() {
	for _, e := range t.entries {
		e.turn, e.step = t.vtime, 1
	}
	t.line.Rebuild(t.line.Entries())
}

// DeleteThrottle deletes the setting of a throttle key, which then limits nothing, and reports
// whether there was one. The error is ErrMisconf while the store takes no writes.
func (tx *Tx) DeleteThrottle(key string) (bool, error) {
	c := tx.core
	if err := c.writable(); err != nil {
		return false, err
	}
	t := c.throttles.byName[key]
	if t == nil {
		return false, nil
	}
	c.out.batch.Delete(storage.State, storage.AppendStateKey(nil, storage.StateThrottle, key))
	c.out.sync = true
	delete(c.throttles.byName, key)
	c.throttles.list.Remove(t.seq)
	c.leaveUnset(t)
	t.set, t.adaptive = storage.Throttle{}, nil // without limits, it has room for all classes in its line
	c.disarm(t)
	c.list(t)
	c.reclassifyAll()
	return true, nil
}

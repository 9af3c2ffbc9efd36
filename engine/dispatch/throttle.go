package dispatch

import (
	"math"
	"time"

	"github.com/faisca/fila/engine/internal/adaptive"
	"github.com/faisca/fila/engine/internal/intrusive"
)

// Limits are what a throttle allows. The engine checks them: without a rate there is no Burst.
type Limits struct {
	Rate        float64 // tokens per second; 0: not limited
	Burst       uint64  // capacity of the bucket in tokens, at least 1 with a rate
	Concurrency uint64  // live leases at a time; 0: not limited
	ByCost      bool    // a delivery takes the cost of its message in tokens, else one
	AdaptiveMin uint64  // the fewest leases that an adaptive throttle allows; 0: it is not adaptive
}

// waitMax bounds how far ahead a timer is, in nanoseconds: a hundred years.
const waitMax = int64(100 * 365 * 24 * time.Hour)

// throttle limits the deliveries of messages that name its throttle key, in all queues: by a
// token bucket, by the number of leases in use, or by both. It exists in memory while its key
// has a setting, and as an instance of a pattern while there is a difference to a new one
// (pattern.go); a throttle key without limits limits nothing (see unsetKey). Buckets and
// counts are in memory only: after a restart a bucket is full, and the leases in use are
// counted from those recovered.
//
// There may be a million instances, each the own throttle of one key. So what such a one does not need is in extra,
// and a throttle takes 112 bytes: a test measures it.
//
// line.go describes which class of messages a throttle with room admits next.
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
//	full → room       a token is due, End, Undo, SetThrottle, DropThrottle, other limits of its pattern
//	room → full       consume
//	room → reserved   reserve: a class with a claim waits for another throttle
//	reserved → room   unreserve: the claim ends or the reservation expires
type throttle struct {
	name   string
	seq    uint64 // its number: the order of creation
	set    *terms // the limits that hold, see pattern.go; never nil
	*extra        // never nil: noExtra, which must not be changed, if it has nothing of it

	tokens float64 // in the bucket at time at, below 0 in debt; see level
	at     int64   // of the last change of tokens, Unix nanoseconds
	since  int64   // leases up to this time have taken nothing of the bucket by cost, see Settle; Unix nanoseconds

	owner             *Key   // the only key whose next message names it, see own.go; nil: there is none, or it is shared
	gateWaited        int64  // nanoseconds that it has stopped its owners; while it stops one, less the time at which it began
	admitted, refused uint64 // deliveries; classes and keys that it stopped

	wakeAt int64 // time of its timer, Unix nanoseconds
	timer  int   // index in Order.timers, or in Order.unnamed if it is dated; -1: in neither

	inUse  int32     // leases of messages that name it
	unused keptState // of an instance: whether it is to be forgotten
	gating bool      // it has stopped its owner
	listed bool      // it is in grants.throttles
	gone   bool      // it was forgotten or deleted: a set that refers to it looks up its throttles again
	filled bool      // a restart has filled the bucket at the time of since
}

// extra is what a throttle has that is shared or adaptive or has a setting of its own.
type extra struct {
	number uint64 // in the roster that it is in; 0: its seq

	adaptive  *adaptive.Limit // the slots now, at most Concurrency; nil: always Concurrency
	heldUntil int64           // it has no room before, see hold.go, Unix nanoseconds; 0: it is not held
	shared    bool            // the keys that name it are in classes that do

	entries     map[*Queue]*entry      // by queue, of queues with classes that name it
	line        intrusive.Heap[*entry] // entries that take part in its room, by turn
	vtime       float64                // virtual time: the start tag of the last turn, see line.go
	claims      []*class               // classes with a claim on it, by the number of the claim
	reservedFor *class                 // the class for which a slot and its need of tokens are reserved; nil: none
	reserved    int64                  // tokens that are reserved for it
	first       *class                 // by cost: the class whose turn is next, for which tokens are saved, see claims.go
	savers      []*throttle            // throttles by cost that save tokens for a class that needs this one, too

	freedAt   int64   // when a lease that it counts ended last, Unix nanoseconds
	gap       float64 // exponential moving average of the nanoseconds between two such ends
	gapSquare float64 // the same of the squares

	keys        int64 // keys whose next message names it
	waitingKeys       // of keys, those in classes that wait in its line
}

// noExtra is the extra of all throttles that have none.
//
//nolint:gochecknoglobals // nothing changes it: invariant 37
var noExtra extra

// grow gives a throttle an extra of its own.
func (t *throttle) grow(now int64) {
	if t.extra == &noExtra {
		t.extra = &extra{freedAt: now, waitingKeys: waitingKeys{countedAt: now}}
	}
}

// use adds n, which may be negative, to the leases that name a throttle.
func (t *throttle) use(n int32) {
	t.inUse += n
	if p := t.set.pattern; p != nil {
		p.inUse += n
	}
}

// countRefused counts that a throttle has stopped a key or a class.
func (t *throttle) countRefused() {
	t.refused++
	if p := t.set.pattern; p != nil {
		p.refused++
	}
}

// waitsNow is the number of keys that the throttle stops.
func (t *throttle) waitsNow() int64 {
	if t.gating {
		return t.waiting + 1
	}
	return t.waiting
}

// waitedSum is for how many nanoseconds it has stopped keys until now.
func (t *throttle) waitedSum(now int64) int64 {
	sum := t.gateWaited + t.waited + t.waiting*(now-t.countedAt)
	if t.gating {
		sum += now
	}
	return sum
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

// need is how many tokens a message of that cost takes of the throttle with an index in its set.
func (l *Set) need(i int, cost uint32) int64 { return l.set[i].needOf(cost) }

// needOf is how many tokens a message of that cost takes.
func (t *throttle) needOf(cost uint32) int64 {
	if t.set.ByCost {
		return int64(cost)
	}
	return 1
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

// slotsBeside reports whether a slot is free beside those that are kept, and the throttle is not held.
func (t *throttle) slotsBeside(kept int64) bool { return t.heldUntil == 0 && t.slotFree(kept) }

// slotFree is slotsBeside of a throttle that is not held.
func (t *throttle) slotFree(kept int64) bool {
	return t.set.Concurrency == 0 || int64(t.inUse)+kept < t.slots()
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
// than now. At very low rates it is capped at waitMax from now.
func (t *throttle) holdsAt(now, tokens int64) int64 {
	missing := max(float64(tokens)-tokenSlack-t.level(now), 0)
	wait := math.Ceil(missing * 1e9 / t.set.Rate)
	return now + int64(min(max(wait, 1), float64(waitMax)))
}

// nextEnd is the expected time until the next end of a lease, in nanoseconds: half of the mean pause
// in which a moment lies. Leases that end together do not make it shorter.
func (t *throttle) nextEnd() float64 { return t.gapSquare / max(2*t.gap, 1) }

// wait is the expected time until the throttle has a slot and so many tokens, in nanoseconds. The
// longer no lease has ended, the longer the next end is likely to take.
func (t *throttle) wait(now, tokens int64) float64 {
	switch {
	case t.heldUntil != 0:
		return float64(t.heldUntil - now)
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
func (o *Order) consume(k *Key) {
	ts := o.limits(k.set)
	for i, t := range ts {
		t.admitted++
		if p := t.set.pattern; p != nil {
			p.admitted++
		}
		t.use(1)
		if t.set.Rate > 0 {
			t.tokens, t.at = t.level(o.now)-float64(k.set.need(i, k.placedCost)), o.now
		}
	}
	k.tally.Admitted += uint64(len(ts))
	k.class.scheduler.queue.throttled.admitted += uint64(len(ts))
}

// Undo returns the tokens of a message that was taken and not delivered after all. End follows, and
// returns the slots.
func (o *Order) Undo(set *Set, cost uint32) {
	for i, t := range o.limits(set) {
		if t.set.Rate > 0 {
			t.tokens, t.at = min(t.level(o.now)+float64(set.need(i, cost)), float64(t.set.Burst)), o.now
			o.list(t)
		}
	}
}

// Settle takes what the work on a message has used of its throttles by cost, in place of its cost: the rest returns to
// the bucket, up to Burst, or more is taken, into debt if need be. began is when the lease began (LeaseTime): a throttle
// that has been by cost only since then is left alone, and a bucket that a restart has filled since gets nothing back.
// It precedes End, once for a lease.
func (o *Order) Settle(set *Set, cost, used, began int64) {
	for _, t := range o.limits(set) {
		back := cost - used
		if !t.set.ByCost || began <= t.since && (!t.filled || back > 0) {
			continue
		}
		t.tokens, t.at = min(t.level(o.now)+float64(back), float64(t.set.Burst)), o.now
		o.list(t)
		o.usedRoom(t)
		if cl := t.firstClaim(); cl != nil { // it waits for another time than its reservations elsewhere counted on
			for i := range cl.flows {
				o.list(cl.flows[i].throttle)
			}
		}
	}
}

// takesCost begins a bucket of which deliveries take their cost from now on: earlier ones have not.
func (o *Order) takesCost(t *throttle, filled bool) {
	if t.set.ByCost {
		t.since, t.filled = o.LeaseTime(), filled
		o.afterCut = t.since + 1
	}
}

// Begin counts a lease that exists already, as after a restart. Take counts a new one. End undoes both.
func (o *Order) Begin(set *Set) {
	for _, t := range o.limits(set) {
		t.use(1)
		o.named(t)
	}
	o.useUnset(set)
}

// End returns the slots of a lease that has ended, and lists the throttles that have room now.
func (o *Order) End(set *Set) {
	const newest = 0.05 // weight of the newest value in the moving average
	for _, t := range o.limits(set) {
		t.use(-1)
		if t.extra != &noExtra {
			gap := float64(o.now - t.freedAt)
			t.gap += newest * (gap - t.gap)
			t.gapSquare += newest * (gap*gap - t.gapSquare)
			t.freedAt = o.now
		}
		if t.set.Concurrency > 0 {
			o.list(t)
		}
		o.lookAtUse(t)
	}
	o.endUnset(set)
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

package dispatch

import (
	"cmp"
	"math"

	"github.com/faisca/fila/engine/internal/intrusive"
)

// Host is what the order of delivery asks of the engine. It is asked where a key or a class moves, never for a
// plain delivery.
type Host interface {
	// Room reports whether the step has some of its budget of work left, and Spend takes units of it.
	Room() bool
	Spend(units int)
	// Announce says that a queue may be able to deliver again. It must change nothing in the order.
	Announce(q *Queue)
	// Budget returns the budget of a name, nil if there is none. It is asked when a class names it
	// first, and after Changed.
	Budget(name string) Budget
}

// Budget is what the order of delivery asks of a budget that keys name.
type Budget interface {
	// Covers reports whether a charge is covered now, with the refills that are due. Asking writes nothing.
	Covers(charge int64) bool
	// Cover is the greatest charge that is covered now.
	Cover() int64
	// Await says that the first key begins to wait for the budget, or that none does any more.
	Await(waits bool)
	// RanDry says that a key waits for the budget, which does not cover it.
	RanDry()
}

// Config are the settings of an Order.
type Config struct {
	Quantum   uint32 // credit per round and unit of weight, at least 1
	Instances int    // of patterns that nothing names and that do not equal new ones yet, see pattern.go; 0: 1,000,000
}

// Order is the order of delivery of all queues of an engine. It may not be used by several goroutines
// at a time. The same calls at the same times have the same results.
type Order struct {
	cfg  Config
	host Host
	now  int64 // time of the turn, Unix nanoseconds

	offers []*Queue            // may be able to deliver, and have demand: Ready returns them
	paused map[*Queue]struct{} // queues whose deliveries are paused
	grants grants              // room and credits that are not given away yet

	throttles map[string]*throttle // by throttle key
	patterns  patterns
	rosters
	kept
	added    uint64                    // incremented when a throttle is added for a hold alone
	version  uint64                    // incremented when a setting or a pattern is added or removed: Sets of an older version are stale
	timers   intrusive.Heap[*throttle] // armed timers: next tokens and ends of reservations
	unset    map[string]*unsetKey      // throttle keys without a setting that live leases name
	idle     int                       // classes in scheduler.idle of all queues
	number   uint64                    // last number given to an entry in a line or a claim
	afterCut int64                     // later than all cuts of adaptive throttles, see LeaseTime

	lines  map[string]*line // by name, of budgets that a class names
	lineNo uint64           // number of the last line
	held   int64            // keys that wait for budgets
}

const instancesDefault = 1_000_000

// New returns an order without throttles.
func New(cfg Config, host Host) *Order {
	cfg.Instances = cmp.Or(cfg.Instances, instancesDefault)
	o := &Order{cfg: cfg, host: host}
	o.Reset()
	return o
}

// Buckets are the throttles of an order before a Reset.
type Buckets struct {
	throttles map[string]*throttle
	patterns  patterns
	rosters   rosters
}

// Reset forgets all throttles and what is left to serve, and returns the throttles, which Restore
// continues. The queues of before must not be used any more. The version and the numbers keep
// growing, so nothing that refers to the old throttles is taken for current.
func (o *Order) Reset() Buckets {
	before := Buckets{o.throttles, o.patterns, o.rosters}
	*o = Order{
		cfg: o.cfg, host: o.host, now: o.now, paused: map[*Queue]struct{}{}, throttles: map[string]*throttle{}, unset: map[string]*unsetKey{},
		patterns: patterns{byPrefix: map[string]*pattern{}},
		version:  o.version + 1, added: o.added, number: o.number, afterCut: o.afterCut, lines: map[string]*line{}, kept: kept{evicted: o.evicted},
	}
	return before
}

// Stop forgets what is left to give away: nothing is delivered until a Reset.
func (o *Order) Stop() { o.grants = grants{} }

// Advance sets the time of the turn, in Unix nanoseconds. It must not decrease.
func (o *Order) Advance(now int64) { o.now = now }

// Never is the time of a timer that is not set.
const Never = math.MaxInt64

// NextTimer is when Expire has something to do, in Unix nanoseconds, or Never.
func (o *Order) NextTimer() int64 {
	at := o.nextForget()
	if t, ok := o.timers.First(); ok {
		at = min(at, t.wakeAt)
	}
	return at
}

// Expire lists the throttles whose timers are due, and forgets the instances that equal new ones, as far as the
// budget of the step goes.
func (o *Order) Expire() {
	o.forgetDue()
	for o.host.Room() {
		t, ok := o.timers.First()
		if !ok || t.wakeAt > o.now {
			return
		}
		o.host.Spend(1)
		o.disarm(t)
		o.list(t)
	}
}

// Pending reports whether room or credits may be left to give away.
func (o *Order) Pending() bool { return o.grants.pending() }

// Offered reports whether a queue is left to be looked at.
func (o *Order) Offered() bool { return len(o.offers) > 0 }

// Ready returns the queue that is served next; nil: none may be able to deliver, or the step has
// no budget left. Room of throttles and credits go first, before another queue could take them.
func (o *Order) Ready() *Queue {
	if !o.host.Room() {
		return nil
	}
	if q := o.grants.turn; q != nil {
		o.grants.turn = nil
		return q
	}
	if q := o.grant(); q != nil {
		return q
	}
	if len(o.offers) == 0 {
		o.offers = nil // its memory grows with the queues of the busiest step
		return nil
	}
	if !o.host.Room() {
		return nil
	}
	q := o.offers[0]
	o.offers = o.offers[1:]
	q.offered = false
	return q
}

// Again is asked for a lease that is being served, when Next has returned nil: it gives away what has
// become ready, and reports whether the lease may find another message of the queue. Where the turn
// is another queue's, the lease ends, and Ready returns that queue.
func (q *Queue) Again() bool {
	g := &q.order.grants
	if g.turn == nil {
		g.turn = q.order.grant()
	}
	if g.turn == q {
		g.turn = nil
		q.Offer() // the lease may be served for another of its queues, and others wait for this one
	}
	return g.turn == nil
}

// SetThrottle sets what a throttle key allows, and reports whether it had no setting. It replaces an
// earlier setting as a whole. A new bucket is full, and so is one for which a token means something
// else, since ByCost has changed; another one retains its tokens up to the new Burst, or its debt. A
// throttle that was adaptive and still is keeps its limit, within the new bounds. It takes the time
// of Units(key, set).
func (o *Order) SetThrottle(key string, set Limits) (added bool) {
	if prefix, ok := patternPrefix(key); ok {
		o.setPattern(prefix, set)
		return true
	}
	t := o.throttles[key]
	if t != nil && !o.follow(t) {
		t = nil
	}
	if t == nil {
		t = o.addThrottle(key, set)
		t.inUse = o.takeUnset(key)
		o.takesCost(t, false)
		return true
	}
	o.change(t, &terms{Limits: set, from: o.now}, o.now)
	return false
}

// Units is how much work SetThrottle is with these arguments, in units of Host.Spend.
func (o *Order) Units(key string, set Limits) int {
	if t := o.throttles[key]; t != nil && t.set.ByCost != set.ByCost {
		return 1 + len(t.entries)/entriesPerUnit // restartTurns
	}
	return 0
}

// Restore adds a throttle after a Reset. Its bucket keeps the level and its counters the values that
// they had before; without a throttle of that name the bucket is full.
func (o *Order) Restore(key string, set Limits, before Buckets) {
	if prefix, ok := patternPrefix(key); ok {
		o.setPattern(prefix, set)
		o.patterns.byPrefix[prefix].set.restored = true
		if old := before.patterns.byPrefix[prefix]; old != nil {
			p := o.patterns.byPrefix[prefix]
			p.admitted, p.refused, p.gateWaited = old.admitted, old.refused, old.waitedSum(o.now)
		}
		return
	}
	t := o.addThrottle(key, set)
	o.takesCost(t, true)
	if old := before.throttles[key]; old != nil {
		o.takeOver(t, old)
	}
}

// takeOver gives a throttle the level and the counters of what it was before a Reset.
func (o *Order) takeOver(t, old *throttle) {
	t.admitted, t.refused, t.gateWaited = old.admitted, old.refused, old.waitedSum(o.now)
	t.adapt(old.adaptive, o.now)
	if old.set.Rate > 0 && old.set.ByCost == t.set.ByCost {
		t.tokens, t.filled = min(old.level(o.now), float64(t.set.Burst)), false
	}
}

// DropThrottle deletes the setting of a throttle key or a pattern, and reports whether
// there was one. The key has the limits of a pattern then, or none.
func (o *Order) DropThrottle(key string) bool {
	if prefix, ok := patternPrefix(key); ok {
		return o.dropPattern(prefix)
	}
	t := o.throttles[key]
	if t == nil || t.set.pattern != nil || t.set == &unlimited {
		return false
	}
	t.set.until = o.now
	if p := o.patternOf(key); p != nil {
		o.change(t, p.set, o.now)
		o.lookAtUse(t)
		return true
	}
	if t.heldUntil != 0 {
		o.change(t, &unlimited, o.now)
		return true
	}
	o.version++
	o.drop(t)
	return true
}

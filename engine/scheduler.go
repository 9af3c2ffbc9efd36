package engine

import (
	"iter"
	"time"
)

// This file is the order of delivery within a queue: weighted deficit round robin over the
// fairness keys of the queue (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
// Round Robin", SIGCOMM 1995). Each round visits every key that has messages. A visit grants
// the key a credit of weight x quantum. The key delivers for as long as its credit covers the
// cost of its next message, and keeps the rest of the credit for its next visit.
//
// The scheduler does not walk round the keys in search of one with enough credit. It computes
// the round in which the credit of each key suffices, and keeps the keys in a calendar by that
// round (calendar.go). A delivery therefore takes O(1) where costs fit into a round and O(log
// keys) elsewhere, whatever the messages cost. The order is that of the walk: a key keeps its
// position in the circle for as long as it has messages, and within a round keys are visited in
// the order of their positions. A key that joins is placed before the key that is next, so each
// of the other keys is visited at most once before it.
//
// While two keys both have messages and their weights do not change, what they got per unit of
// weight differs in any interval by at most
//
//	quantum + Max/weight_i + Max/weight_j
//
// where Max is the largest cost of a message at the head of a key. This is the bound of deficit
// round robin.
//
// # Classes
//
// A class is the set of keys of a queue whose next messages name the same throttles. Each class
// has a calendar and a clock of its own. A throttle without room stops the class as a whole, so
// the cost of stopping does not depend on the number of its keys. States and transitions:
//
//	idle     no keys. Retained for a while, because the next message often needs it.
//	open     in the queue's heap of open classes. The class whose key is due first
//	         delivers next.
//	waiting  in the line of a throttle that had no room, see admission.go.
//
//	idle → open      joinClass: a key joins
//	open → waiting   block: a consumer asked and a throttle had no room
//	waiting → open   open: the throttle has room and the turn is the class's
//	any → idle       idleClass: the last key leaves
//
// The clock of a class stops while the class is not open. When the class opens, all of its keys
// are due later by as many rounds as the queue has advanced in the meantime. The order and the
// shares of the keys are preserved, and a class does not catch up on the time for which a
// throttle stopped it.

// scheduler is the order of delivery of one queue. A purge replaces the scheduler as a whole:
// keys and classes of the old one are detached and reclaimed incrementally.
type scheduler struct {
	queue    *queue
	quantum  int64
	detached bool // a purge has replaced it: throttles drop its entries when they find them

	plain     class             // of keys whose next message no throttle limits
	classes   map[string]*class // all other classes, by the signature of their throttles
	idle      []*class          // classes without keys, each once, oldest first; may list some that are in use again
	open      classHeap         // open classes
	claiming  []*class          // have a claim, see claims.go
	reserving []*class          // of these, with capacity reserved
	saving    []*throttle       // throttles by cost at which a class of the queue is next

	round     int64  // of the last visit
	last      uint64 // the greatest major of all positions
	keys      int    // keys in all calendars
	weight    int64  // of these keys
	announced bool   // an event has announced ready messages, and no lease has found none since
}

// A scheduler retains up to idleClassesMax idle classes, and more while those of all queues are at
// most idleClassesTotal: a queue may have a budget for each tenant, and a class for each budget.
// Those not used for longest are dropped: a queue whose messages name ever new throttle keys must
// not grow.
const (
	idleClassesMax   = 64
	idleClassesTotal = 4096
)

// newScheduler returns a scheduler without keys. quantum is the credit per round and unit of
// weight, at least 1.
func newScheduler(q *queue, quantum uint32) *scheduler {
	s := &scheduler{queue: q, quantum: int64(quantum), classes: map[string]*class{}}
	s.plain = class{scheduler: s, at: -1, visits: newVisits()}
	return s
}

// hasOpen reports whether a class is open, so that a consumer may find a message.
func (s *scheduler) hasOpen() bool { return len(s.open) > 0 }

// loaded reports whether the key that is due first has its next message in memory. If it does
// not, the queue delivers nothing until the read of that key is done.
func (s *scheduler) loaded() bool {
	cl := s.open.next()
	return cl != nil && len(cl.head().key().window) > 0
}

// all iterates over the classes, idle ones included, in no particular order.
func (s *scheduler) all() iter.Seq[*class] {
	return func(yield func(*class) bool) {
		if !yield(&s.plain) {
			return
		}
		for _, cl := range s.classes {
			if !yield(cl) {
				return
			}
		}
	}
}

// reschedule brings the place of a key in the calendars up to date after any change of the
// key's head cache, backlog, weight or pause. settle calls it.
//
//	head cache   backlog on disk  class of the key
//	filled       any              that of its first message
//	empty        yes              the present one, else plain: the key keeps its place
//	empty        none, or the     none
//	             last read found
//	             nothing
//	paused key, or one of an      none
//	ordered queue with a message
//	out
//
// A key loses its credit only when it has neither a message in memory nor a backlog on disk: as
// in deficit round robin, an idle key saves nothing.
func (c *core) reschedule(k *fairKey) {
	cost, cl := uint32(costMin), k.class
	switch {
	case k.paused || k.waitsForOne() || len(k.window) == 0 && (!k.hasBacklog || k.lastReadEmpty):
		if cl != nil {
			c.leaveClass(k)
			c.offerLoaded(k.queue)
		}
		if len(k.window) == 0 && !k.hasBacklog {
			k.credit, k.visited, k.base = 0, false, 0
		}
		return
	case len(k.window) == 0:
		if k.held != 0 {
			return
		}
		if cl == nil {
			cl = &k.queue.scheduler.plain
		}
	default:
		m := k.window[0]
		if cost = m.cost; m.throttles != nil {
			cl = c.classOf(k.queue, m)
		} else {
			cl = &k.queue.scheduler.plain
		}
		if k.held != 0 && cl == k.class {
			if c.holdsFor(k, m) {
				return
			}
			c.returnToRing(k)
		}
	}
	if cl != k.class {
		if k.class != nil {
			c.leaveClass(k)
		}
		c.joinClass(k, cl, cost)
		return
	}
	if cost == k.placedCost && k.weight == k.placedWeight && !k.visited {
		return
	}
	if k.visited && k.credit >= int64(cost) && k.weight == k.placedWeight {
		k.placedCost = cost // the visit continues at the key's place
		c.fix(cl)
		return
	}
	k.accrue()
	cl.remove(&k.dispatchKey)
	cl.addWeight(int64(k.weight) - int64(k.placedWeight))
	k.schedule(cost, k.weight)
	c.fix(cl)
	c.offerLoaded(k.queue)
}

// offerLoaded has a queue served if it waited for a key whose messages were being read, and
// that key is no longer the first.
func (c *core) offerLoaded(q *queue) {
	if q.waiters.first != nil && q.scheduler.loaded() {
		c.offer(q)
	}
}

// costMin is the least cost of a delivery.
const costMin = 1

// joinClass adds a key that is in no class to a class. The credit of the key and the number of
// rounds since its last visit are those with which it left its class before.
func (c *core) joinClass(k *fairKey, cl *class, cost uint32) {
	first := c.openRing(cl)
	k.class = cl
	k.refusedBase, k.waitedBase = cl.refused, cl.waitedBy(c.now)
	k.takePosition(cl)
	k.schedule(cost, k.weight)
	c.joinRing(k, first)
}

// openRing prepares a class for one more key in its calendar, and reports whether it had none:
// then the class is open, and its clock goes on.
func (c *core) openRing(cl *class) (first bool) {
	if cl.keys > 0 {
		return false
	}
	cl.state = classOpen
	cl.offset += cl.scheduler.round - cl.stopped // its clock was stopped
	return true
}

// joinRing counts a key that has entered the calendar of its class. first is what openRing has
// returned.
func (c *core) joinRing(k *fairKey, first bool) {
	cl := k.class
	s := cl.scheduler
	if cl.state == classWaiting {
		cl.countWaiting(c.now, 1)
	}
	cl.keys++
	s.keys++
	cl.addWeight(int64(k.placedWeight))
	for i := range cl.flows {
		cl.flows[i].countKeys(1)
	}
	if first {
		cl.enter(k.placedCost)
		s.open.push(cl)
	} else {
		c.fix(cl)
		if cl.fresh {
			c.grow(cl)
		}
	}
	if cl.state == classOpen {
		c.offer(s.queue)
		c.announceReady(s.queue)
	}
}

// leaveRing takes a key out of the calendar of its class.
func (c *core) leaveRing(k *fairKey) {
	cl := k.class
	if cl.state == classWaiting {
		cl.countWaiting(c.now, -1)
	}
	cl.remove(&k.dispatchKey)
	cl.keys--
	cl.scheduler.keys--
	cl.addWeight(-int64(k.placedWeight))
	for i := range cl.flows {
		cl.flows[i].countKeys(-1)
	}
	if cl.keys > 0 {
		c.fix(cl)
		return
	}
	c.idleClass(cl)
}

// leaveClass takes a key out of its class. Afterwards, base is the number of rounds since the
// key's last visit: round numbers mean nothing outside the class.
func (c *core) leaveClass(k *fairKey) {
	cl := k.class
	k.stats.refused, k.stats.waited = cl.sharedBy(k, c.now)
	c.unloose(k)
	base := cl.present() - k.base
	if k.held != 0 {
		c.unhold(k)
		if cl.keys == 0 {
			c.retain(cl)
		}
	} else {
		c.leaveRing(k)
	}
	k.class, k.base = nil, base
}

// pick returns the key that delivers next, or nil if no key of the queue can deliver now. The
// key has been charged the cost of its first message, and the message's throttles have admitted
// it: the caller must deliver that message.
//
// Messages whose time to live has passed are removed on the way, and keys in the wrong class
// are moved, a unit each. When the step has no budget left, pick returns nil and the queue stays
// offered: other tasks go on first.
func (c *core) pick(q *queue) *fairKey {
	s := q.scheduler
	for {
		cl := s.open.next()
		if cl == nil {
			return nil
		}
		k := cl.head().key()
		if len(k.window) == 0 {
			// The messages of the key are being read. Skipping the key would give its share to
			// others. The read was requested a round ago, so the wait is short.
			return nil
		}
		m := k.window[0]
		if c.ttlExpired(m) || m.throttles != nil && c.classOf(q, m) != cl {
			if !c.room() {
				c.offer(q)
				return nil
			}
			c.spend(1)
			if c.ttlExpired(m) {
				c.endTTLAtHead(m)
			} else {
				c.settle(k) // a throttle was set or deleted since the key was placed
			}
			continue
		}
		if len(cl.draws) > 0 {
			if lacking := c.lacking(k, m); lacking >= 0 {
				if !c.room() {
					c.offer(q)
					return nil
				}
				c.spend(1)
				c.holdKey(k, lacking)
				continue
			}
		}
		if len(cl.flows) > 0 {
			if full := c.full(cl); full != nil {
				c.block(cl, full)
				continue
			}
			if first := c.yieldsTo(cl); first != nil {
				c.block(cl, first)
				continue
			}
			c.admit(cl, m)
		}
		if len(cl.draws) > 0 {
			c.reserveCharge(m)
		}
		before := s.round
		k.visit()
		c.queues.sums.rounds += uint64(s.round - before) //nolint:gosec // it never decreases
		k.credit -= int64(m.cost)
		return k
	}
}

// Blocker is a throttle that does not admit the next message of a key now.
type Blocker struct {
	Throttle    string
	InUse       int64     // live leases that name the throttle
	Concurrency uint64    // its limit of live leases if no slot is free; else 0
	Limit       int64     // of these, the ones that an adaptive throttle allows now; 0: it is not adaptive, or a slot is free
	Rate        float64   // its tokens per second if the key waits for tokens; else 0
	NextAt      time.Time // when the bucket will have the tokens; zero if it has them
	Reserved    bool      // it has room, which is reserved for messages that need several throttles
	Saved       bool      // it has the tokens, and saves them for a message that comes before
	Need        int64     // tokens that the message takes, under a throttle by cost; else 0
	Tokens      float64   // in the bucket now
	Burst       uint64    // capacity of the bucket
}

// blocker describes the throttle with an index in the throttle set of a message, if it does not
// admit the message now. Room that is reserved for a claim does not count.
func (c *core) blocker(m *message, i int) (b Blocker, blocks bool) {
	t, need := m.throttles.set[i], m.need(i)
	admits, saved := t.admits(c.now, need), t.set.ByCost && c.savedBefore(m, t)
	if admits && !saved {
		return b, false
	}
	b = Blocker{Throttle: t.name, InUse: t.inUse, Reserved: !admits && t.admitsReserved(c.now, need), Tokens: t.level(c.now), Burst: t.set.Burst}
	if t.set.ByCost {
		b.Need = need
	}
	if !t.slotsBeside(0) {
		b.Concurrency = t.set.Concurrency
		if t.adaptive != nil {
			b.Limit = t.slots()
		}
	}
	switch tokens := t.required(need); {
	case !t.holds(c.now, tokens):
		b.Rate, b.NextAt = t.set.Rate, time.Unix(0, t.holdsAt(c.now, tokens+t.reserved))
	case saved:
		b.Saved = true
		b.Rate, b.NextAt = t.set.Rate, time.Unix(0, t.holdsAt(c.now, t.required(t.nextNeed())+t.reserved))
	}
	return b, true
}

// savedBefore reports whether the tokens of a throttle by cost are saved for a message that comes
// before the first message of a key.
func (c *core) savedBefore(m *message, t *throttle) bool {
	cl := m.key.class
	if cl == nil {
		return false
	}
	for i := range cl.flows {
		if s := &cl.flows[i]; s.throttle == t {
			return cl.state == classWaiting && cl.entry == s.entry || cl.state == classOpen && c.saved(cl, s)
		}
	}
	return false
}

// lacksOnlyTokens reports whether the throttle admits a message at NextAt, if no other takes the
// tokens.
func (b *Blocker) lacksOnlyTokens() bool { return b.Rate != 0 && b.Concurrency == 0 }

// blockers returns the throttles that do not admit a message now, in the order of its throttle
// keys.
func (c *core) blockers(m *message) []Blocker {
	var all []Blocker
	for i := range c.throttlesOf(m) {
		if b, blocks := c.blocker(m, i); blocks {
			all = append(all, b)
		}
	}
	return all
}

// blockedState returns the state of a key whose next message throttles do not admit, stateReady if
// they do.
func (c *core) blockedState(m *message) keyState {
	state := stateReady
	for i := range c.throttlesOf(m) {
		if b, blocks := c.blocker(m, i); blocks {
			if !b.lacksOnlyTokens() {
				return stateConcurrency
			}
			state = stateThrottled
		}
	}
	return state
}

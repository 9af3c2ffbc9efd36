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
	return cl != nil && cl.head().state == headReady
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

// setHead tells the order of delivery what stands at the head of a key, and brings the place of the key in the calendars
// up to date. settle calls it after each change, nothing else does.
func (c *core) setHead(q *queue, k *dispatchKey, h head) {
	k.state = h.state
	if k.hasSet || h.set != nil {
		k.hasSet, k.set = h.set != nil, h.set
	}
	cl := k.class
	switch h.state {
	case headEmpty, headStopped:
		if cl != nil {
			c.leaveClass(k)
			c.offerLoaded(q)
		}
		if h.state == headEmpty {
			k.credit, k.visited, k.base = 0, false, 0
		}
		return
	case headLoading:
		if k.held != 0 {
			return
		}
		if cl == nil {
			cl = &q.scheduler.plain
		}
	case headReady:
		if cl = &q.scheduler.plain; h.set != nil {
			cl = c.classOf(q, h.set, h.cost)
		}
		if k.held != 0 && cl == k.class {
			if c.holdsFor(k, &h) {
				return
			}
			c.returnToRing(k)
		}
	}
	if cl != k.class {
		if k.class != nil {
			c.leaveClass(k)
		}
		c.joinClass(k, cl, &h)
		return
	}
	if h.cost == k.placedCost && h.weight == k.placedWeight && !k.visited {
		return
	}
	if k.visited && k.credit >= int64(h.cost) && h.weight == k.placedWeight {
		k.placedCost = h.cost // the visit continues at the key's place
		c.fix(cl)
		return
	}
	k.accrue()
	cl.remove(k)
	cl.addWeight(int64(h.weight) - int64(k.placedWeight))
	k.schedule(h.cost, h.weight)
	c.fix(cl)
	c.offerLoaded(q)
}

// offerLoaded has a queue served if it waited for a key whose messages were being read, and
// that key is no longer the first.
func (c *core) offerLoaded(q *queue) {
	if q.waiters.Head() != nil && q.scheduler.loaded() {
		c.offer(q)
	}
}

// costMin is the least cost of a delivery.
const costMin = 1

// joinClass adds a key that is in no class to a class. The credit of the key and the number of
// rounds since its last visit are those with which it left its class before.
func (c *core) joinClass(k *dispatchKey, cl *class, h *head) {
	first := c.openRing(cl)
	k.class = cl
	s := &k.key().stats // from here on, without what its class has counted: see sharedBy
	s.refused, s.waited = s.refused-cl.refused, s.waited-cl.waitedBy(c.now)
	k.takePosition(cl)
	k.schedule(h.cost, h.weight)
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
func (c *core) joinRing(k *dispatchKey, first bool) {
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
func (c *core) leaveRing(k *dispatchKey) {
	cl := k.class
	if cl.state == classWaiting {
		cl.countWaiting(c.now, -1)
	}
	cl.remove(k)
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
func (c *core) leaveClass(k *dispatchKey) {
	cl := k.class
	s := &k.key().stats
	s.refused, s.waited = cl.sharedBy(s, c.now)
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

// next returns the key of a queue that delivers next, nil if none can deliver now. All of its throttles admit its next
// message, and its budgets cover it. It takes nothing: the caller charges the key and delivers, or settles it and asks
// again.
//
// A key that cannot go is moved on the way, a unit each: to the class that it belongs to since a throttle was set or
// deleted, out of the ring if a budget does not cover it. When the step has no budget left, next returns nil and the
// queue stays offered: other tasks go on first.
func (c *core) next(q *queue) *dispatchKey {
	for cl := q.scheduler.open.next(); cl != nil; cl = q.scheduler.open.next() {
		k := cl.head()
		if k.state != headReady {
			// The messages of the key are being read. Skipping the key would give its share to
			// others. The read was requested a round ago, so the wait is short.
			return nil
		}
		stale := k.hasSet && c.classOf(q, k.set, k.placedCost) != cl
		lacking := -1
		if !stale && len(cl.draws) > 0 {
			lacking = c.lacking(k)
		}
		switch {
		case !stale && lacking < 0:
		case !c.room():
			c.offer(q)
			return nil
		case stale:
			c.spend(1)
			c.settle(k.key())
			continue
		default:
			c.spend(1)
			c.holdKey(k, lacking)
			continue
		}
		if len(cl.flows) > 0 {
			full := c.full(cl)
			if full == nil {
				full = c.yieldsTo(cl)
			}
			if full != nil {
				c.block(cl, full)
				continue
			}
		}
		return k
	}
	return nil
}

// takeHead takes credit, tokens and slots for the next message of a key that next has returned. The caller delivers
// that message.
func (c *core) takeHead(k *dispatchKey) {
	if cl := k.class; len(cl.flows) > 0 {
		c.admit(cl, k)
	}
	k.visit()
	k.credit -= int64(k.placedCost)
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

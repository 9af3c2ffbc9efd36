package engine

import (
	"iter"
)

// The order of delivery within a queue is weighted deficit round robin over its
// fairness keys (Shreedhar and Varghese, "Efficient Fair Queuing Using Deficit
// Round Robin", 1995). A key that is visited gets a credit of weight x quantum,
// delivers as long as the credit covers the cost of its next message, and keeps
// what is left for its next visit.
//
// The engine does not walk round the keys to find one whose credit suffices. It
// works out in which round that is and keeps the keys in a calendar by that round,
// so a delivery takes O(1) where costs fit into a round, else O(log keys), whatever
// messages cost. The order is that of the walk: each key keeps its position in the
// circle while it has messages, and within a round keys go by their positions. A key
// that joins comes before the key that is next, so each of the others has
// at most one visit before its first. While two keys both have messages and their
// weights do not change, what they got per weight differs by at most
//
//	quantum + Max/weight_i + Max/weight_j
//
// in any interval, where Max is the largest cost that stood at the head of a key:
// the bound of deficit round robin.
//
// # Classes
//
// A class is the keys of a queue whose next messages name the same throttles. It has
// a calendar and a clock of its own. A throttle without room stops the class, not its
// keys one by one: one step, however many keys it has. States and transitions:
//
//	idle     no keys; kept for a while, since the next message may need it
//	open     in the queue's heap, the class whose key is due first delivers next
//	waiting  in the line of a throttle that had no room, see admission.go
//
//	idle → open      a key joins
//	open → waiting   block: a consumer asked and a throttle had no room
//	waiting → open   open: the throttle has room and it is the turn of the class
//	any → idle       the last key leaves
//
// The clock of a class stands still while the class waits. When it opens, all its
// keys are due as many rounds later as the queue has gone on meanwhile, so their
// order and their shares survive, and a class does not catch up on the time in which
// a throttle stopped it.

// scheduler is the order of delivery of a queue. A purge replaces it as a whole.
type scheduler struct {
	queue    *queue
	quantum  int64
	detached bool // the queue was emptied: throttles drop its entries when they meet them

	plain     class             // of the keys whose next message no throttle limits
	classes   map[string]*class // all others, by the numbers of their throttles
	idle      []*class          // without keys, oldest first; those in use again are skipped
	open      timers[*class]
	reserving []*class // hold places in throttles for a message that needs several

	round     int64  // of the visit made last
	last      uint64 // the greatest major of a position
	keys      int    // in calendars
	weight    int64  // of those
	announced bool   // an event has said that the queue has something, and no lease has come back empty since
}

// idleClassesMax bounds the classes without keys that a scheduler keeps.
const idleClassesMax = 64

func newScheduler(q *queue, quantum uint32) *scheduler {
	s := &scheduler{queue: q, quantum: int64(quantum), classes: map[string]*class{}}
	s.plain = class{scheduler: s, at: -1, visits: newVisits()}
	return s
}

// hasOpen says that some class is open: a consumer may find something.
func (s *scheduler) hasOpen() bool { return s.open.len() > 0 }

// loaded says that the key which is due first has its next message in memory.
func (s *scheduler) loaded() bool {
	cl, ok := s.open.next()
	return ok && len(cl.head().window) > 0
}

// all goes through the classes, those without keys as well.
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

// reschedule brings a key's place in the calendars up to date with what the key has.
// settle calls it after every change.
func (c *core) reschedule(k *fairKey) {
	cost, cl := uint32(costMin), k.class
	switch {
	case k.paused || len(k.window) == 0 && (!k.hasBacklog || k.lastReadEmpty):
		if cl != nil {
			c.leaveClass(k)
			c.offerLoaded(k.queue)
		}
		if len(k.window) == 0 && !k.hasBacklog {
			k.credit, k.visited, k.base = 0, false, 0
		}
		return
	case len(k.window) == 0:
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
		k.placedCost = cost // it goes on with its turn, where it stands
		return
	}
	k.accrue()
	cl.remove(k)
	cl.addWeight(int64(k.weight) - int64(k.placedWeight))
	k.schedule(cost)
	cl.fix()
	c.offerLoaded(k.queue)
}

// offerLoaded has a queue served whose first key was on its way from the disk and is
// not the first any more.
func (c *core) offerLoaded(q *queue) {
	if q.waiters.first != nil && q.scheduler.loaded() {
		c.offer(q)
	}
}

// costMin is the least that a delivery can cost.
const costMin = 1

// joinClass puts a key into a class, or moves it there from another one. Its credit and the rounds that it has waited
// stay as they were when it left another one.
func (c *core) joinClass(k *fairKey, cl *class, cost uint32) {
	s := cl.scheduler
	first := cl.keys == 0
	if first {
		cl.state = classOpen
		cl.offset += s.round - cl.stopped // its clock stood still
	} else if cl.state == classWaiting {
		cl.entry.throttle.countWaiting(c.now, 1)
	}
	k.class = cl
	k.refusedBase, k.waitedBase = cl.refused, cl.waitedBy(c.now)
	k.takePosition(cl)
	cl.keys++
	s.keys++
	cl.addWeight(int64(k.weight))
	for i := range cl.slots {
		cl.slots[i].countKeys(1)
	}
	k.schedule(cost)
	if first {
		cl.enter(cost)
		s.open.push(cl)
	} else {
		cl.fix()
	}
	if cl.state == classOpen {
		c.offer(s.queue)
		c.announceReady(s.queue)
	}
}

// leaveClass takes a key out of its class. base holds then how many rounds have passed
// since its last visit.
func (c *core) leaveClass(k *fairKey) {
	cl := k.class
	k.stats.refused, k.stats.waited = cl.sharedBy(k, c.now)
	if cl.state == classWaiting {
		cl.entry.throttle.countWaiting(c.now, -1)
	}
	k.base = cl.present() - k.base
	cl.remove(k)
	k.class = nil
	cl.keys--
	cl.scheduler.keys--
	cl.addWeight(-int64(k.placedWeight))
	for i := range cl.slots {
		cl.slots[i].countKeys(-1)
	}
	if cl.keys > 0 {
		cl.fix()
		return
	}
	c.idleClass(cl)
}

// pick returns the key of a queue whose first message is next, has paid for it and is
// admitted by its throttles; or nil when no key can deliver.
func (c *core) pick(q *queue) *fairKey {
	s := q.scheduler
	for {
		cl, ok := s.open.next()
		if !ok {
			return nil
		}
		k := cl.head()
		if len(k.window) == 0 {
			// Its messages are on their way from the disk. To go on without it would give
			// its share to others, and the read was asked for a round ago.
			return nil
		}
		m := k.window[0]
		if c.ttlExpired(m) || m.throttles != nil && c.classOf(q, m) != cl {
			if c.detached.reclaimed >= c.detached.max {
				c.resume(q) // very many are: other tasks go on first
				return nil
			}
			c.detached.reclaimed++
			if c.ttlExpired(m) {
				c.endTTLAtHead(m)
			} else {
				c.settle(k) // a throttle was set or taken away since the key was placed
			}
			continue
		}
		if len(cl.slots) > 0 {
			if full := cl.full(c.now); full != nil {
				c.block(cl, full)
				continue
			}
			if first := c.yieldsTo(cl); first != nil {
				c.block(cl, first)
				continue
			}
			c.admit(cl, m)
		}
		k.visit()
		k.credit -= int64(m.cost)
		return k
	}
}

// resume has a queue served again in the next turn, which follows at once.
func (c *core) resume(q *queue) {
	c.tasks.unfinished = true
	if !q.resumed {
		q.resumed = true
		c.waits.resumed = append(c.waits.resumed, q)
	}
}

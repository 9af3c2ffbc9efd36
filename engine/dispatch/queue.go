package dispatch

import (
	"iter"
	"slices"
)

// Queue is a queue: the order of its keys, and its place at throttles, which outlives purges.
type Queue struct {
	order     *Order
	owner     any
	scheduler *scheduler
	turns     map[*throttle]float64 // tags at throttles that a purge has ended and no class has continued

	passed              int64 // rounds of the schedulers before this one
	waits, paused, free bool  // see Demand, Pause and Free
	offered             bool  // in Order.offers

	// Announced says that the owner has announced ready messages, and that no consumer has found
	// none since. The owner sets it; it ends when no class is open.
	Announced bool

	throttled throttledKeys
}

// throttledKeys are the sums of what throttles did to the keys of a queue.
type throttledKeys struct {
	admitted, refused uint64
	waitingKeys
}

// NewQueue returns a queue without keys. owner is what Owner returns.
func (o *Order) NewQueue(owner any) *Queue {
	q := &Queue{order: o, owner: owner}
	q.scheduler = newScheduler(q, o.cfg.Quantum)
	return q
}

// Owner returns what NewQueue was given.
func (q *Queue) Owner() any { return q.owner }

// Demand says whether a consumer waits for the queue. Room of throttles is kept for queues with
// demand only. It takes time proportional to the claims of the queue, and to the throttles that save
// tokens for it.
func (q *Queue) Demand(waits bool) {
	if q.waits = waits; waits {
		q.order.demandChanged(q)
	} else {
		q.order.unreserveQueue(q)
	}
}

// Pause says whether deliveries of the queue are paused. See Demand for its time.
func (q *Queue) Pause(paused bool) {
	if q.paused = paused; paused {
		q.order.paused[q] = struct{}{}
		q.order.unreserveQueue(q)
		return
	}
	delete(q.order.paused, q)
	q.order.demandChanged(q)
	q.Offer()
}

// Free says whether budgets are not charged for the messages of the queue, as in a dead-letter queue. Keys
// that are in other classes then are moved by Refresh, or when they come up.
func (q *Queue) Free(free bool) {
	if q.free != free {
		if q.free = free; q.scheduler.last > 0 || len(q.scheduler.classes) > 0 {
			q.order.version++
		}
	}
}

// Leave forgets a queue that is deleted. Its keys must have been detached.
func (q *Queue) Leave() { delete(q.order.paused, q) }

// HasDemand reports whether the queue could deliver if its throttles had room: a consumer waits
// for it, and its deliveries are not paused.
func (q *Queue) HasDemand() bool { return q.waits && !q.paused }

// Offer has Ready return the queue, if a consumer waits for it. It must be called when a consumer
// may get an answer for another reason than a delivery; whatever makes the queue able to deliver
// offers it itself.
func (q *Queue) Offer() {
	if q.waits && !q.offered {
		q.offered = true
		q.order.offers = append(q.order.offers, q)
	}
}

// HasOpen reports whether a class is open, so that a consumer may find a message.
func (q *Queue) HasOpen() bool { return q.scheduler.hasOpen() }

// Loaded reports whether the key that is due first has its next message in memory. If it does
// not, the queue delivers nothing until the read of that key is done.
func (q *Queue) Loaded() bool { return q.scheduler.loaded() }

// First returns the key that is due first among the open classes, nil if there is none.
func (q *Queue) First() *Key {
	if cl := q.scheduler.open.next(); cl != nil {
		return cl.head()
	}
	return nil
}

// Rounds is the number of rounds since the last Replace.
func (q *Queue) Rounds() int64 { return q.scheduler.round }

// Keys is the number of keys that take part in the rounds or wait for throttles.
func (q *Queue) Keys() int { return q.scheduler.keys }

// Tally returns what throttles have done to the keys of the queue until now.
func (q *Queue) Tally() Tally {
	t := &q.throttled
	t.countWaiting(q.order.now, 0)
	return Tally{Admitted: t.admitted, Refused: t.refused, Waited: t.waited}
}

// Detached is what a purge has left of a queue. Throttles pass over its classes; Reclaim releases
// them in portions.
type Detached struct{ scheduler *scheduler }

// Replace empties the queue, in time that does not depend on the number of its keys, and returns
// what is to be reclaimed. The queue keeps its turns at throttles.
func (q *Queue) Replace() *Detached {
	q.order.unreserveQueue(q)
	d := &Detached{q.scheduler}
	d.scheduler.detached = true
	q.passed += d.scheduler.round
	q.scheduler, q.Announced = newScheduler(q, q.order.cfg.Quantum), false
	return d
}

// Reclaim releases up to most classes, and returns how many it has released.
func (d *Detached) Reclaim(most int) (n int) {
	for _, cl := range d.scheduler.classes {
		if n >= most {
			break
		}
		n++
		d.scheduler.queue.order.dropClass(cl)
	}
	return n
}

// Empty reports whether everything has been released.
func (d *Detached) Empty() bool { return len(d.scheduler.classes) == 0 }

// scheduler is the order of delivery of one queue. A purge replaces the scheduler as a whole:
// keys and classes of the old one are detached and reclaimed incrementally.
type scheduler struct {
	queue    *Queue
	quantum  int64
	detached bool // a purge has replaced it: throttles drop its entries when they find them

	plain     class             // of keys whose next message no throttle limits
	classes   map[string]*class // all other classes, by the signature of their throttles
	idle      []*class          // classes without keys, each once, oldest first; may list some that are in use again
	open      classHeap         // open classes
	claiming  []*class          // have a claim, see claims.go
	reserving []*class          // of these, with capacity reserved
	saving    []*throttle       // throttles by cost at which a class of the queue is next

	round  int64  // of the last visit
	last   uint64 // the greatest major of all positions
	keys   int    // keys in all calendars
	weight int64  // of these keys
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
func newScheduler(q *Queue, quantum uint32) *scheduler {
	s := &scheduler{queue: q, quantum: int64(quantum), classes: map[string]*class{}}
	s.plain = class{scheduler: s, at: -1, visits: newVisits()}
	return s
}

// hasOpen reports whether a class is open, so that a consumer may find a message.
func (s *scheduler) hasOpen() bool { return len(s.open) > 0 }

// closed ends the announcement of ready messages if no class is open. What a purge has left says nothing
// of the queue.
func (s *scheduler) closed() {
	if !s.hasOpen() && !s.detached {
		s.queue.Announced = false
	}
}

// loaded reports whether the key that is due first has its next message in memory. If it does
// not, the queue delivers nothing until the read of that key is done.
func (s *scheduler) loaded() bool {
	cl := s.open.next()
	return cl != nil && cl.head().state == Ready
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

// Set says what stands at the head of a key of the queue. It must follow each change of the head, of
// the weight and of a pause, and must not be called for a key of a detached queue. It takes O(1) if
// the key keeps its place, else O(log keys).
func (q *Queue) Set(k *Key, h Head) {
	o, was := q.order, k.state
	if k.state = h.State; was == Empty && k.credit < 0 {
		q.repay(k)
	}
	cl := k.class
	switch h.State {
	case Empty, Stopped:
		if cl != nil {
			o.leaveClass(k)
			o.offerLoaded(q)
		}
		o.limit(k, nil)
		if h.State == Empty && was != Empty {
			q.empty(k)
		}
		return
	case Loading:
		if k.held != 0 {
			return
		}
		if cl == nil {
			cl = &q.scheduler.plain
		}
	case Ready:
		o.limit(k, h.Set)
		if cl = &q.scheduler.plain; h.Set != nil {
			cl = o.place(q, k, h.Set, h.Cost)
		}
		if k.held != 0 && cl == k.class {
			if o.holdsFor(k, &h) {
				return
			}
			o.returnToRing(k)
		}
	}
	if was == Loading && h.State == Ready {
		defer o.offerLoaded(q) // the queue may have waited for this key, which may leave for a class that waits
	}
	if cl != k.class {
		if k.class != nil {
			o.leaveClass(k)
		}
		o.joinClass(k, cl, &h)
		return
	}
	if h.Cost == k.placedCost && h.Weight == k.placedWeight && !k.visited {
		return
	}
	if k.visited && k.credit >= int64(h.Cost) && h.Weight == k.placedWeight {
		k.placedCost = h.Cost // the visit continues at the key's place
		o.fix(cl)
		return
	}
	k.accrue()
	cl.remove(k)
	cl.addWeight(int64(h.Weight) - int64(k.placedWeight))
	k.schedule(h.Cost, h.Weight)
	o.fix(cl)
	o.offerLoaded(q)
}

// place returns the class of a key, as classOf, and moves the keys that have owned throttles of its next message.
func (o *Order) place(q *Queue, k *Key, l *Set, cost uint32) *class {
	cl, before := o.classOf(q, k, l, cost)
	for before != nil {
		before.class.scheduler.queue.again(before)
		cl, before = o.classOf(q, k, l, cost)
	}
	return cl
}

// limit says what limits the next message of a key. While that is not in memory, what limited the one before does.
func (o *Order) limit(k *Key, l *Set) {
	if !k.hasSet && l == nil || k.set == l {
		return
	}
	if k.held == gated {
		o.returnToRing(k)
	}
	o.disown(k)
	k.hasSet, k.set = l != nil, l
}

// offerLoaded has a queue served if it waited for a key whose messages were being read, and
// that key is no longer the first.
func (o *Order) offerLoaded(q *Queue) {
	if q.waits && q.scheduler.loaded() {
		q.Offer()
	}
}

// joinClass adds a key that is in no class to a class. The credit of the key and the number of
// rounds since its last visit are those with which it left its class before.
func (o *Order) joinClass(k *Key, cl *class, h *Head) {
	first := o.openRing(cl)
	k.class = cl
	k.tally.Waited -= cl.waitedBy(o.now) // from here on, without what its class has waited: see Tally
	k.takePosition(cl)
	k.schedule(h.Cost, h.Weight)
	o.joinRing(k, first)
}

// openRing prepares a class for one more key in its calendar, and reports whether it had none:
// then the class is open, and its clock goes on.
func (o *Order) openRing(cl *class) (first bool) {
	if cl.keys > 0 {
		return false
	}
	cl.state = classOpen
	cl.offset += cl.scheduler.round - cl.stopped // its clock was stopped
	return true
}

// joinRing counts a key that has entered the calendar of its class. first is what openRing has
// returned.
func (o *Order) joinRing(k *Key, first bool) {
	cl := k.class
	s := cl.scheduler
	if cl.state == classWaiting {
		cl.countWaiting(o.now, 1)
	}
	cl.keys++
	s.keys++
	cl.addWeight(int64(k.placedWeight))
	for i := range cl.flows {
		o.countKeys(&cl.flows[i], 1)
	}
	if first {
		cl.enter(k.placedCost)
		s.open.push(cl)
	} else {
		o.fix(cl)
		if cl.fresh {
			o.grow(cl)
		}
	}
	if cl.state == classOpen {
		s.queue.Offer()
		o.host.Announce(s.queue)
	}
}

// leaveRing takes a key out of the calendar of its class.
func (o *Order) leaveRing(k *Key) {
	cl := k.class
	if cl.state == classWaiting {
		cl.countWaiting(o.now, -1)
	}
	cl.remove(k)
	cl.keys--
	cl.scheduler.keys--
	cl.addWeight(-int64(k.placedWeight))
	for i := range cl.flows {
		o.countKeys(&cl.flows[i], -1)
	}
	if cl.keys > 0 {
		o.fix(cl)
		return
	}
	o.idleClass(cl)
}

// leaveClass takes a key out of its class. Afterwards, base is the number of rounds since the
// key's last visit: round numbers mean nothing outside the class.
func (o *Order) leaveClass(k *Key) {
	cl := k.class
	o.unloose(k)
	base := cl.present() - k.base
	if k.held != 0 {
		o.unhold(k)
		if cl.keys == 0 {
			o.retain(cl)
		}
	} else {
		o.leaveRing(k)
	}
	k.tally = k.Tally(o.now)
	k.class, k.base = nil, base
}

// Next returns the key of the queue that delivers next, nil if none can deliver now. All of its throttles admit its
// next message, and its budgets cover it. It takes nothing: the caller takes the message (Take) and delivers it, or sets
// another head and asks again.
//
// A key that cannot go is moved on the way, a unit each: to the class that it belongs to since a throttle was set or
// deleted, out of the ring if a budget does not cover it. When the step has no budget left, Next returns nil and the
// queue stays offered: other tasks go on first.
func (q *Queue) Next() *Key {
	o := q.order
	for cl := q.scheduler.open.next(); cl != nil; cl = q.scheduler.open.next() {
		k := cl.head()
		if k.state != Ready {
			// The messages of the key are being read. Skipping the key would give its share to
			// others. The read was requested a round ago, so the wait is short.
			return nil
		}
		stale, own, lacking := false, (*throttle)(nil), -1
		if k.hasSet {
			of, before := o.classOf(q, k, k.set, k.placedCost)
			if stale = of != cl; before != nil {
				k = before
			}
			if q.scheduler.open.next() != cl || cl.head() != k {
				continue // a throttle without limits has returned a key to the ring
			}
			if !stale {
				own = o.closed(k)
			}
		}
		if !stale && len(cl.draws) > 0 {
			lacking = o.lacking(k)
		}
		if stale || own != nil || lacking >= 0 {
			if !o.host.Room() {
				q.Offer()
				return nil
			}
			o.host.Spend(1)
			switch {
			case stale:
				k.class.scheduler.queue.again(k)
			case own != nil:
				o.gate(k, own)
			default:
				o.holdKey(k, lacking)
			}
			continue
		}
		if len(cl.flows) > 0 {
			full := o.full(cl)
			if full == nil {
				full = o.yieldsTo(cl)
			}
			if full != nil {
				o.block(cl, full)
				continue
			}
		}
		return k
	}
	return nil
}

// Take takes credit, tokens, slots and turns for the next message of a key that Next has returned. The caller delivers
// that message, reserves its charge in each of its budgets, and sets the next head.
func (q *Queue) Take(k *Key) {
	cl := k.class
	if len(cl.flows) > 0 {
		q.order.admit(cl, k)
	} else if k.hasSet {
		q.order.consume(k)
	}
	k.visit()
	k.credit -= int64(k.placedCost)
	if len(cl.draws) > 0 {
		q.order.charge(cl, k, false)
	}
	if k.hasSet {
		q.order.useUnset(k.set)
	}
}

// Follows reports whether the next message of a key may be delivered together with the one that the key has delivered
// last, ahead of its turn: all of its throttles admit it without what they keep for a claim, its budgets cover it,
// and no other class or key is served before it in their lines. It takes nothing; see TakeAhead.
func (q *Queue) Follows(k *Key) bool {
	o := q.order
	for k.state == Ready && k.held == 0 && k.class.state == classOpen {
		if !k.hasSet {
			return true
		}
		of, before := o.classOf(q, k, k.set, k.placedCost)
		switch {
		case before != nil:
			before.class.scheduler.queue.again(before)
		case of != k.class:
			q.again(k)
		default:
			full := slices.ContainsFunc(of.flows, func(s flow) bool {
				return !s.throttle.admits(o.now, s.throttle.needOf(k.placedCost))
			})
			return !full && o.closed(k) == nil && (len(of.draws) == 0 || o.lacking(k) < 0)
		}
		o.host.Spend(1)
	}
	return false
}

// TakeAhead is Take for a message that Follows has admitted. The cost is credit that the key spends ahead: its next
// turns pay for it, and at a shared throttle or budget those of its class and queue.
func (q *Queue) TakeAhead(k *Key) {
	o, cl := q.order, k.class
	if len(cl.flows) > 0 {
		o.admitAhead(cl, k)
	} else if k.hasSet {
		o.consume(k)
	}
	if k.visited {
		k.credit -= int64(k.placedCost)
	} else {
		k.accrue()
		cl.remove(k)
		k.credit -= int64(k.placedCost)
		k.schedule(k.placedCost, k.placedWeight)
		o.fix(cl)
		o.offerLoaded(q)
	}
	if len(cl.draws) > 0 {
		o.charge(cl, k, true)
	}
	if k.hasSet {
		o.useUnset(k.set)
	}
}

// empty ends the credit of a key that has no message any more. What it has spent ahead it owes, and the rounds of its
// queue pay for that, as they would if it had messages.
func (q *Queue) empty(k *Key) {
	if k.credit < 0 {
		k.credit = min(k.credit+k.base*int64(k.placedWeight)*q.scheduler.quantum, 0)
	} else {
		k.credit = 0
	}
	k.visited, k.base, k.due = false, 0, q.clock()
}

// repay lets the rounds since an empty key was looked at last pay for what it owes.
func (q *Queue) repay(k *Key) {
	k.credit = min(k.credit+max(q.clock()-k.due, 0)*int64(max(k.placedWeight, 1))*q.scheduler.quantum, 0)
	k.due = q.clock()
}

// clock is the number of rounds of the queue, those before a Replace included.
func (q *Queue) clock() int64 { return q.passed + q.scheduler.round }

// Debt returns what an empty key owes, and Owe gives it to a new key of that name, before its first Set.
func (k *Key) Debt() Debt {
	if k.state != Empty || k.credit >= 0 {
		return Debt{}
	}
	return Debt{Cost: -k.credit, Round: k.due, Weight: k.placedWeight}
}

// Owe gives a new key what an earlier key of its name owes.
func (k *Key) Owe(d Debt) {
	if d.Cost > 0 {
		k.credit, k.due, k.placedWeight = -d.Cost, d.Round, d.Weight
	}
}

// again sets the head of a key that it has already: its class may be another one now.
func (q *Queue) again(k *Key) {
	h := Head{State: k.state, Weight: k.placedWeight, Cost: k.placedCost}
	if k.hasSet {
		h.Set = k.set
	}
	q.Set(k, h)
}

// Refresh moves a key to the class that its next message belongs to now: a throttle was set for the first time or
// deleted, or the queue has become free. Next does it for the key that comes up first, so it may be done in slices.
func (q *Queue) Refresh(k *Key) {
	if k.class != nil && k.state == Ready && k.hasSet {
		if q.order.place(q, k, k.set, k.placedCost) != k.class {
			q.again(k)
		}
	}
}

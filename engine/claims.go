package engine

import (
	"math"
	"slices"
)

// A class that needs several throttles would starve beside classes that need only one of them:
// whenever one of its throttles has room, another one is full. A claim prevents that.
//
// # Life cycle of a claim
//
//	none → waiting        mayClaim: at each of its throttles that is full, others have
//	                      been served a whole turn ahead of the class
//	waiting → reserving   advanceClaim: it is first at all of its throttles
//	reserving → waiting   unreserve: a lower claim takes over, or a reservation expires
//	any → none            admit: the class delivers; or idleClass, dropClass: it has no
//	                      keys left or its queue was purged
//
// Rules:
//
//   1. Claims have numbers, in the order of their creation.
//   2. A claim is first at a throttle if it has the lowest number among the claims whose queues
//      have demand. A claim that is first at all of its throttles reserves the room that
//      appears at them, at most the tokens and the slot of one delivery at each, and takes over what a later
//      claim has reserved.
//   3. When all of its throttles have room, including what is reserved, the class delivers and
//      the claim ends. The class needs no claim for the turns that it has missed before: its
//      start tags are behind, so its turn comes first when room appears again.
//   4. A reservation ends after a bounded time, see throttle.reserveFor.
//   5. When the queue has no waiting consumer left, or is paused, its reservations end at once.
//
// A claim with reservations waits for leases to end and for tokens, never for another claim:
// claims with lower numbers take over its reservations. So there is no deadlock, and a claim
// waits at most for the claims before it and one lease at each of its throttles.

// passedOver reports whether others have been served a whole turn ahead of the class at each of
// its throttles, except those with room. The throttle whose room is being given away counts as
// one without room.
func (c *core) passedOver(cl *class) bool {
	passed := false
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.passedOver(cl) {
			passed = true
		} else if s.throttle == c.throttles.waking || !s.admits(c.now) {
			return false
		}
	}
	return passed
}

// passedOver reports whether others have been served a whole turn ahead of the class at this
// throttle: other classes of its queue, or other queues while the class is the next one of its
// own.
func (s *flow) passedOver(cl *class) bool {
	const rounding = 1e-9
	if s.entry.vtime-s.tag >= cl.share()-rounding {
		return true
	}
	next, ok := s.entry.waiting.next()
	return s.throttle.vtime-s.entry.turn >= 1-rounding && (!ok || next == cl || s.tag <= next.tag)
}

// mayClaim gives a waiting class a claim if it needs several throttles, has none yet, and has
// been passed over.
func (c *core) mayClaim(cl *class) {
	if len(cl.flows) < 2 || cl.claim != 0 || !cl.scheduler.queue.hasDemand() || !c.passedOver(cl) {
		return
	}
	c.throttles.order++
	cl.claim = c.throttles.order
	for i := range cl.flows {
		t := cl.flows[i].throttle
		t.claims = append(t.claims, cl)
		c.notify(t)
	}
}

// endClaim ends the claim of a class, if it has one, and wakes the throttles for what it has
// reserved.
func (c *core) endClaim(cl *class) {
	if cl.claim == 0 {
		return
	}
	c.unreserveAll(cl)
	cl.claim = 0
	for i := range cl.flows {
		t := cl.flows[i].throttle
		at := slices.Index(t.claims, cl)
		t.claims = slices.Delete(t.claims, at, at+1)
		if !cl.scheduler.detached {
			c.notify(t)
		}
	}
}

// unreserveAll ends all reservations of a class. The claim remains.
func (c *core) unreserveAll(cl *class) {
	for i := range cl.flows {
		if s := &cl.flows[i]; s.reserved {
			c.unreserve(s)
		}
	}
	s := cl.scheduler
	if at := slices.Index(s.reserving, cl); at >= 0 {
		s.reserving = slices.Delete(s.reserving, at, at+1)
	}
}

// unreserve ends the reservation at one throttle.
func (c *core) unreserve(s *flow) {
	t := s.throttle
	s.reserved, t.reservedFor, t.reserved = false, nil, 0
	c.notify(t)
}

// unreserveQueue ends the reservations of a queue that has no demand any more: its last waiting
// consumer has left, or its deliveries have been paused.
func (c *core) unreserveQueue(q *queue) {
	for len(q.scheduler.reserving) > 0 {
		c.unreserveAll(q.scheduler.reserving[0])
	}
}

// firstClaim returns the class with the lowest claim at the throttle whose queue can use the
// room now, or nil.
func (t *throttle) firstClaim() *class {
	for _, cl := range t.claims {
		if !cl.scheduler.detached && cl.scheduler.queue.hasDemand() {
			return cl
		}
	}
	return nil
}

// claimNeed is how many tokens the first claim at the throttle takes, or the oldest one while no
// queue can use the room. ok is false if there is no claim.
func (t *throttle) claimNeed() (need int64, ok bool) {
	if len(t.claims) == 0 {
		return 0, false
	}
	cl := t.firstClaim()
	if cl == nil {
		cl = t.claims[0]
	}
	return cl.flowAt(t).need, true
}

// advanceClaim advances the first claim at a throttle if it is the first one at all of its
// throttles: it reserves their room or, once all of them have room, lets the class deliver. It
// reports whether the class has delivered.
func (c *core) advanceClaim(t *throttle) bool {
	cl := t.firstClaim()
	if cl == nil || cl.state != classWaiting {
		return false
	}
	room := true
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.throttle.firstClaim() != cl {
			return false
		}
		room = room && s.throttle.admitsReserved(c.now, s.need)
	}
	for i := range cl.flows {
		switch s := &cl.flows[i]; {
		case room || c.mayReserve(cl, s):
			c.reserve(cl, s)
		case s.reserved:
			c.unreserve(s)
		}
	}
	if !room {
		return false
	}
	n := cl.claim
	c.open(cl)
	c.serveQueue(cl.scheduler.queue)
	if cl.claim == n { // the class has delivered nothing
		c.endClaim(cl)
		return false
	}
	return true
}

// mayReserve reports whether the room of a throttle may be reserved for a class that waits for
// another one of its throttles. It may not if the wait for the other throttle is expected to be
// much longer than the time to this throttle's next room: other classes can use the room in the
// meantime.
func (c *core) mayReserve(cl *class, s *flow) bool {
	if !s.throttle.admitsReserved(c.now, s.need) {
		return false
	}
	for i := range cl.flows {
		if o := &cl.flows[i]; o != s && !o.reserved && !o.admits(c.now) && o.throttle.wait(c.now, o.need) > s.throttle.reserveFor(s.need) {
			return false
		}
	}
	return true
}

// reserve reserves the tokens and a concurrency slot of a throttle for a delivery of a class,
// unless it has none to give. It takes over the reservation of another class.
func (c *core) reserve(cl *class, s *flow) {
	t := s.throttle
	if s.reserved {
		return
	}
	if o := t.reservedFor; o != nil {
		for i := range o.flows {
			if o.flows[i].throttle == t {
				c.unreserve(&o.flows[i])
			}
		}
	}
	if !t.admits(c.now, s.need) {
		return
	}
	t.reservedFor, t.reserved, s.reserved = cl, s.need, true
	if !slices.Contains(cl.scheduler.reserving, cl) {
		cl.scheduler.reserving = append(cl.scheduler.reserving, cl)
	}
	c.arm(t)
}

// reservedUntil is the time at which the reservation at the throttle ends at the latest, as far
// as is known now; math.MaxInt64 if no limit is known. The throttle must have a reservation.
func (t *throttle) reservedUntil(now int64) int64 {
	until := int64(math.MaxInt64)
	for i := range t.reservedFor.flows {
		o := &t.reservedFor.flows[i]
		if o.throttle != t && !o.reserved && !o.admits(now) && !o.throttle.slotsBeside(0) {
			until = min(until, o.throttle.freedAt+int64(min(t.reserveFor(t.reserved), float64(durationMax)))+1)
		}
	}
	return until
}

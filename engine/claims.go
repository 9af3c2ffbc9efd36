package engine

import (
	"math"
	"slices"
)

// A class that needs several throttles would starve beside classes that need one of
// them: whenever one has room, another is full. So when others have had a turn more than
// it at each of its throttles that has no room, the class has a claim:
//
//	1. Claims have numbers, in the order in which they came about.
//	2. A claim that has the lowest number at each of its throttles, among those whose
//	   queue has a consumer waiting, keeps the room that becomes free at them, one
//	   place or token at a throttle, and takes over what a later claim has kept.
//	3. When all its throttles have room, counting what is kept, the class delivers
//	   and the claim ends. What it was passed over before lets it go on without
//	   one: its tags are behind, so it is its turn again when the room comes back.
//	4. Room is kept for a bounded time, see throttle.reserveFor.
//	5. Where the queue has no consumer waiting any more, or is paused, what is kept is
//	   given back at once.
//
// A claim that keeps room waits for leases to end and for tokens, never for another
// claim: those with lower numbers take over what it keeps. So there is no deadlock, and
// a claim waits for the claims before it and one lease at each of its throttles.

// passedOver says that others have had a turn more than the class at each of its
// throttles, but those that have room. The one whose room is being given away counts.
func (c *core) passedOver(cl *class) bool {
	passed := false
	for i := range cl.slots {
		s := &cl.slots[i]
		if s.passedOver(cl) {
			passed = true
		} else if s.throttle == c.throttles.waking || s.room(c.now) < 1 {
			return false
		}
	}
	return passed
}

// passed says that others have had a turn more than the class at the throttle: classes of
// its queue, or other queues while it is next in its own.
func (s *slot) passedOver(cl *class) bool {
	const rounding = 1e-9
	if s.entry.vtime-s.tag >= cl.share()-rounding {
		return true
	}
	next, ok := s.entry.waiting.next()
	return s.throttle.vtime-s.entry.turn >= 1-rounding && (!ok || next == cl || s.tag <= next.tag)
}

// mayClaim gives a waiting class a claim on its throttles if it is due one.
func (c *core) mayClaim(cl *class) {
	if len(cl.slots) < 2 || cl.claim != 0 || !cl.scheduler.queue.hasDemand() || !c.passedOver(cl) {
		return
	}
	c.throttles.order++
	cl.claim = c.throttles.order
	for i := range cl.slots {
		t := cl.slots[i].throttle
		t.claims = append(t.claims, cl)
		c.notify(t)
	}
}

// endClaim gives back what a claim has kept, for the class itself or for others.
func (c *core) endClaim(cl *class) {
	if cl.claim == 0 {
		return
	}
	c.unreserveAll(cl)
	cl.claim = 0
	for i := range cl.slots {
		t := cl.slots[i].throttle
		at := slices.Index(t.claims, cl)
		t.claims = slices.Delete(t.claims, at, at+1)
		if !cl.scheduler.detached {
			c.notify(t)
		}
	}
}

// unreserveAll gives back the room that is kept for a class.
func (c *core) unreserveAll(cl *class) {
	for i := range cl.slots {
		if s := &cl.slots[i]; s.reserved {
			c.unreserve(s)
		}
	}
	s := cl.scheduler
	if at := slices.Index(s.reserving, cl); at >= 0 {
		s.reserving = slices.Delete(s.reserving, at, at+1)
	}
}

func (c *core) unreserve(s *slot) {
	t := s.throttle
	s.reserved, t.reservedFor = false, nil
	c.notify(t)
}

// unreserveQueue gives back what is kept for a queue whose last consumer has gone.
func (c *core) unreserveQueue(q *queue) {
	for len(q.scheduler.reserving) > 0 {
		c.unreserveAll(q.scheduler.reserving[0])
	}
}

// firstClaim returns the first claim on the throttle whose queue can use it now.
func (t *throttle) firstClaim() *class {
	for _, cl := range t.claims {
		if !cl.scheduler.detached && cl.scheduler.queue.hasDemand() {
			return cl
		}
	}
	return nil
}

// advanceClaim keeps the throttle's room for the first claim on it, if that is the first at
// all of its throttles, and lets the class deliver once they all have room. It reports
// whether the class has delivered.
func (c *core) advanceClaim(t *throttle) bool {
	cl := t.firstClaim()
	if cl == nil || cl.state != classWaiting {
		return false
	}
	room := true
	for i := range cl.slots {
		s := &cl.slots[i]
		if s.throttle.firstClaim() != cl {
			return false
		}
		room = room && s.throttle.roomWithReserved(c.now, 0) >= 1
	}
	for i := range cl.slots {
		switch s := &cl.slots[i]; {
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
	if cl.claim == n { // it could not be used after all
		c.endClaim(cl)
		return false
	}
	return true
}

// keeps says that room of a throttle is kept for a class that waits for another one of
// its throttles. It is not while the other one has to be waited for much longer than for
// the next room of this one, which others can use until then.
func (c *core) mayReserve(cl *class, s *slot) bool {
	if s.throttle.roomWithReserved(c.now, 0) < 1 {
		return false
	}
	for i := range cl.slots {
		if o := &cl.slots[i]; o != s && !o.reserved && o.room(c.now) < 1 && o.throttle.wait(c.now) > s.throttle.reserveFor() {
			return false
		}
	}
	return true
}

// keep keeps a place, and a token, of a throttle for a class.
func (c *core) reserve(cl *class, s *slot) {
	t := s.throttle
	if s.reserved {
		return
	}
	if o := t.reservedFor; o != nil {
		for i := range o.slots {
			if o.slots[i].throttle == t {
				c.unreserve(&o.slots[i])
			}
		}
	}
	if t.room(c.now) < 1 {
		return
	}
	t.reservedFor, s.reserved = cl, true
	if !slices.Contains(cl.scheduler.reserving, cl) {
		cl.scheduler.reserving = append(cl.scheduler.reserving, cl)
	}
	c.arm(t)
}

// reservedUntil is when room that is kept is given back at the latest, as far as is known.
func (t *throttle) reservedUntil(now int64) int64 {
	until := int64(math.MaxInt64)
	for i := range t.reservedFor.slots {
		o := &t.reservedFor.slots[i]
		if o.throttle != t && !o.reserved && o.room(now) < 1 && o.throttle.placesFull() {
			until = min(until, o.throttle.freedAt+int64(min(t.reserveFor(), float64(durationMax)))+1)
		}
	}
	return until
}

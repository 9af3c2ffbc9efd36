package dispatch

import (
	"cmp"
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
// its throttles, except those with room for it. A throttle that still has to give its room away, as it is listed,
// has none for a class that comes after the first one in its line, and the one under the cursor of grant has none.
func (o *Order) passedOver(cl *class) bool {
	passed := false
	for i := range cl.flows {
		switch s := &cl.flows[i]; {
		case s.passedOver(cl):
			passed = true
		case s.throttle == o.grants.throttle || !cl.admits(s, o.now):
			return false
		case s.throttle.listed:
			if first := s.turnAt(o); first != nil && s.isAfter(first, cl, 0) {
				return false
			}
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
	next, ok := s.entry.waiting.First()
	return s.throttle.vtime-s.entry.turn >= s.throttle.length(cl.need(s))-rounding && (!ok || next == cl || s.tag <= next.tag)
}

// mayClaim gives a waiting class a claim if it needs several throttles, has none yet, and has
// been passed over.
func (o *Order) mayClaim(cl *class) {
	if len(cl.flows) < 2 || cl.claim != 0 || !cl.scheduler.queue.HasDemand() || !o.passedOver(cl) {
		return
	}
	o.number++
	cl.claim = o.number
	for i := range cl.flows {
		t := cl.flows[i].throttle
		t.claims = append(t.claims, cl)
		cl.watchBudgets(t)
		o.list(t)
	}
	cl.scheduler.claiming = append(cl.scheduler.claiming, cl)
}

// endClaim ends the claim of a class, if it has one, and wakes the throttles for what it has
// reserved.
func (o *Order) endClaim(cl *class) {
	if cl.claim == 0 {
		return
	}
	o.unreserveAll(cl)
	cl.claim = 0
	s := cl.scheduler
	at := slices.Index(s.claiming, cl)
	s.claiming = slices.Delete(s.claiming, at, at+1)
	for i := range cl.flows {
		t := cl.flows[i].throttle
		at := slices.Index(t.claims, cl)
		t.claims = slices.Delete(t.claims, at, at+1)
		cl.unwatchBudgets(t)
		if !cl.scheduler.detached {
			o.list(t)
		}
	}
}

// unreserveAll ends all reservations of a class. The claim remains.
func (o *Order) unreserveAll(cl *class) {
	for i := range cl.flows {
		if s := &cl.flows[i]; s.reserved {
			o.unreserve(s)
		}
	}
	s := cl.scheduler
	if at := slices.Index(s.reserving, cl); at >= 0 {
		s.reserving = slices.Delete(s.reserving, at, at+1)
	}
}

// unreserve ends the reservation at one throttle.
func (o *Order) unreserve(s *flow) {
	t := s.throttle
	s.reserved, t.reservedFor, t.reserved = false, nil, 0
	o.list(t)
}

// unreserveQueue ends the reservations of a queue that has no demand any more: its last waiting
// consumer has left, or its deliveries have been paused.
func (o *Order) unreserveQueue(q *Queue) {
	for len(q.scheduler.reserving) > 0 {
		o.unreserveAll(q.scheduler.reserving[0])
	}
	o.demandChanged(q)
}

// firstClaim returns the class with the lowest claim at the throttle whose queue can use the
// room now, or nil.
func (t *throttle) firstClaim() *class {
	for _, cl := range t.claims {
		if !cl.scheduler.detached && cl.scheduler.queue.HasDemand() {
			return cl
		}
	}
	return nil
}

// nextClaim returns the class with the lowest claim at the throttle that waits for room, or nil.
func (t *throttle) nextClaim() *class {
	cl := t.firstClaim()
	if cl == nil && len(t.claims) > 0 {
		cl = t.claims[0] // its queue may get demand
	}
	if cl == nil || !t.slotsBeside(0) { // it takes over what is reserved
		return nil
	}
	return cl
}

// claimFits reports whether the class has a claim that is first at all of its throttles, and all of them have room for it,
// with what is reserved for later ones.
func (cl *class) claimFits(now int64) bool {
	if cl.claim == 0 {
		return false
	}
	for i := range cl.flows {
		if s := &cl.flows[i]; s.throttle.firstClaim() != cl || !s.throttle.admitsReserved(now, cl.need(s)) {
			return false
		}
	}
	return true
}

// advanceClaim advances the first claim at a throttle if it is the first one at all of its
// throttles: it reserves their room or, once all of them have room, returns the class, which may
// deliver.
func (o *Order) advanceClaim(t *throttle) *class {
	cl := t.firstClaim()
	if cl == nil || cl.state != classWaiting || o.holdUncovered(cl) {
		return nil
	}
	room := true
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.throttle.firstClaim() != cl {
			return nil
		}
		room = room && s.throttle.admitsReserved(o.now, cl.need(s))
	}
	for i := range cl.flows {
		switch s := &cl.flows[i]; {
		case room || o.mayReserve(cl, s):
			o.reserve(cl, s)
		case s.reserved:
			o.unreserve(s)
		}
	}
	if !room {
		return nil
	}
	return cl
}

// mayReserve reports whether the room of a throttle may be reserved for a class that waits for
// another one of its throttles. Under a throttle by cost, this is where tokens accumulate for the
// class: they may be reserved before they are all there. Room may not be reserved if the wait for the other throttle is expected to be
// much longer than the time to this throttle's next room: other classes can use the room in the
// meantime.
func (o *Order) mayReserve(cl *class, s *flow) bool {
	t := s.throttle
	if !t.slotsBeside(0) || !t.set.ByCost && !t.holds(o.now, t.required(cl.need(s))) {
		return false
	}
	for i := range cl.flows {
		if other := &cl.flows[i]; other != s && (!other.reserved || other.throttle.set.ByCost) && !cl.admits(other, o.now) && other.throttle.wait(o.now, cl.wanted(other)) > t.reserveFor(cl.need(s)) {
			return false
		}
	}
	return true
}

// reserve reserves the tokens and a concurrency slot of a throttle for a delivery of a class,
// unless it has none to give. It takes over the reservation of another class.
func (o *Order) reserve(cl *class, s *flow) {
	t := s.throttle
	if s.reserved { // the next message of the class may be another one now
		was := t.reserved
		if t.reserved = t.required(cl.need(s)); t.reserved < was {
			o.list(t)
		}
		return
	}
	if other := t.reservedFor; other != nil {
		for i := range other.flows {
			if other.flows[i].throttle == t {
				o.unreserve(&other.flows[i])
			}
		}
	}
	need := cl.need(s)
	if !t.slotsBeside(0) || !t.set.ByCost && !t.holds(o.now, t.required(need)) {
		return
	}
	t.reservedFor, t.reserved, s.reserved = cl, t.required(need), true
	if !slices.Contains(cl.scheduler.reserving, cl) {
		cl.scheduler.reserving = append(cl.scheduler.reserving, cl)
	}
	o.arm(t)
}

// reservedUntil is the time at which the reservation at the throttle ends at the latest, as far
// as is known now; math.MaxInt64 if no limit is known. The throttle must have a reservation.
func (t *throttle) reservedUntil(now int64) int64 {
	cl, until := t.reservedFor, int64(math.MaxInt64)
	most := int64(min(t.reserveFor(cl.need(cl.flowAt(t))), float64(waitMax))) // as in mayReserve
	for i := range cl.flows {
		o := &cl.flows[i]
		switch {
		case o.throttle == t:
		case o.throttle.heldUntil != 0:
			if o.throttle.heldUntil-now > most {
				return now
			}
		case !o.reserved && !cl.admits(o, now) && !o.throttle.slotsBeside(0):
			until = min(until, o.throttle.freedAt+most+1)
		}
	}
	return until
}

// # Saving tokens
//
// Under a throttle by cost, the tokens for a dear message take long to accumulate, and cheap
// messages could take them away for ever. So they are saved for the class that is next in the
// line of the throttle:
//
//   1. No class may take them that comes after it in the order of line.go: one that asks
//      waits in the line (saved), and grant gives the room away from the front of the line only.
//   2. Nothing is saved for a queue without demand. grant passes over its entry, and looks again
//      when a queue gets or loses demand (demandChanged).
//   3. Nothing is saved for a class that another of its throttles stops for longer. The class
//      waits there instead (standAside), also when that throttle is used up later (usedRoom).
//      Such a class gets its tokens by a claim, if others pass it over.

// save records the class that is next at a throttle by cost, and returns when the throttle must
// look again for another reason than tokens, in Unix nanoseconds: at once if that class cannot
// use them.
func (o *Order) save(t *throttle) int64 {
	var first *class
	if e, ok := t.line.First(); ok && t.set.ByCost {
		first, _ = e.waiting.First()
	}
	if old := t.first; old != first {
		if old != nil {
			old.scheduler.saving = without(old.scheduler.saving, t)
			old.unwatchBudgets(t)
			for i := range old.flows {
				old.flows[i].throttle.savers = without(old.flows[i].throttle.savers, t)
			}
		}
		if t.first = first; first != nil {
			first.scheduler.saving = append(first.scheduler.saving, t)
			first.watchBudgets(t)
			for i := range first.flows {
				if other := first.flows[i].throttle; other != t {
					other.savers = append(other.savers, t)
				}
			}
		}
	}
	if t.line.Len() > 0 && t.set.ByCost && t.turnOf() == nil {
		return o.now + 1
	}
	return math.MaxInt64
}

// # Own throttles and budgets
//
// Nothing is kept for a class whose next message cannot go for another reason, neither room nor tokens: before a
// throttle opens a class, saves for it or advances its claim, holdUncovered takes the keys out of
// the ring whose own throttles are full, or whose budgets do not cover them. When credits go, the throttles look again that keep
// something for a class that names the budget (drained).

// holdUncovered takes the first keys of a waiting class out of the ring for as long as their own throttles have no room
// for their next messages, or a budget does not cover them. It reports whether none is left, and the class is idle.
func (o *Order) holdUncovered(cl *class) bool {
	for o.host.Room() && cl.keys > 0 && cl.head().state == Ready {
		k := cl.head()
		own := o.closed(k)
		i := slices.IndexFunc(cl.draws, func(d *draw) bool {
			b := d.line.budget
			return b == nil || !b.Covers(k.set.Charge)
		})
		switch {
		case own != nil:
			o.gate(k, own)
		case i >= 0:
			o.holdKey(k, i)
		default:
			return false
		}
		o.host.Spend(1)
	}
	return cl.keys == 0
}

// drained has the throttles look again that keep something for a class that names a budget, whose
// credits have become fewer.
func (o *Order) drained(l *line) {
	if l == nil {
		return
	}
	for _, t := range l.watched {
		o.list(t)
	}
	o.host.Spend(len(l.watched) / 8) // most of them are listed already
}

// watchBudgets lists a throttle, which keeps something for the class, with each of its budgets.
func (cl *class) watchBudgets(t *throttle) {
	for _, d := range cl.draws {
		d.line.watched = append(d.line.watched, t)
	}
}

// unwatchBudgets is the reverse of watchBudgets.
func (cl *class) unwatchBudgets(t *throttle) {
	for _, d := range cl.draws {
		d.line.watched = without(d.line.watched, t)
	}
}

// without returns the list without one throttle.
func without(list []*throttle, t *throttle) []*throttle {
	if i := slices.Index(list, t); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// saved reports whether the tokens of a throttle by cost are saved for a class that comes before
// this one. While the throttle gives its room away, only the class that it has opened may take it.
func (o *Order) saved(cl *class, s *flow) bool {
	t := s.throttle
	if s.reserved {
		return false
	}
	if t == o.grants.throttle {
		return cl.entry == nil || cl.entry.throttle != t
	}
	first := t.turnOf()
	if first == nil {
		return false
	}
	if first != s.entry {
		return s.entry.at >= 0 || first.turn <= max(s.entry.turn, t.vtime-s.entry.slack())
	}
	other, _ := first.waiting.First()
	return cmp.Or(cmp.Compare(other.tag, cl.tagAt(s)), other.head().compare(cl.head())) < 0
}

// roomAt is when a throttle that does not admit the class will have the tokens for it, or for the
// class before it; math.MaxInt64 if it waits for a lease to end.
func (o *Order) roomAt(cl *class, s *flow) int64 {
	t := s.throttle
	switch {
	case !s.hasSlot():
		return math.MaxInt64
	case !cl.holds(s, o.now):
		return t.holdsAt(o.now, cl.wanted(s))
	case s.reserved:
		return o.now
	default:
		return t.holdsAt(o.now, t.required(t.nextNeed())+t.reserved)
	}
}

// standAside moves a class that waits for the tokens of a throttle by cost to the line of another
// of its throttles, if it waits for that one longer. It reports whether it has moved the class.
func (o *Order) standAside(cl *class) bool {
	at := o.roomAt(cl, cl.flowAt(cl.entry.throttle))
	for i := range cl.flows {
		s := &cl.flows[i]
		if s.entry == cl.entry || cl.admits(s, o.now) && (!s.throttle.set.ByCost || !o.saved(cl, s)) || o.roomAt(cl, s) <= at {
			continue
		}
		o.leaveLine(cl)
		o.waitAt(cl, s)
		return true
	}
	return false
}

// usedRoom has a throttle by cost, and those that save tokens for a class that needs this
// throttle, too, look again after a delivery: another class may be next, or its class stopped.
func (o *Order) usedRoom(t *throttle) {
	if t.set.ByCost && t != o.grants.throttle {
		o.list(t)
	}
	for _, saver := range t.savers {
		o.list(saver)
	}
}

// demandChanged has throttles look again when the first consumer of a queue begins to wait, its
// last one no longer waits, or it is paused or resumed: those that save tokens for the queue, or
// do not, and those at which another claim is first now, or its own one.
func (o *Order) demandChanged(q *Queue) {
	for _, t := range q.scheduler.saving {
		o.list(t)
	}
	o.host.Spend(len(q.scheduler.claiming))
	for _, cl := range q.scheduler.claiming {
		for i := range cl.flows {
			if t := cl.flows[i].throttle; len(t.claims) > 1 || i == 0 { // one of them is enough to serve its own claim
				o.list(t)
			}
		}
	}
}

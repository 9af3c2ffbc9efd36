package dispatch

// A throttle that the next message of one key alone names is the key's own. It stops that key and no class: with a
// limit for each tenant, a class for each would cost more memory than the rest of the key. Where a message names a
// throttle of others as well, all of its throttles have classes: its class has turns at each, and claims (claims.go).
// The states of a throttle:
//
//	free     the next message of no key names it
//	own      that of one key names it, its owner, and no shared throttle
//	shared   classes wait in its line, until the throttle is deleted
//
//	free → own      own: the next message of a key names it
//	own → free      disown: the owner has another next message, or none
//	any → shared    own: the next messages of two keys name it, or one that names a shared throttle
//
// A key whose own throttle has no room is gated: it leaves the ring, as one does that waits for a budget (gate.go), and
// keeps its place, its credit and the distance to its last visit:
//
//	in the ring → gated   gate: Next has come to it
//	gated → in the ring   openGate: the throttle is listed and has room; or the key has another next message
//
// No other key can take the room, so there is no order to keep, and nothing to reserve.

// gated is Key.held of a key that its own throttle has stopped. A message has fewer budgets.
const gated = 255

// own makes a key the owner of all throttles of its next message and returns true, if none of them is shared or owned by
// another key. Else they are shared. before is a key that has owned one: it must be moved (Queue.again), and own asked
// again.
func (o *Order) own(k *Key, ts []*throttle) (owns bool, before *Key) {
	owns = true
	for _, t := range ts {
		if t.owner != nil && t.owner != k && t.owner.class.scheduler.detached {
			o.free(t)
		}
		owns = owns && !t.shared && (t.owner == nil || t.owner == k)
	}
	for _, t := range ts {
		if owns {
			t.owner = k
			o.named(t)
			continue
		}
		if t.gating {
			o.returnToRing(t.owner)
		}
		if t.owner != k {
			before = t.owner
		}
		t.grow(o.now)
		t.owner, t.shared = nil, true
		o.lookAtUse(t) // until the key is in a class that names it
		if before != nil {
			return false, before
		}
	}
	return owns, nil
}

// disown frees the throttles that a key owns. None of them gates it.
func (o *Order) disown(k *Key) {
	if k.set == nil {
		return
	}
	for _, t := range k.set.set {
		if t.owner == k {
			t.owner = nil
			o.lookAtUse(t)
		}
	}
}

// free frees a throttle whose owner is of a detached queue, if it has one.
func (o *Order) free(t *throttle) {
	if t.gating {
		o.ungate(t.owner)
	}
	t.owner = nil
	o.lookAtUse(t)
}

// closed returns the first of the own throttles of a key that has no room for its next message, or nil.
func (o *Order) closed(k *Key) *throttle {
	if !k.hasSet {
		return nil
	}
	for i, t := range k.set.set {
		if t.owner == k && !t.admits(o.now, k.set.need(i, k.placedCost)) {
			return t
		}
	}
	return nil
}

// gate takes a key out of the ring until its own throttle has room.
func (o *Order) gate(k *Key, t *throttle) {
	cl := k.class
	s := cl.scheduler
	o.unloose(k)
	cl.gated++
	o.leaveRing(k)
	s.keys++ // it takes part: see Queue.Keys and Key.Share
	s.weight += int64(k.placedWeight)
	k.held, t.gating = gated, true
	k.tally.Waited += cl.waitedBy(o.now) - o.now // the class's clock is not the key's from here on
	k.tally.Refused++
	t.countRefused()
	s.queue.throttled.refused++
	t.gateWaited -= o.now
	t.countOfPattern(o.now, 1)
	s.queue.throttled.countWaiting(o.now, 1)
	o.armOwn(t)
}

// ungate is the reverse of gate. The key is in no ring afterwards.
func (o *Order) ungate(k *Key) {
	cl, t := k.class, k.gatedBy()
	s := cl.scheduler
	cl.gated--
	s.keys--
	s.weight -= int64(k.placedWeight)
	k.held, t.gating = 0, false
	k.tally.Waited += o.now - cl.waitedBy(o.now)
	t.gateWaited += o.now
	t.countOfPattern(o.now, -1)
	s.queue.throttled.countWaiting(o.now, -1)
	o.disarm(t)
}

// gatedBy returns the own throttle that has stopped the key.
func (k *Key) gatedBy() *throttle {
	if k.set == nil {
		return nil
	}
	for _, t := range k.set.set {
		if t.owner == k && t.gating {
			return t
		}
	}
	return nil
}

// armOwn sets the timer of a throttle that has stopped its owner: for its tokens, if it has a slot. The end of a lease
// lists it otherwise.
func (o *Order) armOwn(t *throttle) {
	need := t.ownNeed()
	if tokens := t.required(need); t.set.Rate == 0 || !t.slotsBeside(0) || t.holds(o.now, tokens) {
		o.disarm(t)
	} else {
		o.setTimer(t, t.holdsAt(o.now, tokens))
	}
}

// ownNeed is how many tokens the next message of the owner takes.
func (t *throttle) ownNeed() int64 {
	if t.set.ByCost && t.owner != nil {
		return int64(t.owner.placedCost)
	}
	return 1
}

// openGate returns the owner of a throttle to the ring if the throttle has stopped it and has room now. It returns the
// key's queue if that has demand.
func (o *Order) openGate(t *throttle) *Queue {
	if !t.gating || t.owner.class.scheduler.detached {
		return nil
	}
	if !t.admits(o.now, t.ownNeed()) {
		o.armOwn(t)
		return nil
	}
	o.host.Spend(1)
	o.returnToRing(t.owner)
	if q := t.owner.class.scheduler.queue; q.HasDemand() {
		return q
	}
	return nil
}

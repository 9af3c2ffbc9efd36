package dispatch

import (
	"fmt"
	"iter"
	"slices"
)

// Report takes violations of the numbered invariants of the engine (its doc.go).
type Report func(no int, format string, args ...any)

// Matches verifies that the order knows what stands at the head of a key (36).
func (k *Key) Matches(h Head) error {
	known := k.state == h.State && (h.State == Loading || k.set == h.Set && k.hasSet == (h.Set != nil))
	if !known || h.State == Ready && (k.placedCost != h.Cost || k.placedWeight != h.Weight) {
		return fmt.Errorf("%+v stands at its head, the order of delivery knows %+v, cost %d and weight %d", h, k.state, k.placedCost, k.placedWeight)
	}
	return nil
}

// Check verifies the order of a queue with all of its keys: every class and its members, the sums of
// keys and weights and the heap of open classes (2, 17, 23), credits (19), and reservations (20).
func (q *Queue) Check(all iter.Seq[*Key], bad Report) {
	s := q.scheduler
	if s.queue != q || s.detached {
		bad(2, "%v has the scheduler of another queue or a purge", q.owner)
	}
	members, own := map[*class][]*Key{}, map[*class]int{}
	keys, weight, open := 0, int64(0), 0
	for k := range all {
		if has := k.atTurn(s.quantum); has < int64(k.placedCost) && k.class != nil || k.class == nil && k.state == Empty && k.credit > 0 {
			bad(19, "key %d of %v has a credit of %d, and of %d at its turn", k.seq, q.owner, k.credit, has)
		}
		switch k.held {
		case 0:
			members[k.class] = append(members[k.class], k)
		case gated:
			k.checkGate(bad)
			own[k.class]++
			keys++
			weight += int64(k.placedWeight)
		}
	}
	for cl := range s.all() {
		keys += cl.keys
		weight += cl.weight
		if cl.state == classOpen {
			open++
		}
		cl.check(members[cl], bad)
		if cl.gated != own[cl] {
			bad(2, "%d keys of a class of %v are gated by their own throttles, it says %d", own[cl], q.owner, cl.gated)
		}
	}
	if keys != s.keys || weight != s.weight || open != len(s.open) {
		bad(2, "%v: %d keys of weight %d in classes, %d classes open; it says %d, %d and %d", q.owner, keys, weight, open, s.keys, s.weight, len(s.open))
	}
	// Reserved capacity that no consumer is there to use would stop other queues for nothing.
	if len(s.reserving) > 0 && !q.HasDemand() {
		bad(20, "%v has reserved throttles and no consumer", q.owner)
	}
}

// atTurn is the credit that the key will have at its turn.
func (k *Key) atTurn(quantum int64) int64 {
	return k.credit + (k.due-k.base)*int64(k.placedWeight)*quantum
}

// checkGate verifies a key that its own throttle has stopped: the throttle has no room for its next message, or is to be
// looked at, and something will free it (20).
func (k *Key) checkGate(bad Report) {
	t, o := k.gatedBy(), k.class.scheduler.queue.order
	switch {
	case t == nil:
		bad(20, "key %d of %v is stopped, and no throttle of its own stops it", k.seq, k.class.scheduler.queue.owner)
	case t.listed || t.timer >= 0 && t.wakeAt <= o.now:
	case t.admits(o.now, t.ownNeed()):
		bad(20, "throttle %q has room for its only key, and stops it", t.name)
	case t.timer < 0 && t.set.Rate > 0 && t.slotsBeside(0):
		bad(20, "throttle %q stops its only key, and has no timer for its tokens", t.name)
	}
}

// Waits reports whether consumers could be served that wait for the queue, as far as it knows: it has
// demand and is not to be looked at anyway.
func (q *Queue) Waits() bool { return q.HasDemand() && !q.offered }

// WaitsForRead reports whether a key of the queue waits for the messages of a key that is due before it.
func (q *Queue) WaitsForRead(k *Key) bool {
	s := q.scheduler
	return s.hasOpen() && !s.loaded() || k.class.state == classOpen && k.class.head().state != Ready
}

// check verifies one class: its members are due in the present round or later, none before
// its head, and are in the calendar (23); its place follows from its state (2, 17); its claims
// and reservations are known to their throttles (20).
func (cl *class) check(members []*Key, bad Report) {
	q := cl.scheduler.queue
	keys, weight, near := len(members), int64(0), cl.inLists()
	for _, k := range members {
		weight += int64(k.placedWeight)
		// A key in its visit is due in the round of that visit, any other in a later one.
		if k.due < cl.present() || k.base > k.due || k.visited && k.due != k.base {
			bad(23, "key %d of %v is due in round %d, was visited in %d, it is round %d", k.seq, q.owner, k.due, k.base, cl.present())
		}
		if h := cl.head(); h == nil || k.dueBefore(h) {
			bad(23, "key %d of %v is due before the head of its class", k.seq, q.owner)
		}
		if near[k] != (k.slot < 0) || k.slot >= 0 && !cl.inHeap(k) {
			bad(23, "key %d of %v is not in the calendar of its class", k.seq, q.owner)
		}
	}
	if keys != cl.keys || weight != cl.weight || (keys == 0) != (cl.state == classIdle) {
		bad(23, "a class of %v in state %d has %d keys of weight %d; it says %d of %d", q.owner, cl.state, keys, weight, cl.keys, cl.weight)
	}
	switch e := cl.entry; cl.state {
	case classIdle:
		if e != nil || cl.claim != 0 {
			bad(17, "an idle class of %v waits for a throttle", q.owner)
		}
	case classOpen:
		if cl.at >= len(q.scheduler.open) || q.scheduler.open[cl.at] != cl.classDue() {
			bad(2, "an open class of %v is not where it should be", q.owner)
		}
	case classWaiting:
		if e == nil || cl.at >= e.waiting.Len() || e.waiting.Entries()[cl.at] != cl || e.scheduler != q.scheduler {
			bad(17, "a waiting class of %v is not where it should be", q.owner)
		} else if e.at < 0 && e.eligible == 0 {
			bad(20, "a class of %v waits for throttle %q, whose line does not have its entry", q.owner, e.throttle.name)
		}
	}
	// A reservation needs a claim, and each throttle of the class knows the claim.
	for i := range cl.flows {
		sl := &cl.flows[i]
		if sl.reserved != (sl.throttle.reservedFor == cl) || sl.reserved && cl.claim == 0 {
			bad(20, "throttle %q is reserved for a class of %v without a claim", sl.throttle.name, q.owner)
		}
		if (cl.claim != 0) != slices.Contains(sl.throttle.claims, cl) {
			bad(20, "throttle %q has lost a claim of %v", sl.throttle.name, q.owner)
		}
	}
}

// inLists returns the keys in the lists of the calendar.
func (cl *calendar) inLists() map[*Key]bool {
	in := map[*Key]bool{}
	for i := range cl.near {
		for k := cl.near[i].first; k != nil; k = k.next {
			in[k] = true
		}
	}
	return in
}

// inHeap reports whether the heap of the calendar has a key at its slot.
func (cl *calendar) inHeap(k *Key) bool {
	return int(k.slot) < len(cl.far) && cl.far[k.slot].key == k && cl.far[k.slot].due == k.due
}

// classes iterates over the classes of queues, and those that purges have left: throttles still
// count them.
func classes(queues iter.Seq[*Queue], detached iter.Seq[*Detached]) iter.Seq[*class] {
	return func(yield func(*class) bool) {
		var all []*scheduler
		for q := range queues {
			all = append(all, q.scheduler)
		}
		for d := range detached {
			all = append(all, d.scheduler)
		}
		for _, s := range all {
			for cl := range s.all() {
				if !yield(cl) {
					return
				}
			}
		}
	}
}

// Check verifies throttles against the classes that name them, and the leases that name a throttle
// key: the slots in use (18), the keys that name them and those that wait (17), and that no class
// waits in the line of a throttle that has room, or whose next token has no timer (20); and the keys
// that wait for budgets (30). holds are the throttle keys that are held and until when (40). served says that the last turn has given away all room.
func (o *Order) Check(queues iter.Seq[*Queue], detached iter.Seq[*Detached], inUse, holds map[string]int64, served bool, bad Report) {
	keys, waiting, eligible, ofQueue := map[*throttle]int64{}, map[*throttle]int64{}, map[*entry]int{}, map[*entry]int64{}
	for cl := range classes(queues, detached) {
		for i := range cl.flows {
			keys[cl.flows[i].throttle] += int64(cl.keys)
			ofQueue[cl.flows[i].entry] += int64(cl.keys)
		}
		switch {
		case cl.state == classWaiting:
			waiting[cl.entry.throttle] += int64(cl.keys)
		case cl.state == classOpen && cl.entry != nil:
			eligible[cl.entry]++
		}
	}
	// Leases are counted for throttle keys without a setting as well, so that a setting takes
	// effect on the leases that it finds.
	for name, u := range o.unset {
		if o.throttles[name] != nil || u.inUse != inUse[name] {
			bad(18, "throttle key %q without a setting: %d leases, it says %d", name, inUse[name], u.inUse)
		}
	}
	for name, n := range inUse {
		if o.throttles[name] == nil && o.unset[name] == nil {
			bad(18, "throttle key %q without a setting: %d leases, and none is counted", name, n)
		}
	}
	for name, t := range o.throttles {
		if int64(t.inUse) != inUse[name] {
			bad(18, "throttle %q: %d leases, it says %d", name, inUse[name], t.inUse)
		}
		t.checkOwner(bad)
		if t.keys != keys[t] || t.waiting != waiting[t] {
			bad(17, "throttle %q: %d keys name it, %d wait; it says %d and %d", name, keys[t], waiting[t], t.keys, t.waiting)
		}
		for q, e := range t.entries {
			if e.scheduler.queue != q || e.eligible != eligible[e] || e.keys != ofQueue[e] {
				bad(17, "throttle %q: %d classes of %v were opened, %d keys name it; it says %d and %d", name, eligible[e], q.owner, ofQueue[e], e.eligible, e.keys)
			}
		}
		if served && !t.listed && t != o.grants.throttle && o.NextTimer() > o.now {
			o.checkRoom(t, bad)
			t.checkClaim(o, bad)
		}
	}
	o.checkInstances(bad)
	checkHolds(o.throttles, holds, bad)
	o.checkLines(queues, detached, served, bad)
}

// checkInstances verifies the sums of patterns, and that an instance is listed as unused if and only if nothing
// names it (37).
func (o *Order) checkInstances(bad Report) {
	if noExtra.number != 0 || noExtra.adaptive != nil || noExtra.shared || noExtra.keys != 0 || noExtra.waiting != 0 || len(noExtra.entries) > 0 {
		bad(37, "what throttles without an extra have in common has changed")
	}
	instances, inUse := map[*pattern]int64{}, map[*pattern]int32{}
	for name, t := range o.throttles {
		p := t.set.pattern
		if p != nil {
			instances[p]++
			inUse[p] += t.inUse
		}
		if t.gone || t.unneeded() == (t.unused == needed) && p != nil && (t.unused == needed || t.unused == dated) {
			bad(37, "throttle %q, which nothing names: %v, is in state %d of use", name, t.unneeded(), t.unused)
		}
		if p != nil && t.set.until != 0 && !o.sweeping || t.unused == dated && t.timer < 0 {
			bad(37, "throttle %q has limits that no longer hold, or is never forgotten", name)
		}
	}
	for prefix, p := range o.patterns.byPrefix {
		if p.instances != instances[p] || p.inUse != inUse[p] {
			bad(37, "pattern %q has %d instances with %d leases, it says %d and %d", prefix, instances[p], inUse[p], p.instances, p.inUse)
		}
	}
	for _, t := range o.timers.Entries() {
		if t.unused == dated {
			bad(37, "throttle %q waits for a timer, and nothing names it", t.name)
		}
	}
	if n := o.unnamed.Len(); n > o.cfg.Instances {
		bad(37, "%d instances are in memory that nothing names", n)
	}
}

// checkHolds verifies that the throttles that are held are those of the holds, and that a throttle without limits is one
// of them (40).
func checkHolds(throttles map[string]*throttle, holds map[string]int64, bad Report) {
	for key, until := range holds {
		if t := throttles[key]; t == nil || t.heldUntil != until {
			bad(40, "throttle key %q is held until %d, its throttle is not", key, until)
		}
	}
	for key, t := range throttles {
		if t.heldUntil != holds[key] {
			bad(40, "throttle %q is held until %d, and its key until %d", key, t.heldUntil, holds[key])
		}
		if t.set == &unlimited && t.heldUntil == 0 {
			bad(40, "throttle %q has neither limits nor a hold", key)
		}
	}
}

// checkOwner verifies that the owner of a throttle is the only key that names it (17).
func (t *throttle) checkOwner(bad Report) {
	k := t.owner
	if k == nil {
		return
	}
	if t.shared || t.keys > 0 || k.class == nil || !k.class.scheduler.detached && (k.set == nil || !slices.Contains(k.set.set, t)) {
		bad(17, "throttle %q is owned by a key that does not name it, or by several", t.name)
	}
}

// checkClaim verifies that the first claim at a throttle is served once all throttles of its class have room, with what
// is reserved for later ones (20). A queue with an open class delivers from that first, or waits for a key of it to be read.
func (t *throttle) checkClaim(o *Order, bad Report) {
	cl := t.firstClaim()
	if cl == nil || !cl.claimFits(o.now) || cl.state != classWaiting || len(cl.draws) > 0 || cl.scheduler.queue.HasOpen() {
		return
	}
	for i := range cl.flows {
		if other := cl.flows[i].throttle; other.listed || other == o.grants.throttle {
			return
		}
	}
	bad(20, "a claim of %v at throttle %q has room at all of its throttles, and is not served", cl.scheduler.queue.owner, t.name)
}

// checkRoom verifies that no class waits in the line of a throttle that has room, or whose next
// token has no timer (20).
func (o *Order) checkRoom(t *throttle, bad Report) {
	// Entries of purged queues may still be in the line; they do not make it wait.
	var first *entry
	for _, e := range t.line.Entries() {
		if e.waiting.Len() > 0 && !e.scheduler.detached && (first == nil || e.Before(first)) {
			first = e
		}
	}
	if first == nil {
		return
	}
	// Either the throttle has no room and something will free it: the end of a lease, or
	// the timer of the next token.
	if t.admits(o.now, first.need()) && (!t.set.ByCost || first.scheduler.queue.HasDemand()) {
		bad(20, "throttle %q has room, and classes wait in its line", t.name)
	} else if t.set.Rate > 0 && t.timer < 0 && t.slotsBeside(t.reservedSlots()) {
		bad(20, "throttle %q: classes wait for a timer that is not set", t.name)
	}
}

// checkLines verifies the keys that wait for budgets (30).
func (o *Order) checkLines(queues iter.Seq[*Queue], detached iter.Seq[*Detached], served bool, bad Report) {
	draws, keys, waiting, held := map[*line]int{}, map[*line]int64{}, map[*line]int{}, int64(0)
	for cl := range classes(queues, detached) {
		n, weight, of := 0, int64(0), cl.scheduler.queue.owner
		for i, d := range cl.draws {
			if d.class != cl || o.lines[d.line.name] != d.line {
				bad(30, "a class of %v draws on budget %q, whose line does not have it", of, d.line.name)
			}
			d.held.All(func(k *Key, charge int64) {
				if n++; k.class != cl || int(k.held) != i+1 || k.state == Ready && k.set.Charge != charge {
					bad(30, "key %d of %v waits for budget %q, and is not where it should be", k.seq, of, d.line.name)
				}
				weight += int64(k.placedWeight)
			})
			draws[d.line]++
			keys[d.line] += int64(d.held.Len())
			if d.lined != (d.held.Len() > 0 && d.loose == nil) {
				bad(30, "a class of %v is in the line of budget %q: %v", of, d.line.name, d.lined)
			}
			if d.loose != nil && (d.loose.class != cl || d.loose.held != 0) {
				bad(30, "key %d of %v is no longer in the ring, and budget %q waits for it", d.loose.seq, of, d.line.name)
			}
			if d.lined {
				waiting[d.line]++
			}
		}
		if n != cl.held || weight != cl.heldWeight {
			bad(30, "%d keys of a class of %v wait for budgets, it says %d", n, of, cl.held)
		}
		held += int64(n)
	}
	if held != o.held {
		bad(30, "%d keys wait for budgets, %d are counted", held, o.held)
	}
	for name, l := range o.lines {
		if l.draws != draws[l] || l.keys != keys[l] || l.waiting.Len() != waiting[l] || (l.budget == nil) != (o.host.Budget(name) == nil) {
			bad(30, "the line of budget %q: %d classes, %d keys, it says %d, %d", name, draws[l], keys[l], l.draws, l.keys)
		}
		if d := l.firstCovered(); d != nil && !l.listed && o.grants.line != l && served {
			bad(30, "budget %q covers a key that waits for it", name)
		}
	}
}

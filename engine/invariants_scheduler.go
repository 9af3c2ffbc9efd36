package engine

import (
	"iter"
	"slices"
)

// checkScheduler compares the order of delivery of a queue with its keys.
func (c *core) checkScheduler(q *queue, bad report) {
	s := q.scheduler
	if s.queue != q || s.detached {
		bad(2, "queue %q has the scheduler of another time", q.name)
	}
	members := map[*class][]*fairKey{}
	for k := range q.roster.all() {
		members[k.class] = append(members[k.class], k)
	}
	keys, weight, open := 0, int64(0), 0
	for cl := range s.all() {
		keys += cl.keys
		weight += cl.weight
		if cl.state == classOpen {
			open++
		}
		c.checkClass(q, cl, members[cl], bad)
	}
	if keys != s.keys || weight != s.weight || open != s.open.len() {
		bad(2, "queue %q: %d keys of weight %d in classes, %d classes open; it says %d, %d and %d", q.name, keys, weight, open, s.keys, s.weight, s.open.len())
	}
	if len(s.reserving) > 0 && !q.takes() {
		bad(20, "queue %q keeps room in throttles and has no consumer", q.name)
	}
	for n := q.waiters.first; n != nil; n = n.next {
		if t := n.wait.task; t.wait != n.wait || t.Done() {
			bad(24, "a task in the line of queue %q has its answer", q.name)
		}
	}
	if !q.takes() || q.offered || q.resumed || c.throttles.deferred || c.health.failed != nil {
		return
	}
	for k := range q.roster.all() {
		if m := k.ready(c.now); m != nil && k.class != nil && len(c.blockers(m)) == 0 && !c.waitsForRead(k) {
			bad(5, "queue %q: key %q can deliver and %d consumers wait (class state %d, claim %d)", q.name, k.name, q.waiters.n, k.class.state, k.class.claim)
		}
	}
}

// ready returns the next message of a key if it is in memory and alive, else nil.
func (k *fairKey) ready(now int64) *message {
	if len(k.window) == 0 || k.window[0].expires != 0 && k.window[0].expires <= now {
		return nil
	}
	return k.window[0]
}

// waitsForRead says that a key which is due before another one is on its way from the disk.
func (c *core) waitsForRead(k *fairKey) bool {
	s := k.queue.scheduler
	return s.hasOpen() && !s.loaded() || k.class.state == classOpen && len(k.class.head().window) == 0
}

// checkClass looks at one class and its calendar.
func (c *core) checkClass(q *queue, cl *class, members []*fairKey, bad report) {
	keys, weight, near := len(members), int64(0), cl.calendar.inLists()
	for _, k := range members {
		weight += int64(k.placedWeight)
		if k.due < cl.present() || k.base > k.due || k.visited && k.due != k.base {
			bad(23, "key %q of %q is due in round %d, was visited in %d, it is round %d", k.name, q.name, k.due, k.base, cl.present())
		}
		if h := cl.head(); h == nil || k.dueBefore(h) {
			bad(23, "key %q of %q is due before the head of its class", k.name, q.name)
		}
		if near[k] != (k.slot < 0) || k.slot >= 0 && !cl.calendar.inHeap(k) {
			bad(23, "key %q of %q is not in the calendar of its class", k.name, q.name)
		}
	}
	if keys != cl.keys || weight != cl.weight || (keys == 0) != (cl.state == classIdle) {
		bad(23, "a class of %q in state %d has %d keys of weight %d; it says %d of %d", q.name, cl.state, keys, weight, cl.keys, cl.weight)
	}
	switch e := cl.entry; cl.state {
	case classIdle:
		if e != nil || cl.claim != 0 {
			bad(17, "an idle class of %q waits for a throttle", q.name)
		}
	case classOpen:
		if cl.at >= q.scheduler.open.len() || q.scheduler.open.h[cl.at] != cl {
			bad(2, "an open class of %q is not where it should be", q.name)
		}
	case classWaiting:
		if e == nil || cl.at >= e.waiting.len() || e.waiting.h[cl.at] != cl || e.scheduler != q.scheduler {
			bad(17, "a waiting class of %q is not where it should be", q.name)
		} else if e.at < 0 && e.eligible == 0 {
			bad(20, "a class of %q waits for throttle %q, which does not know", q.name, e.throttle.name)
		}
	}
	for i := range cl.slots {
		sl := &cl.slots[i]
		if sl.reserved != (sl.throttle.reservedFor == cl) || sl.reserved && cl.claim == 0 {
			bad(20, "throttle %q keeps room for a class of %q without a claim", sl.throttle.name, q.name)
		}
		if (cl.claim != 0) != slices.Contains(sl.throttle.claims, cl) {
			bad(20, "throttle %q has lost a claim of %q", sl.throttle.name, q.name)
		}
	}
}

// inLists returns the keys in the lists of the calendar.
func (cl *calendar) inLists() map[*fairKey]bool {
	in := map[*fairKey]bool{}
	for i := range cl.near {
		for k := cl.near[i].first; k != nil; k = k.next {
			in[k] = true
		}
	}
	return in
}

// inHeap says that a key is where it says in the heap of the calendar.
func (cl *calendar) inHeap(k *fairKey) bool {
	return int(k.slot) < len(cl.far) && cl.far[k.slot].key == k && cl.far[k.slot].due == k.due
}

// classes goes through the classes of all queues, and of emptied ones that are not swept.
func (c *core) classes() iter.Seq[*class] {
	return func(yield func(*class) bool) {
		var all []*scheduler
		for _, q := range c.queues.byName {
			all = append(all, q.scheduler)
		}
		for _, r := range c.detached.queues {
			all = append(all, r.scheduler)
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

// checkThrottles compares throttles with the leases and classes that name them.
func (s *throttleSet) check(c *core, bad report) {
	held, keys, waiting, eligible, ofQueue := map[string]int64{}, map[*throttle]int64{}, map[*throttle]int64{}, map[*entry]int{}, map[*entry]int64{}
	for _, m := range c.leases.byID {
		for _, name := range m.throttleKeys() {
			held[name]++
		}
	}
	for cl := range c.classes() {
		for i := range cl.slots {
			keys[cl.slots[i].throttle] += int64(cl.keys)
			ofQueue[cl.slots[i].entry] += int64(cl.keys)
		}
		switch {
		case cl.state == classWaiting:
			waiting[cl.entry.throttle] += int64(cl.keys)
		case cl.state == classOpen && cl.entry != nil:
			eligible[cl.entry]++
		}
	}
	for name, u := range c.throttles.unset {
		if c.throttles.byName[name] != nil || u.inUse != held[name] {
			bad(18, "throttle key %q without a setting: %d leases, it says %d", name, held[name], u.inUse)
		}
	}
	for name, n := range held {
		if c.throttles.byName[name] == nil && c.throttles.unset[name] == nil {
			bad(18, "throttle key %q without a setting: %d leases, and none is counted", name, n)
		}
	}
	for name, t := range c.throttles.byName {
		if t.inUse != held[name] {
			bad(18, "throttle %q: %d leases, it says %d", name, held[name], t.inUse)
		}
		if t.keys != keys[t] || t.waiting != waiting[t] {
			bad(17, "throttle %q: %d keys name it, %d wait; it says %d and %d", name, keys[t], waiting[t], t.keys, t.waiting)
		}
		waits := false
		for _, e := range t.line.h {
			waits = waits || e.waiting.len() > 0 && !e.scheduler.detached
		}
		for q, e := range t.entries {
			if e.scheduler.queue != q || e.eligible != eligible[e] || e.keys != ofQueue[e] {
				bad(17, "throttle %q: %d classes of %q were opened, %d keys name it; it says %d and %d", name, eligible[e], q.name, ofQueue[e], e.eligible, e.keys)
			}
		}
		if !waits || t.notified || c.health.failed != nil {
			continue
		}
		if t.room(c.now) >= 1 {
			bad(20, "throttle %q has room for %d, and classes wait in its line", name, t.room(c.now))
		} else if t.set.Rate > 0 && t.timer < 0 && (t.set.Concurrency == 0 || t.inUse+t.reservedRoom() < int64(t.set.Concurrency)) { //nolint:gosec // bounded
			bad(20, "throttle %q: classes wait for a timer that is not set", name)
		}
	}
}

package engine

import (
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Check compares what the memory says with itself; the numbers are those of the
// package comment. It returns all that is broken. It is for tests.
func (s *Stepper) Check() error { return s.core.check() }

func (c *core) check() error {
	var errs []error
	bad := func(no int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("invariant %d: "+format, append([]any{no}, args...)...))
	}
	for _, p := range c.components() {
		p.check(c, bad)
	}
	return errors.Join(errs...)
}

func (s *queueSet) check(c *core, bad report) {
	for name, q := range s.byName {
		if q.name != name || s.byNumber[q.no] != q {
			bad(1, "queue %q is not where it should be", name)
		}
		c.checkQueue(q, bad)
		c.checkScheduler(q, bad)
		if err := q.idle.check(q); err != nil {
			bad(22, "queue %q: %v", name, err)
		}
	}
}

func (c *core) checkQueue(q *queue, bad report) {
	listed, awaiting, leased, delayed := 0, 0, int64(0), int64(0)
	for k := range q.roster.all() {
		c.checkFairKey(q, k, bad)
		listed++
		leased += k.leased
		delayed += k.delayed
		if k.awaitingRead {
			awaiting++
		}
	}
	if listed != q.keys.n {
		bad(1, "queue %q lists %d keys and finds %d", q.name, listed, q.keys.n)
	}
	if awaiting != q.awaitingRead {
		bad(2, "queue %q: %d keys wait for a read; it says %d", q.name, awaiting, q.awaitingRead)
	}
	if leased != q.leased {
		bad(3, "queue %q: keys have %d leased, it says %d", q.name, leased, q.leased)
	}
	if q.counted && delayed != q.delayed {
		bad(4, "queue %q: keys have %d delayed, it says %d", q.name, delayed, q.delayed)
	}
	if q.counted && q.total < q.leased+q.delayed {
		bad(4, "queue %q: total %d, leased %d, delayed %d", q.name, q.total, q.leased, q.delayed)
	}
}

// check counts what is in memory: the messages of all windows, also of purged keys, and
// the bytes of bodies.
func (h *headCache) check(c *core, bad report) {
	keys, messages, bodies := 0, 0, int64(0)
	count := func(k *fairKey) {
		messages += len(k.window)
		for _, m := range k.window {
			bodies += int64(len(m.body))
		}
	}
	for _, q := range c.queues.byName {
		keys += q.keys.n
		for k := range q.roster.all() {
			count(k)
		}
	}
	for _, r := range c.detached.queues {
		for k := range r.keys.all() {
			count(k)
		}
	}
	for _, m := range c.leases.byID {
		bodies += int64(len(m.body))
	}
	counted := map[*message]bool{}
	for _, m := range h.uncommitted {
		if !counted[m] && (m.status == gone || m.status == delayed) {
			bodies += int64(len(m.body))
		}
		counted[m] = true
	}
	if keys != h.keys {
		bad(1, "%d keys, %d counted", keys, h.keys)
	}
	if messages != h.messages {
		bad(6, "%d messages in windows, %d counted", messages, h.messages)
	}
	if bodies != h.bodyBytes {
		bad(7, "%d bytes of bodies, %d counted", bodies, h.bodyBytes)
	}
}

func (d *delayedMessages) check(_ *core, bad report) {
	d.index.check(bad)
	for i, e := range d.index.heap.h {
		if e.m != nil && e.m.status != delayed {
			bad(8, "due entry %d of message %s is broken", i, e.mk.ID)
		}
	}
}

func (t *ttlMessages) check(_ *core, bad report) { t.index.check(bad) }

func (x *dueIndex) check(bad report) {
	listed := 0
	for no, d := range x.byQueue {
		for ; d != nil; d = d.next {
			if listed++; d.mk.Queue != no || x.byID[d.mk.ID] != d || d.next != nil && d.next.prev != d {
				bad(8, "message %s is listed by mistake", d.mk.ID)
			}
		}
	}
	if listed != x.heap.len() || listed != len(x.byID) {
		bad(8, "%d of %d messages are listed", listed, x.heap.len())
	}
	for i, d := range x.heap.h {
		if d.i != i || x.byID[d.mk.ID] != d || x.onDisk(d.key) {
			bad(8, "entry %d of message %s is broken", i, d.mk.ID)
		}
	}
}

// check looks at what is kept of keys that a queue has no more.
func (p *idleStats) check(q *queue) error {
	n := 0
	for name := range p.all() {
		n++
		if at := p.find(hashName(name), name); at < 0 || p.list[at].name != name || q.keys.get(name) != nil {
			return fmt.Errorf("counts of key %q are kept by mistake", name)
		}
	}
	if n != p.n || n >= 2*idleStatsMax || len(p.list) > len(p.slots)/2 {
		return fmt.Errorf("counts of %d keys are kept in %d places of %d, it says %d", n, len(p.list), len(p.slots), p.n)
	}
	return nil
}

func (q *queue) hashed(k *fairKey) bool {
	return k.idHash == keyHash(k.name) && k.hash == hashName(k.name) && slices.Contains(q.keys.withID(k.idHash), k)
}

func (t *cronTable) check(c *core, bad report) {
	waiting := 0
	for name, e := range t.entries {
		inRound := e.job != nil && t.round != nil && slices.Contains(t.round.jobs, e.job)
		if rests := e.schedule == nil || e.set.NextAt == 0; e.name != name || (e.timer >= 0) == (rests || inRound || e.uncounted) ||
			e.job != nil && !inRound || e.uncounted && (inRound || c.ops.census == nil) {
			bad(21, "recurring message %q waits for its tick %v, is in the round %v, waits for counts %v", name, e.timer >= 0, inRound, e.uncounted)
		}
		if e.timer >= 0 {
			waiting++
		}
	}
	if waiting != t.due.len() {
		bad(21, "%d recurring messages wait for a tick, %d are in line", waiting, t.due.len())
	}
}

func (c *core) checkFairKey(q *queue, k *fairKey, bad report) {
	name := k.name
	if q.keys.get(name) != k || k.queue != q || !q.hashed(k) {
		bad(1, "key %q of %q is not where it should be", name, q.name)
	}
	for i, m := range k.window {
		if m.status != ready || m.key != k || !m.place.less(k.edge) || i > 0 && !k.window[i-1].place.less(m.place) {
			bad(9, "key %q of %q: message %s does not belong at %d of the window", name, q.name, m.id, i)
		}
		if m.body == nil && m.batch > c.out.committed {
			bad(10, "message %s can be read nowhere", m.id)
		}
		if c.leases.byID[m.id] == m {
			bad(11, "message %s is ready and something else", m.id)
		}
	}
	if slices.ContainsFunc(k.window, func(m *message) bool { return m.rank > k.rankMax }) {
		bad(9, "key %q of %q: a message of its window has a greater rank than %d", name, q.name, k.rankMax)
	}
	if k.hasBacklog == (k.edge == lastPlace) {
		bad(12, "key %q of %q: behind is %v and the edge %v", name, q.name, k.hasBacklog, k.edge)
	}
	if can := !k.paused && (len(k.window) > 0 || k.hasBacklog && !k.lastReadEmpty); can != (k.class != nil) {
		bad(2, "key %q of %q: %d in window, behind %v, paused %v, in a class %v", name, q.name, len(k.window), k.hasBacklog, k.paused, k.class != nil)
	}
	if k.credit < 0 {
		bad(19, "key %q of %q has a credit of %d", name, q.name, k.credit)
	}
	if len(k.window) == 0 && k.hasBacklog && k.read == nil {
		bad(13, "key %q of %q starves", name, q.name)
	}
	if k.idle() {
		bad(14, "key %q of %q is idle and not forgotten", name, q.name)
	}
	if k.counted && k.total < int64(len(k.window))+k.leased+k.delayed {
		bad(4, "key %q of %q: total %d, %d in window, %d leased", name, q.name, k.total, len(k.window), k.leased)
	}
}

func (t *leaseTable) check(c *core, bad report) {
	detached := int64(0)
	if len(t.byID) != t.ends.len() {
		bad(15, "%d leases, %d timers", len(t.byID), t.ends.len())
	}
	for id, m := range t.byID {
		if m.id != id || m.status != leased || m.timer < 0 || m.timer >= t.ends.len() || t.ends.h[m.timer] != m {
			bad(15, "lease of %s is broken", id)
		}
		if m.key.purged() {
			detached++
		} else if q := m.key.queue; c.queues.byNumber[q.no] != q || q.keys.get(m.key.name) != m.key {
			bad(16, "message %s is leased from a key that does not exist", id)
		}
	}
	if detached != c.detached.leases {
		bad(16, "%d leases belong to emptied queues, %d are counted", detached, c.detached.leases)
	}
	for i := range t.ends.h {
		if i > 0 && t.ends.h[i].before(t.ends.h[(i-1)/2]) {
			bad(15, "lease timers are out of order")
			break
		}
	}
}

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
	if len(s.reserving) > 0 && !q.hasDemand() {
		bad(20, "queue %q keeps room in throttles and has no consumer", q.name)
	}
	for n := q.waiters.first; n != nil; n = n.next {
		if t := n.wait.task; t.wait != n.wait || t.Done() {
			bad(24, "a task in the line of queue %q has its answer", q.name)
		}
	}
	if !q.hasDemand() || q.offered || q.resumed || c.throttles.deferred || c.health.failed != nil {
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
	for i := range cl.flows {
		sl := &cl.flows[i]
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
func (s *throttleTable) check(c *core, bad report) {
	held, keys, waiting, eligible, ofQueue := map[string]int64{}, map[*throttle]int64{}, map[*throttle]int64{}, map[*entry]int{}, map[*entry]int64{}
	for _, m := range c.leases.byID {
		for _, name := range m.throttleKeys() {
			held[name]++
		}
	}
	for cl := range c.classes() {
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

package engine

import (
	"errors"
	"fmt"
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

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
	c.checkKeyCounts(bad)
	refs, bodies := c.unswept()
	for name, q := range c.queues {
		if q.name != name || c.byNumber[q.no] != q {
			bad(1, "queue %q is not where it should be", name)
		}
		starved, leasedN, delayedN := 0, int64(0), int64(0)
		for k := range q.roster.all() {
			c.checkFairKey(q, k, bad)
			refs += len(k.window)
			for _, m := range k.window {
				bodies += int64(len(m.body))
			}
			leasedN += k.leased
			delayedN += k.delayed
			if k.starved {
				starved++
			}
		}
		if starved != q.starved {
			bad(2, "queue %q: %d starved; it says %d", name, starved, q.starved)
		}
		c.checkScheduler(q, bad)
		if leasedN != q.leased {
			bad(3, "queue %q: keys have %d leased, it says %d", name, leasedN, q.leased)
		}
		if q.counted && delayedN != q.delayed {
			bad(4, "queue %q: keys have %d delayed, it says %d", name, delayedN, q.delayed)
		}
		if q.counted && q.total < q.leased+q.delayed {
			bad(4, "queue %q: total %d, leased %d, delayed %d", name, q.total, q.leased, q.delayed)
		}
	}
	if refs != c.refs {
		bad(6, "%d messages in windows, %d counted", refs, c.refs)
	}
	c.checkLeases(&bodies, bad)
	c.checkThrottles(bad)
	counted := map[*message]bool{}
	for _, m := range c.unborn {
		if counted[m] {
			continue
		}
		counted[m] = true
		if m.status == gone || m.status == delayed {
			bodies += int64(len(m.body))
		}
	}
	if bodies != c.bodies {
		bad(7, "%d bytes of bodies, %d counted", bodies, c.bodies)
	}
	c.checkDue(bad)
	c.checkCron(bad)
	return errors.Join(errs...)
}

// unswept counts the messages, and the bytes of their bodies, that emptied queues have
// left and that are not given back.
func (c *core) unswept() (refs int, bodies int64) {
	for _, r := range c.remains {
		for k := range r.keys.all() {
			refs += len(k.window)
			for _, m := range k.window {
				bodies += int64(len(m.body))
			}
		}
	}
	return refs, bodies
}

func (c *core) checkDue(bad func(int, string, ...any)) {
	for _, x := range []*dueIndex{&c.due, &c.ends} {
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
	}
	for i, d := range c.due.heap.h {
		if d.i != i || c.due.byID[d.mk.ID] != d || c.due.onDisk(d.key) || d.m != nil && d.m.status != delayed {
			bad(8, "due entry %d of message %s is broken", i, d.mk.ID)
		}
	}
	for i, d := range c.ends.heap.h {
		if d.i != i || c.ends.byID[d.mk.ID] != d || c.ends.onDisk(d.key) {
			bad(8, "end %d of message %s is broken", i, d.mk.ID)
		}
	}
}

func (c *core) checkKeyCounts(bad func(int, string, ...any)) {
	all := 0
	for name, q := range c.queues {
		listed := 0
		for range q.roster.all() {
			listed++
		}
		if listed != q.keys.n {
			bad(1, "queue %q lists %d keys and finds %d", name, listed, q.keys.n)
		}
		all += q.keys.n
		if err := q.past.check(q); err != nil {
			bad(22, "queue %q: %v", name, err)
		}
	}
	if all != c.keys {
		bad(1, "%d keys, %d counted", all, c.keys)
	}
}

// check looks at what is kept of keys that a queue has no more.
func (p *past) check(q *queue) error {
	n := 0
	for name := range p.all() {
		n++
		if at := p.find(hashName(name), name); at < 0 || p.list[at].name != name || q.keys.get(name) != nil {
			return fmt.Errorf("counts of key %q are kept by mistake", name)
		}
	}
	if n != p.n || n >= 2*pastMax || len(p.list) > len(p.slots)/2 {
		return fmt.Errorf("counts of %d keys are kept in %d places of %d, it says %d", n, len(p.list), len(p.slots), p.n)
	}
	return nil
}

func (q *queue) hashed(k *fairKey) bool {
	return k.idHash == keyHash(k.name) && k.hash == hashName(k.name) && slices.Contains(q.keys.withID(k.idHash), k)
}

func (c *core) checkCron(bad func(int, string, ...any)) {
	t := &c.cron
	waiting := 0
	for name, e := range t.entries {
		inRound := e.job != nil && t.round != nil && slices.Contains(t.round.jobs, e.job)
		if rests := e.schedule == nil || e.set.NextAt == 0; e.name != name || (e.timer >= 0) == (rests || inRound || e.uncounted) ||
			e.job != nil && !inRound || e.uncounted && (inRound || c.census == nil) {
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

func (c *core) checkFairKey(q *queue, k *fairKey, bad func(int, string, ...any)) {
	name := k.name
	if q.keys.get(name) != k || k.queue != q || !q.hashed(k) {
		bad(1, "key %q of %q is not where it should be", name, q.name)
	}
	for i, m := range k.window {
		if m.status != ready || m.key != k || !m.place.less(k.edge) || i > 0 && !k.window[i-1].place.less(m.place) {
			bad(9, "key %q of %q: message %s does not belong at %d of the window", name, q.name, m.id, i)
		}
		if m.body == nil && m.born > c.committed {
			bad(10, "message %s can be read nowhere", m.id)
		}
		if c.leases[m.id] == m {
			bad(11, "message %s is ready and something else", m.id)
		}
	}
	if slices.ContainsFunc(k.window, func(m *message) bool { return m.rank > k.rankMax }) {
		bad(9, "key %q of %q: a message of its window has a greater rank than %d", name, q.name, k.rankMax)
	}
	if k.behind == (k.edge == lastPlace) {
		bad(12, "key %q of %q: behind is %v and the edge %v", name, q.name, k.behind, k.edge)
	}
	if can := !k.paused && (len(k.window) > 0 || k.behind && !k.vain); can != (k.class != nil) {
		bad(2, "key %q of %q: %d in window, behind %v, paused %v, in a class %v", name, q.name, len(k.window), k.behind, k.paused, k.class != nil)
	}
	if k.credit < 0 {
		bad(19, "key %q of %q has a credit of %d", name, q.name, k.credit)
	}
	if len(k.window) == 0 && k.behind && k.read == nil {
		bad(13, "key %q of %q starves", name, q.name)
	}
	if k.idle() {
		bad(14, "key %q of %q is idle and not forgotten", name, q.name)
	}
	if k.counted && k.total < int64(len(k.window))+k.leased+k.delayed {
		bad(4, "key %q of %q: total %d, %d in window, %d leased", name, q.name, k.total, len(k.window), k.leased)
	}
}

func (c *core) checkLeases(bodies *int64, bad func(int, string, ...any)) {
	orphans := int64(0)
	if len(c.leases) != c.leaseEnd.len() {
		bad(15, "%d leases, %d timers", len(c.leases), c.leaseEnd.len())
	}
	for id, m := range c.leases {
		*bodies += int64(len(m.body))
		if m.id != id || m.status != leased || m.timer < 0 || m.timer >= c.leaseEnd.len() || c.leaseEnd.h[m.timer] != m {
			bad(15, "lease of %s is broken", id)
		}
		if m.key.emptied() {
			orphans++
		} else if q := m.key.queue; c.byNumber[q.no] != q || q.keys.get(m.key.name) != m.key {
			bad(16, "message %s is leased from a key that does not exist", id)
		}
	}
	if orphans != c.orphans {
		bad(16, "%d leases belong to emptied queues, %d are counted", orphans, c.orphans)
	}
	for i := range c.leaseEnd.h {
		if i > 0 && c.leaseEnd.h[i].before(c.leaseEnd.h[(i-1)/2]) {
			bad(15, "lease timers are out of order")
			break
		}
	}
}

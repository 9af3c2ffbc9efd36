package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/dispatch"
	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/keytable"
	"github.com/faisca/fila/storage"
)

// The invariants of the memory, by the numbers of the package comment. Each component checks
// its own; a count is verified by counting again. A check runs between turns, takes time in
// proportion to the memory, and is for tests only: in production an invariant that does not
// hold would be found by nothing, so the simulation checks them after every step.

// Check verifies all invariants and returns those that do not hold, joined, or nil. It is for
// tests.
func (s *Stepper) Check() error { return s.core.check() }

// check calls the check of every component.
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

// check verifies that queues are found by name and by number (1), and their parts.
func (s *queueSet) check(c *core, bad report) {
	named := 0
	for name, q := range s.byName {
		if q.set.DLQ != "" {
			named++
		}
		if q.name != name || s.byNumber[q.no] != q {
			bad(1, "queue %q is not where it should be", name)
		}
		c.checkQueue(q, bad)
		c.checkOrder(q, bad)
		c.checkFigures(q, bad)
	}
	for dlq, l := range s.byDLQ {
		for q := l.Head(); q != nil; q = q.Next() {
			if s.byName[q.name] != q || q.set.DLQ != dlq {
				bad(1, "queue %q is listed for the dead-letter queue %q", q.name, dlq)
			}
			named--
		}
	}
	if named != 0 {
		bad(1, "%d queues are not listed for their dead-letter queues", named)
	}
	s.checkSums(c, bad)
}

// checkFigures verifies the statistics of keys without messages (22), and the list of the busiest keys (26).
func (c *core) checkFigures(q *queue, bad report) {
	idle, busiest := q.figures.Check(func(yield func(string, *figures.Key) bool) {
		for k := range q.roster.All() {
			if !yield(k.name, &k.stats) {
				return
			}
		}
	}, func(name string) *figures.Key {
		if k := q.keys.get(name); k != nil {
			return &k.stats
		}
		return nil
	})
	if idle != nil {
		bad(22, "queue %q: %v", q.name, idle)
	}
	if busiest != nil && !c.detached.reclaiming(q) {
		bad(26, "queue %q: %v", q.name, busiest)
	}
}

// checkSums verifies the sums of all queues, and what figures are given of each (33).
func (s *queueSet) checkSums(c *core, bad report) {
	keys, all := 0, slices.Collect(maps.Values(s.byName))
	of := func(queues []*queue) (list []*figures.Queue) {
		for _, q := range queues {
			list = append(list, &q.figures)
		}
		return list
	}
	if err := s.figures.Check(of(all), of(s.deleted)); err != nil {
		bad(33, "%v", err)
	}
	for _, q := range append(all, s.deleted...) {
		keys += q.keys.Len()
		if q.figures.Dead != q.isDLQ() || q.figures.Waiters != int64(q.waiters.Len()) {
			bad(33, "queue %q: %d consumers wait, %d are counted; its messages are dead: %v", q.name, q.waiters.Len(), q.figures.Waiters, q.isDLQ())
		}
	}
	if keys != c.heads.keys {
		bad(33, "all queues have %d keys, %d are counted", keys, c.heads.keys)
	}
}

// checkQueue verifies the keys of a queue, and that its counts are the sums of theirs: listed
// keys (1), keys that await a read (2), leased messages (3), all messages (4), and what is out (32). While the census
// is not done, totals are differences and may be anything.
func (c *core) checkQueue(q *queue, bad report) {
	listed, awaiting, leased, delayed := 0, 0, int64(0), int64(0)
	c.checkOrdered(q, bad)
	q.checkResultWaits(bad)
	for k := range q.roster.All() {
		c.checkFairKey(q, k, bad)
		listed++
		leased += k.leased
		delayed += k.delayed
		if k.awaitingRead {
			awaiting++
		}
	}
	if listed != q.keys.Len() {
		bad(1, "queue %q lists %d keys and finds %d", q.name, listed, q.keys.Len())
	}
	if awaiting != q.awaitingRead {
		bad(2, "queue %q: %d keys wait for a read; it says %d", q.name, awaiting, q.awaitingRead)
	}
	if leased != q.figures.Leased {
		bad(3, "queue %q: keys have %d leased, it says %d", q.name, leased, q.figures.Leased)
	}
	if q.figures.Counted && delayed != q.figures.Delayed {
		bad(4, "queue %q: keys have %d delayed, it says %d", q.name, delayed, q.figures.Delayed)
	}
	// The ready messages are the difference; most of them are on disk and cannot be counted here.
	if q.figures.Counted && q.figures.Total < q.figures.Leased+q.figures.Delayed {
		bad(4, "queue %q: total %d, leased %d, delayed %d", q.name, q.figures.Total, q.figures.Leased, q.figures.Delayed)
	}
}

// check verifies the index, and that its messages are delayed (8).
func (d *delayedMessages) check(_ *core, bad report) {
	d.index.check(bad)
	for i, e := range d.index.All() {
		if e.Message != nil && e.Message.status != delayed {
			bad(8, "due entry %d of message %s is broken", i, e.Key.ID)
		}
	}
}

// check verifies the index (8). A message in it may be ready, delayed or on disk only.
func (t *ttlMessages) check(_ *core, bad report) { t.index.check(bad) }

func (x *dueIndex) check(bad report) {
	if err := x.Check(); err != nil {
		bad(8, "%v", err)
	}
}

// owns reports whether a key that is found by its name is one of the queue: it says so itself, its hashes are those of its
// name, and ids lead to it.
func (q *queue) owns(k *fairKey) bool {
	return k.queue == q && !k.forgotten && k.hash == keytable.HashOf(k.name) && slices.Contains(q.keys.WithID(storage.KeyHash(k.name)), k)
}

// checkFairKey verifies the state of a key as its header describes it: the window is ordered, ready
// and before the edge (9), bodies are readable (10), no message is in two structures (11), a key
// without an edge has no backlog (12), the key is in a class if it can deliver (2, 39), a key
// that awaits a read has requested one (13), and an idle key does not exist (14).
func (c *core) checkFairKey(q *queue, k *fairKey, bad report) {
	name := k.name
	if q.keys.get(name) != k || !q.owns(k) {
		bad(1, "key %q of %q is not where it should be", name, q.name)
	}
	if err := k.window.Check(); err != nil {
		bad(9, "key %q of %q: %v", name, q.name, err)
	}
	for _, m := range k.window.All() {
		if m.status != ready || m.key != k {
			bad(9, "key %q of %q: message %s does not belong into the window", name, q.name, m.id)
		}
		// Without the body and before the commit of its record, no copy could be delivered.
		if m.body == nil && m.batch > c.out.committed {
			bad(10, "message %s can be read nowhere", m.id)
		}
		if c.leases.byID[m.id] == m {
			bad(11, "message %s is ready and something else", m.id)
		}
	}
	if inMemory := int64(k.window.Len()) + k.leased + k.delayed; k.counted && !k.window.More() && k.total != inMemory {
		bad(12, "key %q of %q has no edge and %d messages, of which it knows %d", name, q.name, k.total, inMemory)
	}
	// A key that awaits a read is in a class, so that it keeps its turn, unless its last read
	// was empty: then others do not wait for it.
	c.checkGathering(k, bad)
	if can := !k.paused && !k.waitsForOne() && !k.gathers() && (k.window.Len() > 0 || k.window.More() && !k.window.LastReadEmpty()); can != k.Scheduled() {
		bad(2, "key %q of %q: %d in window, backlog %v, paused %v, in a class %v", name, q.name, k.window.Len(), k.window.More(), k.paused, k.Scheduled())
	}
	// Without a read nothing would ever make these messages deliverable.
	if k.window.Awaiting() && !k.window.Reading() {
		bad(13, "key %q of %q awaits a read and has requested none", name, q.name)
	}
	if k.idle() {
		bad(14, "key %q of %q is idle and not forgotten", name, q.name)
	}
	if k.counted && k.total < int64(k.window.Len())+k.leased+k.delayed {
		bad(4, "key %q of %q: total %d, %d in window, %d leased", name, q.name, k.total, k.window.Len(), k.leased)
	}
}

// check verifies that every lease has one timer and the heap is in order (15), and that its key
// exists or is detached and counted (16).
func (t *leaseTable) check(c *core, bad report) {
	detached, held := int64(0), map[*consumers.Queue]int64{}
	if len(t.byID) != t.ends.Len() {
		bad(15, "%d leases, %d timers", len(t.byID), t.ends.Len())
	}
	for id, m := range t.byID {
		if m.id != id || m.status != leased || m.timer < 0 || m.timer >= t.ends.Len() || t.ends.Entries()[m.timer] != m {
			bad(15, "lease of %s is broken", id)
		}
		if (m.held == nil) != m.retrying {
			bad(38, "lease of %s is in the register %v, and retrying %v", id, m.held != nil, m.retrying)
		} else if m.held != nil {
			held[m.held.Queue()]++
		}
		if m.key.purged() { // its queue finds it no more, so it is only counted
			detached++
		} else if q := m.key.queue; c.queues.byNumber[q.no] != q || q.keys.get(m.key.name) != m.key {
			bad(16, "message %s is leased from a key that does not exist", id)
		}
	}
	if detached != c.detached.leases {
		bad(16, "%d leases belong to detached keys, %d are counted", detached, c.detached.leases)
	}
	for _, q := range c.queues.byName {
		waiting := 0
		for n := q.waiters.Head(); n != nil; n = n.Next() {
			if n.consumer != nil {
				waiting++
			}
		}
		if err := q.consumers.Check(held[q.consumers], waiting); err != nil {
			bad(38, "queue %q: %v", q.name, err)
		}
	}
	for i := range t.ends.Entries() {
		if i > 0 && t.ends.Entries()[i].Before(t.ends.Entries()[(i-1)/2]) {
			bad(15, "lease timers are out of order")
			break
		}
	}
	if err := t.notes.Check(func(m *message) bool { return t.byID[m.id] == m }); err != nil {
		bad(15, "%v", err)
	}
}

// checkOrder verifies the order of delivery of a queue (2, 17, 20, 23), that it knows what stands at
// the head of each key (36), and that no task in the line has its result (24). Then the purpose of it
// all: no consumer waits while a key in memory can deliver (5). That does not hold while the queue is
// still to be served, the store is read-only, or the key that is due first is being read.
func (c *core) checkOrder(q *queue, bad report) {
	q.order.Check(func(yield func(*dispatch.Key) bool) {
		for k := range q.roster.All() {
			if !yield(&k.Key) {
				return
			}
		}
	}, dispatch.Report(bad))
	for n := q.waiters.Head(); n != nil; n = n.Next() {
		if t := n.wait.task; t.wait != n.wait || t.Done() {
			bad(24, "a task in the line of queue %q has its answer", q.name)
		}
	}
	for k := range q.roster.All() {
		if err := k.Matches(k.head()); err != nil {
			bad(36, "key %q of %q: %v", k.name, q.name, err)
		}
	}
	if demand := q.waiters.Head() != nil && !q.set.PausedOut; demand != q.order.HasDemand() {
		bad(36, "queue %q has demand: %v, the order of delivery knows %v", q.name, demand, !demand)
	}
	if !q.order.Waits() || c.order.behind(c) || c.health.failed != nil {
		return
	}
	if q.order.Loaded() {
		bad(5, "queue %q: %d consumers wait, and a class is open that none of them has asked for", q.name, q.waiters.Len())
	}
	for k := range q.roster.All() {
		if m := k.ready(c.now); m != nil && k.Scheduled() && len(c.blockers(m)) == 0 && c.covered(m) && !q.order.WaitsForRead(&k.Key) {
			bad(5, "queue %q: key %q can deliver and %d consumers wait", q.name, k.name, q.waiters.Len())
		}
	}
}

// ready returns the next message of a key if it is in memory and has not expired, else nil.
func (k *fairKey) ready(now int64) *message {
	if k.window.Len() == 0 {
		return nil
	}
	if m := k.window.First(); m.expires == 0 || m.expires > now {
		return m
	}
	return nil
}

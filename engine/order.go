package engine

import (
	"iter"
	"maps"

	"github.com/faisca/fila/engine/dispatch"
)

// ordering is the component of the order of delivery: what is delivered next is decided in package dispatch, which
// knows no messages. It learns of them by settle.
type ordering struct {
	*dispatch.Order
	before dispatch.Buckets // throttles before the last reset; recover takes them

	recent []*throttleSet // of keys that came not long ago, recentSets slots by the hash of the key

	stale, staleEnd uint32 // queues from one number to the other may have keys in older classes, see reclassifySlice
	staleFrom       uint64 // cursor in the keys of the first of them
}

// recentSets is how many throttle sets are remembered of keys that may have been forgotten.
const recentSets = 4096

func (s *ordering) reset() {
	*s = ordering{Order: s.Order, before: s.Reset(), recent: make([]*throttleSet, recentSets)}
}

// next is the time of the first timer of a throttle.
func (s *ordering) next(*core) int64 { return s.NextTimer() }

// behind reports whether there may be room that the next turn gives away, which follows at once.
func (s *ordering) behind(c *core) bool { return s.Pending() || s.NextTimer() <= c.now }

// expire lists the throttles whose timers are due, and has their room given away with what the step
// has left: beside a full inbox the serve step alone would deliver a third of it.
func (s *ordering) expire(c *core) {
	s.Expire()
	c.atLeast(c.tasks.budget.Part(32))
	c.serveReady()
}

// check verifies what dispatch knows against the leases (18), the holds (40) and itself.
func (s *ordering) check(c *core, bad report) {
	inUse := map[string]int64{}
	for _, m := range c.leases.byID {
		if m.retrying {
			continue
		}
		for _, name := range m.throttleKeys() {
			inUse[name]++
		}
	}
	s.Check(c.orders(), c.detachedOrders(), inUse, maps.Collect(c.holds.All()), c.health.failed == nil, dispatch.Report(bad))
}

// orders iterates over the queues as dispatch knows them.
func (c *core) orders() iter.Seq[*dispatch.Queue] {
	return func(yield func(*dispatch.Queue) bool) {
		for _, q := range c.queues.byName {
			if !yield(q.order) {
				return
			}
		}
	}
}

// detachedOrders iterates over what purges have left of queues.
func (c *core) detachedOrders() iter.Seq[*dispatch.Detached] {
	return func(yield func(*dispatch.Detached) bool) {
		for _, r := range c.detached.queues {
			if !yield(r.order) {
				return
			}
		}
	}
}

// host is the engine as dispatch knows it.
type host struct{ *core }

func (h host) Room() bool                 { return h.room() }
func (h host) Spend(units int)            { h.spend(units) }
func (h host) Announce(q *dispatch.Queue) { h.announceReady(q.Owner().(*queue)) }

func (h host) Budget(name string) dispatch.Budget {
	if a := h.accounts.Get(name); a != nil {
		return &budgetGate{core: h.core, account: a, timer: -1}
	}
	return nil
}

// reclassifyAll starts to move keys to other classes after a throttle has been set for the
// first time or deleted, a queue has become a dead-letter queue, or has another BATCH. reclassifySlice does the work.
func (c *core) reclassifyAll() {
	s := &c.order
	s.stale, s.staleEnd, s.staleFrom = 0, c.queues.nextNumber, 0
}

// reclassifySlice moves keys to the classes that their next messages belong to now, and gives instances of patterns the
// limits that hold now, a bounded number in each turn. It need not be complete before the next delivery: Queue.Next moves a key that
// comes up first.
func (c *core) reclassifySlice() {
	s := &c.order
	for s.stale < s.staleEnd && c.detached.reclaimed < c.detached.max {
		if q := c.queues.byNumber[s.stale]; q != nil { // else it was deleted, or purged since
			s.staleFrom = q.roster.Walk(s.staleFrom, c.detached.max-c.detached.reclaimed, func(k *fairKey) {
				c.detached.reclaimed++
				q.order.Refresh(&k.Key)
				if q.regather {
					c.regather(k)
				}
			})
			if s.staleFrom != 0 {
				return
			}
			q.regather = false
		}
		c.detached.reclaimed++
		s.stale, s.staleFrom = s.stale+1, 0
	}
	if most := c.detached.max - c.detached.reclaimed; most > 0 {
		c.detached.reclaimed += s.Sweep(most)
	}
}

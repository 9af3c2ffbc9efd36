package engine

import "math"

// component is a part of the engine's state. What recovery builds anew from the store,
// its reset forgets; everything it does at a time, its expire does.
type component interface {
	reset()
	// next returns when the component needs a turn; never if it needs none.
	next(c *core) int64
	// expire acts on what is due, within the budget of the step.
	expire(c *core)
	// check reports each broken invariant by its number in the package comment. It is for
	// tests.
	check(c *core, bad report)
}

// report takes an invariant's number and what breaks it.
type report func(no int, format string, args ...any)

// never is the time of a timer that is not set.
const never = math.MaxInt64

// untimed is embedded in components without timers, unchecked in those whose invariants
// another component checks along with its own.
type (
	untimed   struct{}
	unchecked struct{}
)

func (untimed) next(*core) int64      { return never }
func (untimed) expire(*core)          {}
func (unchecked) check(*core, report) {}

// components lists all components in the order in which their timers act.
func (c *core) components() [15]component {
	return [...]component{
		&c.waits, &c.throttles, &c.reads, &c.ops, &c.leases, &c.delayed, &c.ttl, &c.cron, &c.dedup,
		&c.queues, &c.heads, &c.tasks, &c.detached, &c.out, &c.health,
	}
}

// reset forgets what recovery builds anew from the store.
func (c *core) reset() {
	for _, p := range c.components() {
		p.reset()
	}
}

// expire acts on every timer that is due. It is a step of every turn, so that no load can
// hold it up. What very many timers have to do at once is done in slices, and each
// component has a little of the budget, however much those before it have used. While
// the store takes no writes, only waits end.
func (c *core) expire() {
	least := c.tasks.budget.part(32)
	c.waits.expire(c)
	if c.health.failed != nil {
		return
	}
	all := c.components()
	for _, p := range all[1:] { // without waits
		c.atLeast(least)
		p.expire(c)
	}
}

// nextTimer returns when the next turn is due without any task, 0 if never.
func (c *core) nextTimer() int64 {
	if c.tasks.unfinished {
		return c.now
	}
	at := c.waits.next(c)
	if c.health.failed == nil {
		for _, p := range c.components() {
			at = min(at, p.next(c))
		}
	}
	if at == never {
		return 0
	}
	return at
}

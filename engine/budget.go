package engine

import "fmt"

// budget bounds the work of a turn, so that no command and no number of timers delays other
// clients by more than a few turns. It is counted in units and never in time, since a turn
// reads no clock: a unit is about a microsecond, the work for one message or one fairness
// key. Work that exceeds the budget continues in the next turn, which follows at once; the
// loop commits, replies and takes new tasks in between.
//
// A turn divides its budget into steps, so that no step starves another:
//
//	timers   a quarter, and a minimum for each component (expire)
//	slices   a quarter, for tasks that have done a part of their work in an earlier turn
//	tasks    a half, for unblocked tasks, then the backlog, then new tasks, in order
//	reclaim  detachedKeys.max keys, leases and messages of purged queues, counted apart
//	serve    what the tasks have left, at least an eighth
//
// Three rules make this fair and keep the order:
//
//  1. A call that handles many messages calls Tx.more for each of them. When that is false,
//     the call returns Tx.yield: the task is parked, keeps its progress and is applied again
//     in the next turn. Later tasks of its client are queued behind it.
//  2. When a client has used its share of a turn, its next tasks are applied in the next
//     turn, after those of other clients.
//  3. Slices, timers included, add at most sliceWeight to one batch. Every reply waits for
//     the commit of its batch, and the duration of a commit follows the weight of the batch:
//     its bytes plus recordWeight for each record.
//
// The calls of a transaction (Exec) are in one batch. They spend units, but never yield.
type budget struct {
	turn  int // units of a turn: turnUnits; tests set other values
	left  int // units left in the current step; negative if a unit of work was larger
	spent int // units used in this turn, by all steps

	fullAt int // the step ends when the open batch reaches this size, or a slice this weight
	sliced int // weight that slices have added to the open batch
	from   int // weight of the open batch when the current slice began; 0: no slice is under way
}

const (
	// turnUnits is the budget of a turn: about two milliseconds of work.
	turnUnits = 2048
	// sliceWeight is about a thousand small records, which the store writes in one or two
	// milliseconds, without the sync.
	sliceWeight = 256 << 10
	// recordWeight is the number of bytes that cost the store about as much as one record.
	recordWeight = 200
	// unitBytes is how many bytes of a task's input count as one unit.
	unitBytes = 16 << 10
)

// part returns 1/of of a turn's budget, at least one unit.
func (b *budget) part(of int) int { return max(b.turn/of, 1) }

// share is how many units a client may use in one turn before others go first.
func (b *budget) share() int { return b.part(4) }

// slice begins a step whose work continues from turn to turn. The step ends after the units,
// or when all slices together have added sliceWeight to the open batch.
func (c *core) slice(units int) {
	c.endSlice()
	b := &c.tasks.budget
	b.from = c.weight()
	b.left, b.fullAt = units, b.from+max(sliceWeight-b.sliced, 0)
}

// endSlice ends the current slice, if there is one, and adds its weight to that of the slices
// of the open batch. Until the next step begins, only the batch size is bounded.
func (c *core) endSlice() {
	if b := &c.tasks.budget; b.from > 0 {
		b.sliced += c.weight() - b.from
		b.from = 0
	}
}

// newTasks begins the step in which tasks are applied. It ends at Config.BatchBytes.
func (c *core) newTasks() {
	c.endSlice()
	c.tasks.budget.left, c.tasks.budget.fullAt = c.tasks.budget.part(2), c.cfg.BatchBytes
}

// weight estimates the duration of the open batch's commit, in bytes.
func (c *core) weight() int { return c.out.batch.Size() + recordWeight*c.out.batch.Len() }

// room reports whether the step may do more work: it has units left, and the open batch is
// not full for it.
func (c *core) room() bool {
	b := &c.tasks.budget
	if b.left <= 0 {
		return false
	}
	if b.from > 0 {
		return c.weight() < b.fullAt
	}
	return c.out.batch.Size() < b.fullAt
}

// spend takes units of work from the step and from the turn.
func (c *core) spend(units int) {
	c.tasks.budget.left -= units
	c.tasks.budget.spent += units
}

// atLeast guarantees units to a step that follows others on the same budget.
func (c *core) atLeast(units int) { c.tasks.budget.left = max(c.tasks.budget.left, units) }

// mustCut reports whether no work can continue before the open batch is cut: it is full, or
// slices have added their weight and no task waits for a turn.
func (c *core) mustCut() bool {
	return c.out.batch.Size() >= c.cfg.BatchBytes || c.tasks.budget.sliced >= sliceWeight && !c.pending()
}

// pending reports whether tasks or waiting consumers wait for a turn and for nothing else.
func (c *core) pending() bool {
	return len(c.tasks.backlog) > 0 || len(c.waits.unblocked) > 0 || len(c.tasks.later) > 0 || len(c.waits.offers) > 0 || len(c.waits.postponed) > 0 || len(c.throttles.notified) > 0
}

// hasUnfinished reports whether this turn has left work to the next one.
func (c *core) hasUnfinished() bool {
	return c.pending() || len(c.tasks.yielded) > 0 || len(c.queues.deleted) > 0 || len(c.throttles.stale) > 0
}

// more takes a unit and reports whether the call may handle its next message in this turn.
// A call of a transaction always may: its writes must be in one batch.
func (tx *Tx) more() bool {
	if !tx.atomic && !tx.core.room() {
		return false
	}
	tx.core.spend(1)
	return true
}

// yield parks the task until the next turn. Apply must return the result, ErrWouldBlock.
func (tx *Tx) yield() error {
	tx.core.tasks.yielded = append(tx.core.tasks.yielded, tx.task)
	return tx.park(waitTurn, nil, 0)
}

// Each calls step for the numbers from *at up to n, as work of some units each, and leaves in *at
// where it is: calls of other packages do their work in slices with it. It returns
// ErrWouldBlock if it continues in a later turn.
func (tx *Tx) Each(at *int, n, units int, step func(i int)) error {
	for ; *at < n; *at++ {
		if !tx.more() {
			return tx.yield()
		}
		tx.core.spend(units - 1)
		step(*at)
	}
	return nil
}

// resumeYielded continues tasks that have yielded, each at most once in a turn. A task that
// yields again joins the end of the list, so long tasks alternate.
func (c *core) resumeYielded() {
	c.closeDeleted()
	for n := len(c.tasks.yielded); n > 0 && c.room(); n-- {
		t := c.tasks.yielded[0]
		c.tasks.yielded[0] = nil
		c.tasks.yielded = c.tasks.yielded[1:]
		t.resume(c)
	}
}

// errInterrupted ends a task that had done a part of its work before a recovery. The client
// must find out which part: some of its batches may be committed.
var errInterrupted = fmt.Errorf("%w: this was interrupted, and a part of it may be done; look, and send it again", ErrMisconf)

// progress is the position of a task that does its work in slices.
type progress struct {
	epoch uint64 // core.epoch when it began
	at    int    // parts that are done
	n     int    // what they contribute to the result
}

// progress returns the position of the task, zero if it begins. errInterrupted refuses to
// continue after a recovery: whether the earlier parts are on disk is unknown.
func (tx *Tx) progress() (progress, error) {
	p := tx.task.progress
	switch {
	case p == nil || tx.atomic || p.epoch != tx.core.epoch && p.at == 0:
		return progress{epoch: tx.core.epoch}, nil
	case p.epoch != tx.core.epoch:
		return progress{}, errInterrupted
	default:
		return *p, nil
	}
}

// yieldAt is yield for a task whose position the engine keeps.
func (tx *Tx) yieldAt(p progress) error {
	tx.task.progress = &p
	return tx.yield()
}

// awaitAt is await for a task whose position the engine keeps.
func (tx *Tx) awaitAt(p progress) error {
	tx.task.progress = &p
	return tx.await()
}

// applyAll applies the backlog and then the new tasks, in order, as far as the budget lasts.
// What remains, and the tasks of clients that have used their share, is the new backlog:
// the order among the tasks of one client is kept.
func (c *core) applyAll(tasks []*Task) {
	if len(c.tasks.backlog) > 0 {
		c.tasks.backlog = append(c.tasks.backlog, tasks...)
		tasks = c.tasks.backlog
	}
	left := c.tasks.spare[:0]
	for rest := tasks; len(rest) > 0; {
		n := c.prefetchTasks(rest)
		for i, t := range rest[:n] {
			if !c.room() {
				c.setBacklog(c.applyReadOnly(append(left, rest[i:]...)))
				return
			}
			if c.usedShare(t.Client) {
				left = append(left, t)
				continue
			}
			c.apply(t)
			c.applyUnblocked()
		}
		rest = rest[n:]
	}
	c.setBacklog(left)
}

// applyReadOnly applies, when the open batch is full, the read-only tasks that do not follow
// another task of their client, and returns the remaining tasks. The commit that the others
// wait for may be stalled (health.go), and operators need answers just then.
func (c *core) applyReadOnly(tasks []*Task) []*Task {
	if c.out.batch.Size() < c.tasks.budget.fullAt {
		return tasks // the next turn follows at once
	}
	before, kept := map[*Client]bool{}, tasks[:0]
	for _, t := range tasks {
		if t.ReadOnly && !before[t.Client] && c.tasks.budget.left > 0 {
			c.apply(t)
			continue
		}
		before[t.Client] = true
		kept = append(kept, t)
	}
	clear(tasks[len(kept):])
	return kept
}

// setBacklog replaces the backlog. It exchanges two slices, so a backlog allocates nothing
// once they have grown.
func (c *core) setBacklog(left []*Task) {
	clear(c.tasks.backlog)
	c.tasks.backlog, c.tasks.spare = left, c.tasks.backlog[:0]
	c.tasks.bytes = 0
	for _, t := range left {
		c.tasks.bytes += t.Bytes
	}
}

// usedShare reports whether a client has used its share of this turn. Tasks of the engine
// have no client and no share: the work that they result from was bounded.
func (c *core) usedShare(cl *Client) bool {
	return cl != nil && cl.turn == c.health.counters.turns && cl.spent >= c.tasks.budget.share()
}

// charge counts the units of a task against the share of its client.
func (c *core) charge(cl *Client, units int) {
	if cl.turn != c.health.counters.turns {
		cl.turn, cl.spent = c.health.counters.turns, 0
	}
	cl.spent += units
}

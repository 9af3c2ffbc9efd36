package engine

import "fmt"

// A turn has a budget of work, counted in units and never in time: a turn reads no clock.
// A unit is about what one message or one fairness key takes in a command, a microsecond.
// What is left over when the budget is used up goes on in the next turn, which follows at
// once; the loop commits, answers and takes new tasks in between. So no command and no
// number of timers keeps other clients waiting for longer than some turns.
//
// A turn divides its budget into steps, so that none of them starves another:
//
//	timers   a quarter, and a little for each kind of timer (expire)
//	slices   a quarter, for tasks that have done a part of their work in an earlier turn
//	tasks    a half, for what stood behind blocked tasks, then for new ones, oldest first
//	detachedQueue  as much as the tasks have at most, for what emptied queues have left
//	serving  what the tasks have left, or an eighth
//
// Three rules make this fair and keep everything in order:
//
//  1. A call that handles many messages asks for each one (Tx.more), and returns what
//     Tx.yield returns when the step is over. It is parked, keeps its progress and is
//     applied again. What its client has sent behind it waits.
//  2. A client that has used its share of a turn has its next tasks applied in the next
//     turn; others go first.
//  3. What goes on in slices, timers included, adds at most sliceWeight to one batch. Every
//     reply waits for the commit of its batch, and a commit takes as long as the batch has
//     weight: its bytes, and its records, since the store takes about as long for a record
//     as for recordWeight bytes.
//
// Calls within Exec are one write. They use up the budget, and do not stop for it.
type budget struct {
	turn  int // units of a turn; tests set any number
	left  int // units of the step under way
	spent int // in this turn, by all steps

	fullAt int // the size of the open batch at which the step ends, of a slice its weight
	sliced int // weight that slices have added to the open batch
	from   int // weight of the open batch when the slice under way began; 0: none is
}

const (
	turnUnits = 2048
	// sliceWeight is about a thousand small records, for which the store takes a millisecond
	// or two, beside the sync of the disk.
	sliceWeight  = 256 << 10
	recordWeight = 200
	// unitBytes is how much of a task's input counts as one unit.
	unitBytes = 16 << 10
)

// part is a fraction of a turn's budget.
func (b *budget) part(of int) int { return max(b.turn/of, 1) }

// share is how many units a client may use in one turn.
func (b *budget) share() int { return b.part(4) }

// slice begins a step of work that goes on from turn to turn.
func (c *core) slice(units int) {
	c.endSlice()
	b := &c.tasks.budget
	b.from = c.weight()
	b.left, b.fullAt = units, b.from+max(sliceWeight-b.sliced, 0)
}

// endSlice ends the step, if one is under way. What follows has no budget but for the
// size of the batch, until a step begins.
func (c *core) endSlice() {
	if b := &c.tasks.budget; b.from > 0 {
		b.sliced += c.weight() - b.from
		b.from = 0
	}
}

// newTasks begins the step in which tasks are applied.
func (c *core) newTasks() {
	c.endSlice()
	c.tasks.budget.left, c.tasks.budget.fullAt = c.tasks.budget.part(2), c.cfg.BatchBytes
}

// weight is how long the open batch takes to commit, in bytes.
func (c *core) weight() int { return c.out.batch.Size() + recordWeight*c.out.batch.Len() }

// room says that the step may do more.
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

// spend notes that so much was done.
func (c *core) spend(units int) {
	c.tasks.budget.left -= units
	c.tasks.budget.spent += units
}

// atLeast lets the step do some units if those before it have left fewer.
func (c *core) atLeast(units int) { c.tasks.budget.left = max(c.tasks.budget.left, units) }

// mustCut says that nothing goes on before the open batch is cut.
func (c *core) mustCut() bool {
	return c.out.batch.Size() >= c.cfg.BatchBytes || c.tasks.budget.sliced >= sliceWeight && !c.pending()
}

// pending says that tasks wait for a turn, and for nothing else.
func (c *core) pending() bool {
	return len(c.tasks.backlog) > 0 || len(c.waits.unblocked) > 0 || len(c.tasks.later) > 0 || len(c.waits.offers) > 0 || len(c.waits.resumed) > 0 || len(c.throttles.notified) > 0
}

// owes says that this turn has left something to the next one.
func (c *core) hasUnfinished() bool {
	return c.pending() || len(c.tasks.yielded) > 0 || len(c.queues.deleted) > 0 || len(c.throttles.stale) > 0
}

// more takes a unit and reports whether the call may handle its next message in this
// turn. A part of a transaction always may.
func (tx *Tx) more() bool {
	if !tx.atomic && !tx.core.room() {
		return false
	}
	tx.core.spend(1)
	return true
}

// yield lets the task go on in a later turn: what it returns has to be returned.
func (tx *Tx) yield() error {
	tx.core.tasks.yielded = append(tx.core.tasks.yielded, tx.task)
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

// resumeYielded applies those tasks once more that have yielded.
func (c *core) resumeYielded() {
	c.closeDeleted()
	for n := len(c.tasks.yielded); n > 0 && c.room(); n-- {
		t := c.tasks.yielded[0]
		c.tasks.yielded[0] = nil
		if c.tasks.yielded = c.tasks.yielded[1:]; t.wait != nil { // else it has ended meanwhile
			c.run(t)
		}
	}
}

// errInterrupted ends a task that has done a part of its work when the memory was dropped.
var errInterrupted = fmt.Errorf("%w: this was interrupted, and a part of it may be done; look, and send it again", ErrMisconf)

// progress is how far a task has come that has yielded.
type progress struct {
	epoch uint64
	at, n int // parts that are done; what they add to the result
}

// progress returns how far the task has come, and refuses to go on where the memory in
// which it began is gone: what it has done is on disk, or not, and its client has to ask.
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

// yieldAt is yield for a task whose progress the engine keeps.
func (tx *Tx) yieldAt(p progress) error {
	tx.task.progress = &p
	return tx.yield()
}

// parkAt parks a task with its progress that waits for something else than its turn.
func (tx *Tx) parkAt(p progress) error {
	tx.task.progress = &p
	tx.park(nil, 0, false)
	return ErrWouldBlock
}

// applyAll applies tasks in order, those first that earlier turns have left. What it
// leaves itself is in the backlog.
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

// applyReadOnly applies those tasks that only look, and have nothing of their client before
// them, where the others wait because the batch is full: its commit may not end, see
// stall.go. It returns the others.
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

func (c *core) setBacklog(left []*Task) {
	clear(c.tasks.backlog)
	c.tasks.backlog, c.tasks.spare = left, c.tasks.backlog[:0]
	c.tasks.bytes = 0
	for _, t := range left {
		c.tasks.bytes += t.Bytes
	}
}

// hadShare says that a client has used its share of this turn. The engine's own tasks
// have none: they are bounded by what they were asked for.
func (c *core) usedShare(cl *Client) bool {
	return cl != nil && cl.turn == c.health.counters.turns && cl.spent >= c.tasks.budget.share()
}

// charge counts against its client's share what a task has used.
func (c *core) charge(cl *Client, units int) {
	if cl.turn != c.health.counters.turns {
		cl.turn, cl.spent = c.health.counters.turns, 0
	}
	cl.spent += units
}

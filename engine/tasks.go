package engine

import "time"

// taskQueue is the tasks that turns have left over, and the budget of the turn.
type taskQueue struct {
	budget  budget
	later   []*Task // of unblocked clients that have had their share of this turn
	backlog []*Task // no turn has come to them
	yielded []*Task // have done a part of their work
	spare   []*Task // empty; its memory is reused for the next backlog
	bytes   int     // of the input that the tasks of the backlog hold

	unfinished bool // this turn has left something to the next one, which follows at once

	untimed
	unchecked
}

func (q *taskQueue) reset() {
	q.yielded, q.unfinished = nil, false
	q.budget.sliced, q.budget.from = 0, 0
}

// apply runs a task, or keeps it in order behind a blocked one of its client.
func (c *core) apply(t *Task) {
	if cl := t.Client; cl != nil {
		if cl.blocked != nil {
			cl.queued = append(cl.queued, t)
			c.markHeldUp(t)
			return
		}
		if cl.dropped {
			c.finish(t, ErrClientGone)
			return
		}
	}
	c.run(t)
}

// goOn applies what stood behind tasks that are no longer blocked.
func (c *core) applyUnblocked() {
	for len(c.waits.unblocked) > 0 && c.room() {
		t := c.waits.unblocked[0]
		c.waits.unblocked[0] = nil
		if c.waits.unblocked = c.waits.unblocked[1:]; c.hadShare(t.Client) {
			c.tasks.later = append(c.tasks.later, t)
			continue
		}
		c.apply(t)
	}
}

// markHeldUp notes since when a task waits: the wait is not the engine's slowness.
func (c *core) markHeldUp(t *Task) {
	if t.heldUpSince == 0 {
		t.heldUpSince = c.now
	}
}

// run applies a task that may go now, for the first time or again.
func (c *core) run(t *Task) {
	tx := Tx{core: c, task: t}
	before := c.tasks.budget.spent
	t.running = true
	err := t.Call.Apply(&tx)
	t.running = false
	if c.tasks.budget.spent == before || t.Bytes >= unitBytes { // what has counted nothing is one unit
		c.spend(1 + t.Bytes/unitBytes)
	}
	if t.Client != nil {
		c.charge(t.Client, c.tasks.budget.spent-before)
	}
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
	case err == nil && tx.stored:
		c.conclude(t, nil)
		c.out.early = append(c.out.early, t)
	default:
		c.finish(t, err)
	}
}

// finish ends a task: its reply leaves when the open batch is committed.
func (c *core) finish(t *Task, err error) {
	c.conclude(t, err)
	c.out.released = append(c.out.released, t)
}

// conclude takes a task with its result out of what holds it.
func (c *core) conclude(t *Task, err error) {
	t.err = err
	if t.heldUpSince != 0 {
		t.waited = time.Duration(c.now - t.heldUpSince)
	}
	for _, w := range t.logs {
		c.closeLog(w)
	}
	t.logs = nil
	if t.wait != nil {
		c.unpark(t)
	}
}

package engine

import (
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/turn"
)

// taskQueue holds the tasks that a turn has left to the next one, and the turn's budget. The
// states of a task:
//
//	queued     in the inbox, in the backlog, or behind a blocked task of its client
//	running    its call is being applied
//	parked     waits, see waitSet for its kinds; the client's next tasks are queued behind it
//	concluded  has its result, which waits for the commit of the batch (outbox.released),
//	           or for the end of the turn where it is an early reply (outbox.early)
//	done       the result is public; a connection that ended meanwhile drops it
//
//	queued → running      apply: a turn reaches it and no task of its client blocks it
//	running → parked      Apply returns ErrWouldBlock
//	parked → running      resume: a message, a read, a decision or its turn has come
//	running → concluded   Apply returns a result or an error
//	parked → concluded    finish: its time is over, or its client is gone or unblocked
//	concluded → done      Release by the driver, after the commit or at once for an early reply
//
// After a recovery, parked tasks are queued again and keep the end of their wait. Tasks that
// were concluded in a failed batch are refused with ErrMisconf.
type taskQueue struct {
	budget  turn.Budget
	later   []*Task // unblocked, but their clients have used their share of this turn
	backlog []*Task // taken from the inbox and not applied yet, oldest first
	yielded []*Task // parked until the next turn, oldest first
	spare   []*Task // empty; its memory is reused for the next backlog
	bytes   int     // of input that the tasks of the backlog hold, for Config.InboxBytes

	unfinished bool // this turn has left work to the next one, which follows at once

	untimed
	unchecked
}

// reset forgets the slices of the turn. recover queues yielded tasks again, like all parked
// tasks; the backlog remains.
func (q *taskQueue) reset() {
	q.yielded, q.unfinished = nil, false
	q.budget.Reset()
}

// apply runs a task, or queues it behind a blocked task of its client: the tasks of a client
// take effect in the order of their submission.
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

// applyUnblocked applies the tasks that were queued behind tasks which are no longer blocked.
func (c *core) applyUnblocked() {
	for len(c.waits.unblocked) > 0 && c.room() {
		t := c.waits.unblocked[0]
		c.waits.unblocked[0] = nil
		if c.waits.unblocked = c.waits.unblocked[1:]; c.usedShare(t.Client) {
			c.tasks.later = append(c.tasks.later, t)
			continue
		}
		c.apply(t)
	}
}

// markHeldUp records the time since which a wait for messages delays a task. Task.Took does
// not count that time as latency.
func (c *core) markHeldUp(t *Task) {
	if t.heldUpSince == 0 {
		t.heldUpSince = c.now
	}
}

// run applies a task for the first time or again after a wait, and charges its work to the
// budget of the turn and to the share of its client.
func (c *core) run(t *Task) {
	tx := &t.tx
	*tx = Tx{core: c, task: t}
	before := c.tasks.budget.Spent
	err := t.Call.Apply(tx)
	c.groups.endOver(c)
	if c.tasks.budget.Spent == before || t.Bytes >= unitBytes { // every task costs at least one unit
		c.spend(1 + t.Bytes/unitBytes)
	}
	if t.Client != nil {
		c.charge(t.Client, c.tasks.budget.Spent-before)
	}
	switch {
	case err == ErrWouldBlock: //nolint:errorlint // a signal, never wrapped
	case err == nil && tx.stored && (c.cfg.Confirm == nil || !t.Client.awaitsBatch()):
		c.conclude(t, nil)
		c.out.early = append(c.out.early, t)
	default:
		c.finish(t, err)
	}
}

// finish ends a task with a result. Its reply leaves when the open batch is committed, also
// for a call that has written nothing: it may have read what an open batch writes.
func (c *core) finish(t *Task, err error) {
	c.conclude(t, err)
	if t.inBatch = t.Client != nil && c.cfg.Confirm != nil; t.inBatch {
		t.Client.inBatches.Add(1)
	}
	c.out.released = append(c.out.released, t)
}

// conclude sets the result of a task and removes the task from every structure in which it
// waits. The result is not public before Task.publish.
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

// Call is a request to the engine. Apply runs on the loop: it calls a method of tx, keeps
// the typed result in itself and returns the error. After ErrWouldBlock the engine calls
// Apply again, possibly on memory that was recovered meanwhile, so Apply starts from the
// beginning each time.
type Call interface {
	Apply(tx *Tx) error
}

// Task is one call on its way through the engine. The engine owns it from Submit until Done
// is true; only then may the result of the call be read.
type Task struct {
	Call     Call
	Client   *Client // the client that waits for the result; nil: a task of the engine
	Bytes    int     // bytes of the client's input that the task retains, for Config.InboxBytes
	ReadOnly bool    // only reads memory: answered without a commit while the store stalls

	tx  Tx // of the Apply that runs or was the last; here, to save an allocation for each
	err error
	// progress of a task that does its work in slices; nil: it has done none.
	progress *progress
	logs     []*changeLog // of reads of a transaction's preflight; open until the task is concluded
	// shown is the size of the messages read for a transaction, bounded by Config.ReplyBytes.
	shown     int
	wait      *wait // non-nil while the task is parked
	inBatch   bool  // counted by Client.inBatches
	committed bool  // with its batch, while its answer waits for a confirmation
	// deadline is the end of the wait that the task had before a recovery; 0: none.
	deadline int64
	done     atomic.Bool
	// published is called when the result becomes public, and must not block; nil: nothing is.
	published func()

	heldUpSince int64         // start of its wait for messages, or of its place behind such a wait; 0: none
	waited      time.Duration // from heldUpSince until it was concluded
	ended       time.Duration // reading of Elapsed when its result became public
}

// Took returns the latency of the task: from a reading of Elapsed until its result was
// public, without the time in which it waited for messages or behind a task of its client
// that did. It may be called once Done is true.
func (t *Task) Took(since time.Duration) time.Duration { return max(t.ended-since-t.waited, 0) }

// Ended returns the reading of Elapsed at which the result became public. It may be called
// once Done is true.
func (t *Task) Ended() time.Duration { return t.ended }

// Done reports whether the result is public: the batch of the task is as durable as
// Config.Sync promises, or the reply does not depend on it. Any goroutine may call it.
func (t *Task) Done() bool { return t.done.Load() }

// Err returns why the task was refused, or nil. It may be called once Done is true.
func (t *Task) Err() error { return t.err }

// publish makes the result public at a reading of Elapsed.
func (t *Task) publish(now time.Duration) {
	t.ended = now
	if t.inBatch {
		t.Client.inBatches.Add(-1)
	}
	t.done.Store(true)
	if t.published != nil {
		t.published()
	}
}

// Release makes the results of concluded tasks public, at a reading of Elapsed, and wakes their clients. It may be
// called on any goroutine that holds no lock. One or two clients are answered on it: with one message at a time that
// saves a tenth of its way. The replies to many are written by several processors meanwhile.
func Release(tasks []*Task, now time.Duration) {
	for i, t := range tasks {
		cl := t.Client
		t.publish(now)
		switch {
		case cl == nil, i+1 < len(tasks) && tasks[i+1].Client == cl: // one wake-up serves adjacent tasks of a client
		case cl.Answer != nil && len(tasks) <= 2:
			cl.Answer()
		default:
			cl.wake()
		}
	}
}

// Refuse ends tasks that no engine has taken, and wakes their clients. now is a reading of Elapsed.
func Refuse(tasks []*Task, err error, now time.Duration) {
	for _, t := range tasks {
		t.err = err
	}
	Release(tasks, now)
}

// NewSettling returns a task that is done once the tasks of the client before it are. public is called then, and must
// not block.
func NewSettling(cl *Client, public func()) *Task {
	return &Task{Client: cl, Call: settled{}, published: public}
}

// settled is a call without effect.
type settled struct{}

// Apply implements Call.
func (settled) Apply(*Tx) error { return nil }

// Client submits tasks, usually for one connection. Its tasks take effect in the order of
// Submit; those after a blocked task are queued behind it in the engine.
type Client struct {
	ID        uint64
	Answer    func() // nil, or what is called in place of wake where few tasks have ended: it may answer them, and must not wait
	wake      func()
	waits     atomic.Bool  // a task of it waits for messages; any goroutine may read it
	inBatches atomic.Int32 // its tasks whose answers wait for a commit; counted with Config.Confirm

	// Owned by the loop:
	blocked *Task               // the parked task, at most one
	last    *consumers.Consumer // as which it has asked last; nil: it has not
	queued  []*Task             // behind blocked, in order
	gone    bool                // the client has left
	dropped bool                // it left while it waited for messages: its later tasks are refused
	turn    uint64              // number of the turn that spent refers to
	spent   int                 // units used in that turn
}

// NewClient returns a client. ids are unique among the clients of an engine. The engine
// calls wake after one or more of the client's tasks are done, from goroutines of its own;
// wake must not block.
func NewClient(id uint64, wake func()) *Client { return &Client{ID: id, wake: wake} }

// Waits reports whether a task of the client waits for messages. Any goroutine may call it;
// the answer may be outdated when it returns.
func (cl *Client) Waits() bool { return cl.waits.Load() }

const (
	// turnUnits is the budget of a turn.
	turnUnits = turn.Units
	// unitBytes is how many bytes of a task's input count as one unit.
	unitBytes = 16 << 10
)

// open returns the size of the open batch.
func (o *outbox) open() turn.Batch { return turn.Batch{Bytes: o.batch.Size(), Records: o.batch.Len()} }

// slice begins a step whose work continues from turn to turn.
func (c *core) slice(units int) { c.tasks.budget.Slice(units, c.out.open()) }

// newTasks begins the step in which tasks are applied. It ends at Config.BatchBytes.
func (c *core) newTasks() { c.tasks.budget.Tasks(c.cfg.BatchBytes, c.out.open()) }

// room reports whether the step may do more work.
func (c *core) room() bool { return c.tasks.budget.Room(c.out.open()) }

// spend takes units of work from the step and from the turn.
func (c *core) spend(units int) { c.tasks.budget.Spend(units) }

// atLeast guarantees units to a step that follows others on the same budget.
func (c *core) atLeast(units int) { c.tasks.budget.AtLeast(units) }

// mustCut reports whether no work can continue before the open batch is cut: it is full, or
// slices have added their weight and no task waits for a turn.
func (c *core) mustCut() bool {
	return c.out.batch.Size() >= c.cfg.BatchBytes || c.tasks.budget.Sliced() && !c.pending()
}

// pending reports whether tasks or waiting consumers wait for a turn and for nothing else.
func (c *core) pending() bool {
	return len(c.tasks.backlog) > 0 || len(c.waits.unblocked) > 0 || len(c.tasks.later) > 0 || c.order.Offered() || c.order.Pending()
}

// hasUnfinished reports whether this turn has left work to the next one.
func (c *core) hasUnfinished() bool {
	return c.pending() || len(c.tasks.yielded) > 0 || len(c.queues.deleted) > 0 || c.order.stale < c.order.staleEnd || c.order.Sweeping() || c.signals.unfinishedDrain(c)
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
	if !c.tasks.budget.Full(c.out.open()) {
		return tasks // the next turn follows at once
	}
	before, kept := map[*Client]bool{}, tasks[:0]
	for _, t := range tasks {
		if t.ReadOnly && !before[t.Client] && c.tasks.budget.Left > 0 {
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
	return cl != nil && cl.turn == c.health.counters.turns && cl.spent >= c.tasks.budget.Share()
}

// charge counts the units of a task against the share of its client.
func (c *core) charge(cl *Client, units int) {
	if cl.turn != c.health.counters.turns {
		cl.turn, cl.spent = c.health.counters.turns, 0
	}
	cl.spent += units
}

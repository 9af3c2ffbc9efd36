package engine

import (
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/consumers"
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
	budget  turnBudget
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
	q.budget.sliced, q.budget.from = 0, 0
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
	before := c.tasks.budget.spent
	err := t.Call.Apply(tx)
	c.groups.endOver(c)
	if c.tasks.budget.spent == before || t.Bytes >= unitBytes { // every task costs at least one unit
		c.spend(1 + t.Bytes/unitBytes)
	}
	if t.Client != nil {
		c.charge(t.Client, c.tasks.budget.spent-before)
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
// called on any goroutine.
func Release(tasks []*Task, now time.Duration) {
	var last *Client
	for _, t := range tasks {
		cl := t.Client
		t.publish(now)
		// Tasks of one client are usually adjacent: one wake-up serves all of them.
		if last != nil && last != cl {
			last.wake()
		}
		last = cl
	}
	if last != nil {
		last.wake()
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
// The calls of a transaction are in one batch. They spend units, but never yield (transactionWork).
type turnBudget struct {
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
func (b *turnBudget) part(of int) int { return max(b.turn/of, 1) }

// share is how many units a client may use in one turn before others go first.
func (b *turnBudget) share() int { return b.part(4) }

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

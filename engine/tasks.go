package engine

import (
	"errors"
	"sync/atomic"
	"time"
)

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
		if c.waits.unblocked = c.waits.unblocked[1:]; c.usedShare(t.Client) {
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

// Call is what a command wants of the engine. Apply runs on the loop: it calls
// a method of tx, keeps the typed result in itself and returns the error. It may
// be called again if it returned ErrWouldBlock, and must then start afresh.
type Call interface {
	Apply(tx *Tx) error
}

// Task is one call on its way through the loop. It belongs to the engine from
// Submit until Done is true; only then may the call's result be read.
type Task struct {
	Call     Call
	Client   *Client // whose task it is; nil: nobody waits for it
	Bytes    int     // what the task holds of its client's input, for the inbox's bound
	ReadOnly bool    // it changes nothing and promises nothing: see stall.go

	err  error
	undo Call
	// progress is how far a task has come that does its work in slices; nil: it does not.
	progress *progress
	logs     []*changeLog // of what was read for it beforehand, until it is done
	// shown is how many bytes of messages were read for a transaction.
	shown int
	wait  *wait // non-nil while the task is parked
	// running says that its call is being applied. A parked task stands in its lines meanwhile.
	running bool
	// resume is when the wait of a task ends that is parked anew after a recovery.
	resume int64
	state  atomic.Uint32

	heldUpSince int64         // when it was first held back by a wait for messages, its own or one before it; 0: never
	waited      time.Duration // from then until it was finished
	ended       time.Duration // when its result was made public, by the engine's stopwatch
}

// Took returns how long the engine has had the task, from a reading of Elapsed
// until its result was public. Time that it spent waiting for messages, or behind
// a task of its client that did, does not count. It may be called once Done is
// true.
func (t *Task) Took(since time.Duration) time.Duration { return max(t.ended-since-t.waited, 0) }

const (
	taskPending = iota
	taskDone
	taskAbandoned
)

// Done reports whether the turn of the task is as durable as the engine's sync
// mode promises. It may be asked from any goroutine.
func (t *Task) Done() bool { return t.state.Load() == taskDone }

// Err returns why the task was refused. It may be read once Done is true.
func (t *Task) Err() error { return t.err }

// Abandon says that nobody will read the result: the connection is gone. If the
// task is not done yet, the engine submits undo right after it is, and Abandon
// returns true. If it is done, Abandon returns false and undoing is the caller's.
func (t *Task) Abandon(undo Call) bool {
	t.undo = undo
	return t.state.CompareAndSwap(taskPending, taskAbandoned)
}

// conclude makes the result public, at a reading of the stopwatch. It returns what must be undone because
// nobody will see it, or nil.
func (t *Task) conclude(now time.Duration) Call {
	t.ended = now
	if t.state.CompareAndSwap(taskPending, taskDone) {
		return nil
	}
	return t.undo
}

// Client is one who submits tasks, a connection. Its tasks are applied in the
// order of Submit; what follows a blocked task waits behind it in the engine.
type Client struct {
	ID    uint64
	wake  func()
	waits atomic.Bool // for messages; anybody may ask

	// The loop's:
	blocked *Task
	queued  []*Task
	gone    bool
	dropped bool   // it has gone while it waited for messages: nothing of it is executed any more
	turn    uint64 // in which it has used so much of its share
	spent   int
}

// NewClient returns a client. wake is called after one or more of its tasks are
// done, from a goroutine of the engine; it must not block.
func NewClient(id uint64, wake func()) *Client { return &Client{ID: id, wake: wake} }

// Waits says whether a task of the client waits for messages, as of a moment ago.
func (cl *Client) Waits() bool { return cl.waits.Load() }

// Preflighter is a call that may have to wait in the middle, for something to be
// read or decided. Preflight gets that done before anything is applied: it returns
// ErrWouldBlock for as long as the call would wait, and is then asked again. It
// changes nothing. After nil, Apply does not wait in the same turn. errTransaction
// refuses the whole transaction; other errors are Apply's to return.
type Preflighter interface {
	Preflight(tx *Tx) error
}

// Exec applies calls as one: in one turn, so that their writes are in one batch
// and survive a crash all together or not at all, and nothing happens between
// them. Each has its own error, in errs; a call that is refused changes nothing
// and does not stop the others.
//
// Nothing in it waits for messages: a lease that would block comes back empty.
// What has to be read first is read before the first call is applied.
func (tx *Tx) Exec(calls []Call, errs []error) error {
	tx.atomic = true
	tx.task.shown = 0
	for _, call := range calls {
		if f, ok := call.(Preflighter); ok && tx.core.health.failed == nil {
			if err := f.Preflight(tx); err == ErrWouldBlock || errors.Is(err, errTransaction) { //nolint:errorlint // a signal, never wrapped
				return err
			}
		}
	}
	for i, call := range calls {
		err := call.Apply(tx)
		if err == ErrWouldBlock { //nolint:errorlint // a signal, never wrapped
			err = errWaits
		}
		errs[i] = err
	}
	return nil
}

// before is what the calls of a transaction do that come before the one which is
// foreseen, as far as it matters to that.
type preflight struct {
	leases map[string]bool // queues that are leased from
	nacks  map[ID]uint32   // failures of a message
}

func (b *preflight) lease(queues []string) {
	if b.leases == nil {
		b.leases = map[string]bool{}
	}
	for _, name := range queues {
		b.leases[name] = true
	}
}

func (b *preflight) nack(id ID) {
	if b.nacks == nil {
		b.nacks = map[ID]uint32{}
	}
	b.nacks[id]++
}

// errTransaction is wrapped by what refuses a transaction as a whole.
var errTransaction = errors.New("make it several transactions")

// errWaits refuses what cannot be had at once where nothing may wait.
var errWaits = errors.New("this cannot be done as a part of a transaction, do it on its own")

package engine

import (
	"errors"
	"sync/atomic"
	"time"
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
//	concluded → done      publish by the committer, or by the loop for an early reply
//
// After a recovery, parked tasks are queued again and keep the end of their wait. Tasks that
// were concluded in a failed batch are refused with ErrMisconf.
type taskQueue struct {
	budget  budget
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
	t.running = true
	err := t.Call.Apply(tx)
	t.running = false
	if c.tasks.budget.spent == before || t.Bytes >= unitBytes { // every task costs at least one unit
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

// finish ends a task with a result. Its reply leaves when the open batch is committed, also
// for a call that has written nothing: it may have read what an open batch writes.
func (c *core) finish(t *Task, err error) {
	c.conclude(t, err)
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
	shown int
	wait  *wait // non-nil while the task is parked
	// running is true while Apply runs. A task that runs again keeps its place in the lines
	// of queues meanwhile.
	running bool
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
	t.done.Store(true)
	if t.published != nil {
		t.published()
	}
}

// settled is a call without effect: its task is done once the tasks before it are.
type settled struct{}

// Apply implements Call.
func (settled) Apply(*Tx) error { return nil }

// Client submits tasks, usually for one connection. Its tasks take effect in the order of
// Submit; those after a blocked task are queued behind it in the engine.
type Client struct {
	ID    uint64
	wake  func()
	waits atomic.Bool // a task of it waits for messages; any goroutine may read it

	// Owned by the loop:
	blocked *Task   // the parked task, at most one
	queued  []*Task // behind blocked, in order
	gone    bool    // the client has left
	dropped bool    // it left while it waited for messages: its later tasks are refused
	turn    uint64  // number of the turn that spent refers to
	spent   int     // units used in that turn
}

// NewClient returns a client. ids are unique among the clients of an engine. The engine
// calls wake after one or more of the client's tasks are done, from goroutines of its own;
// wake must not block.
func NewClient(id uint64, wake func()) *Client { return &Client{ID: id, wake: wake} }

// Waits reports whether a task of the client waits for messages. Any goroutine may call it;
// the answer may be outdated when it returns.
func (cl *Client) Waits() bool { return cl.waits.Load() }

// Preflighter is a call that may need a read or a hook's decision before it can be applied.
// In a transaction, Preflight obtains these before any call is applied: it returns
// ErrWouldBlock while the call would have to wait, and is called again when the wait is
// over. It changes nothing. After nil, Apply does not wait in the same turn. errTransaction
// refuses the whole transaction; any other error is ignored, since Apply returns it.
type Preflighter interface {
	Preflight(tx *Tx) error
}

// Exec applies calls as a transaction: in one turn, with no other task between them and all
// writes in one batch, which survives a crash entirely or not at all. errs[i] is the error
// of calls[i]; a refused call changes nothing and does not stop the others. The error that
// Exec returns refuses the transaction as a whole, or is ErrWouldBlock.
//
// No call waits for messages: a lease that would block returns none. Reads and decisions
// are obtained by preflight, before the first call is applied.
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

// preflight is the effect of the earlier calls of a transaction on the call whose preflight
// is under way: a nack may refer to a message that an earlier call of the transaction leases.
type preflight struct {
	leases map[string]bool // queues that earlier calls lease from
	nacks  map[ID]uint32   // number of earlier nacks by message
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

// errTransaction is wrapped by errors that refuse a transaction as a whole.
var errTransaction = errors.New("make it several transactions")

// errWaits refuses a call of a transaction that would have to wait.
var errWaits = errors.New("this cannot be done as a part of a transaction, do it on its own")

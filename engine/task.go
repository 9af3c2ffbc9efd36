package engine

import (
	"sync/atomic"
	"time"
)

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

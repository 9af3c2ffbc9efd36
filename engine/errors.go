package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// The refusals of the engine. They are returned wrapped with what was attempted: compare them
// with errors.Is. After a refusal nothing has changed. The commands package maps each of them
// to its code on the wire.
var (
	// ErrNoQueue refuses a call that names a queue which does not exist.
	ErrNoQueue = errors.New("no such queue")
	// ErrQueueExists refuses to create a queue under a name that is in use.
	ErrQueueExists = errors.New("the queue exists already")
	// ErrQueueNotEmpty refuses to delete a queue with messages, unless forced.
	ErrQueueNotEmpty = errors.New("the queue still holds messages, use FORCE to delete them with it")
	// ErrNoMessage refuses an id that names no message of the queue.
	ErrNoMessage = errors.New("no such message")
	// ErrLeaseLost refuses a receipt whose lease has ended: acked, nacked, released or expired.
	ErrLeaseLost = errors.New("the lease is over")
	// ErrBadReceipt refuses what does not have the form of a receipt.
	ErrBadReceipt = errors.New("not a receipt")
	// ErrInvalid refuses a value that is out of range or combined with another in a way that
	// has no meaning. The text names the value.
	ErrInvalid = errors.New("not allowed")
	// ErrTooBig refuses what exceeds one of the Limits. The text names the limit.
	ErrTooBig = errors.New("too big")
	// ErrMaxDepth refuses an enqueue to a queue that has reached its greatest depth.
	ErrMaxDepth = errors.New("the queue is full")
	// ErrScript refuses a script that does not compile or define its function.
	ErrScript = errors.New("the script does not load")
	// ErrBusy refuses a script because too many others wait to be loaded.
	ErrBusy = hook.ErrBusy
	// ErrPaused refuses an enqueue to a queue whose intake is paused.
	ErrPaused = errors.New("the queue is paused")
	// ErrUnreadable refuses what needs a record that the store cannot read.
	ErrUnreadable = storage.ErrUnreadable
	// ErrMisconf refuses every write while the store accepts none.
	ErrMisconf = errors.New("the store cannot write")
	// ErrBackupRunning refuses a second backup at a time.
	ErrBackupRunning = errors.New("a backup is under way already")
	// ErrStopped ends tasks that are submitted after Stop.
	ErrStopped = errors.New("the broker is shutting down")
	// ErrUnblocked ends a wait on behalf of an operator.
	ErrUnblocked = errors.New("client unblocked via CLIENT UNBLOCK")
	// ErrClientGone ends the wait of a client that has disconnected. No reply is sent.
	ErrClientGone = errors.New("the client is gone")
	// ErrWouldBlock is no refusal: Apply returns it when the task has to wait. The engine parks
	// the task and calls the same Apply again when there may be something for it.
	ErrWouldBlock = errors.New("would block")
)

// amount formats a number with the noun that it counts: 1 message, 2 messages.
func amount[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

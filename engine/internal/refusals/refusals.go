// Package refusals has the errors with which the engine refuses a call. Its rooms wrap the same ones.
package refusals

import (
	"errors"

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
	// ErrBadReceipt refuses what has neither the form of a receipt nor that of a message id.
	ErrBadReceipt = errors.New("not a message id or receipt")
	// ErrInvalid refuses a value that is out of range or combined with another in a way that
	// has no meaning. The text names the value.
	ErrInvalid = errors.New("not allowed")
	// ErrTooBig refuses what exceeds one of the Limits. The text names the limit.
	ErrTooBig = errors.New("too big")
	// ErrMaxDepth refuses an enqueue to a queue that has reached its greatest depth.
	ErrMaxDepth = errors.New("the queue is full")
	// ErrScript refuses a script that does not compile or define its function.
	ErrScript = errors.New("the script does not load")
	// ErrNoBudget refuses a call that names a budget which does not exist.
	ErrNoBudget = errors.New("no such budget")
	// ErrCredit refuses a charge that a budget does not cover.
	ErrCredit = errors.New("not enough credits")
	// ErrNoGroup refuses a call that names a group which does not exist, or is not known any more.
	ErrNoGroup = errors.New("no such group")
	// ErrSealed refuses a member of a group that takes no more of them.
	ErrSealed = errors.New("the group is sealed")
	// ErrCancelled refuses a longer lease of a message whose group is cancelled.
	ErrCancelled = errors.New("the group of the message is cancelled")
	// ErrBusy refuses a script because too many others wait to be loaded.
	ErrBusy = hook.ErrBusy
	// ErrPaused refuses an enqueue to a queue whose intake is paused.
	ErrPaused = errors.New("the queue is paused")
	// ErrUnreadable refuses what needs a record that the store cannot read.
	ErrUnreadable = storage.ErrUnreadable
	// ErrMemory refuses what needs more memory than the process may use. errors.Is takes it for an ErrMisconf as
	// well: callers that try again what the store has refused try this again, too.
	ErrMemory error = memoryError{}
	// ErrMisconf refuses every write while the store accepts none.
	ErrMisconf = errors.New("the store cannot write")
	// ErrBackupRunning refuses a second backup at a time.
	ErrBackupRunning = errors.New("a backup is under way already")
	// ErrTakeover refuses tasks when another node leads, or may lead. Nothing has happened.
	ErrTakeover = errors.New("another node is taking over, try again")
	// ErrDeposed ends tasks whose batch was with the replicated log when the node ceased to lead.
	ErrDeposed = storage.ErrDeposed
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

// memoryError is ErrMemory.
type memoryError struct{}

func (memoryError) Error() string { return "there is no memory for more" }

func (memoryError) Is(target error) bool { return target == ErrMisconf }

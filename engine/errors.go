package engine

import (
	"errors"
	"fmt"

	"github.com/faisca/fila/storage"
)

// The refusals of the engine. They come back wrapped with what was attempted;
// compare with errors.Is. The commands package maps each to its code on the wire.
var (
	ErrNoQueue       = errors.New("no such queue")
	ErrQueueExists   = errors.New("the queue exists already")
	ErrQueueNotEmpty = errors.New("the queue still holds messages, use FORCE to delete them with it")
	ErrNoMessage     = errors.New("no such message")
	ErrLeaseLost     = errors.New("the lease is over")
	ErrBadReceipt    = errors.New("not a receipt")
	ErrInvalid       = errors.New("not allowed")
	ErrTooBig        = errors.New("too big")
	ErrMaxDepth      = errors.New("the queue is full")
	// ErrScript refuses a script that does not load.
	ErrScript = errors.New("the script does not load")
	ErrPaused = errors.New("the queue is paused")
	// ErrUnreadable answers what cannot be read.
	ErrUnreadable = storage.ErrUnreadable
	// ErrMisconf answers every write while the store does not take any.
	ErrMisconf = errors.New("the store cannot write")
	// ErrBackupRunning refuses a second backup at a time.
	ErrBackupRunning = errors.New("a backup is under way already")
	// ErrStopped answers tasks that arrive after Stop.
	ErrStopped = errors.New("the broker is shutting down")
	// ErrUnblocked ends a wait on behalf of an operator.
	ErrUnblocked = errors.New("client unblocked via CLIENT UNBLOCK")
	// ErrClientGone ends the wait of a client that has left; nobody reads it.
	ErrClientGone = errors.New("the client is gone")
	// ErrWouldBlock is returned by Apply to say that the task waits. The engine
	// parks the task and calls the same Apply again when there may be something.
	ErrWouldBlock = errors.New("would block")
)

// amount is a number with what it counts: 1 message, 2 messages.
func amount[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

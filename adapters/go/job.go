package fila

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// ErrLeaseLost is the cause of the end of a handler's context, when its lease is over too early, such as by
// FILA.CANCEL. The message may be delivered to another worker, and what the handler returns has no effect.
var ErrLeaseLost = errors.New("fila: the lease is lost")

// errEnded is returned for a message that was acked or failed before.
var errEnded = errors.New("fila: the message is acked or failed already")

// Job is a message that is leased.
type Job struct {
	ID         string
	Receipt    string // of the lease
	Queue      string
	Payload    []byte
	Headers    map[string]string
	Key        string // fairness key
	Attempt    int64  // 1 plus the number of failures
	Deliveries int64
	EnqueuedAt time.Time
	LeaseUntil time.Time // when it was leased

	work  *work        // nil: no worker has leased it
	state atomic.Int32 // live, ended or lost
}

// The states of a job. It leaves live once: when its end is sent to the broker, or when the broker refuses an extension.
const (
	live  int32 = iota
	ended       // acked or nacked
	lost        // the lease was over too early
)

// Progress tells the broker how far the work is, in at most 1 KiB: Queue.Result, FILA.GET, the event progress and the
// dashboard show it until the lease ends. It extends the lease. It returns ErrLeaseLost if that is over.
func (j *Job) Progress(ctx context.Context, text string) error {
	if j.work == nil {
		return nil // a handler is tested without a broker
	}
	err := j.work.Queue.Client.Do(ctx, j.extension("PROGRESS", text)...).Err()
	if refused(err, "LEASELOST") {
		j.work.lose(j, err)
		return ErrLeaseLost
	}
	if err != nil {
		return fmt.Errorf("progress of message %s: %w", j.ID, err)
	}
	return nil
}

// Lost reports whether the lease is over too early, such as by FILA.CANCEL: another worker may have the message.
func (j *Job) Lost() bool { return j.state.Load() == lost }

// Ack acks the message before its handler returns, with a result or nil. What the handler returns concerns others then.
func (j *Job) Ack(result []byte) error { return j.end(acking(j, result)) }

// Fail reports a failure of the message before its handler returns. The error may be one of RetryAfter, Hold or
// Unrecoverable. What the handler returns concerns others then.
func (j *Job) Fail(err error) error { return j.end(nacking(j, err)) }

func (j *Job) end(o outcome) error {
	switch {
	case j.work == nil:
		return nil
	case j.state.CompareAndSwap(live, ended):
	case j.Lost():
		return ErrLeaseLost
	default:
		return errEnded
	}
	err := j.work.settle(o)[0]
	if err != nil {
		j.state.Store(live) // the broker has refused it, such as a result that is too big
	}
	return err
}

// extension returns the command that extends the lease.
func (j *Job) extension(options ...any) []any {
	return append([]any{"FILA.EXTEND", j.Queue, j.Receipt, j.work.Visibility.Milliseconds()}, options...)
}

// outcome is a command that ends the lease of a message.
type outcome struct {
	job     *Job
	command string
	options []any
	instead *outcome // if the broker refuses it; nil: nothing
}

func (o outcome) args() []any {
	return append([]any{o.command, o.job.Queue, o.job.Receipt}, o.options...)
}

// acking acks a message. Without RESULT it would be known to those alone that wait already: nil is an empty one.
func acking(j *Job, result []byte) outcome {
	return outcome{job: j, command: "FILA.ACK", options: []any{"RESULT", result}}
}

// nacking reports a failure.
func nacking(j *Job, err error) outcome {
	o := outcome{job: j, command: "FILA.NACK", options: []any{"ERROR", err.Error()}}
	f := failureOf(err)
	switch {
	case f.dead:
		o.options = append(o.options, "DEAD")
	case f.delayed:
		o.options = append(o.options, "DELAY", max(f.delay, 0).Milliseconds())
	}
	if len(f.holds) > 0 {
		without := o // a throttle that the message does not name is refused
		o.instead = &without
		o.options = append(slices.Clip(o.options), f.holds...)
	}
	return o
}

// failure is an error that decides what becomes of the message.
type failure struct {
	err     error
	dead    bool
	delayed bool
	delay   time.Duration
	holds   []any // options HOLD of FILA.NACK
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Unrecoverable wraps an error of a handler: the message is not tried again, it goes to the dead-letter queue.
func Unrecoverable(err error) error { return &failure{err: err, dead: true} }

// RetryAfter wraps an error of a handler: the message is tried again after a time.
func RetryAfter(delay time.Duration, err error) error {
	return &failure{err: err, delayed: true, delay: delay}
}

// Hold wraps an error of a handler: no message that names the throttle is delivered before d is over, be it of this queue or
// of another: what a provider says in Retry-After. The message itself is tried again as without, but not before. It must name
// the throttle. A zero d opens a throttle that is held.
func Hold(throttle string, d time.Duration, err error) error {
	return &failure{err: err, holds: []any{"HOLD", throttle, max(d, 0).Milliseconds()}}
}

// failureOf returns what an error decides, and those that it wraps: the outermost counts, and all holds.
func failureOf(err error) (f failure) {
	for err != nil {
		if one, ok := err.(*failure); ok { //nolint:errorlint // the tree of errors is walked here
			if !f.dead && !f.delayed {
				f.dead, f.delayed, f.delay = one.dead, one.delayed, one.delay
			}
			f.holds = append(f.holds, one.holds...)
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				inner := failureOf(e)
				if !f.dead && !f.delayed {
					f.dead, f.delayed, f.delay = inner.dead, inner.delayed, inner.delay
				}
				f.holds = append(f.holds, inner.holds...)
			}
			return f
		}
		err = errors.Unwrap(err)
	}
	return f
}

type jobKey struct{}

// JobOf returns the message that a Handler works on, from its context.
func JobOf(ctx context.Context) (job *Job, ok bool) {
	job, ok = ctx.Value(jobKey{}).(*Job)
	return job, ok
}

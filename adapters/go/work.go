package fila

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// work is one call of a handler: a message, or a batch of them, whose leases are extended until it returns.
type work struct {
	*run
	jobs   []*Job
	cancel context.CancelCauseFunc // of the handler's context
}

// handle has the messages handled, and acks or nacks those that the handler has not ended itself.
func (w *work) handle() {
	parent := context.Background()
	if w.BatchHandler == nil {
		parent = context.WithValue(parent, jobKey{}, w.jobs[0])
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	w.cancel = cancel
	done := make(chan struct{})
	var extending sync.WaitGroup
	extending.Go(func() { w.extend(done) })
	result, err := w.call(ctx)
	close(done)
	extending.Wait()
	w.conclude(result, err)
}

// call calls the handler. A panic is a failure.
func (w *work) call(ctx context.Context) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if w.BatchHandler != nil {
		return nil, w.BatchHandler(ctx, w.jobs)
	}
	return w.Handler(ctx, w.jobs[0])
}

// conclude ends the leases that are left.
func (w *work) conclude(result []byte, err error) {
	var outcomes []outcome
	for _, job := range w.jobs {
		if !job.state.CompareAndSwap(live, ended) {
			continue // a command about it would have no effect
		}
		if err == nil {
			outcomes = append(outcomes, acking(job, result))
		} else {
			outcomes = append(outcomes, nacking(job, err))
		}
	}
	var again []outcome
	for n, refusal := range w.settle(outcomes...) {
		if refusal != nil && outcomes[n].command == "FILA.ACK" { // such as of a result that is too big
			again = append(again, nacking(outcomes[n].job, refusal))
		}
	}
	w.settle(again...) // refusals were reported
}

// release gives messages back that were not handled. That is no failure.
func (w *work) release() {
	var outcomes []outcome
	for _, job := range w.jobs {
		outcomes = append(outcomes, outcome{job: job, command: "FILA.RELEASE"})
	}
	w.settle(outcomes...) // refusals were reported
}

// extend extends the leases until done is closed.
func (w *work) extend(done <-chan struct{}) {
	tick := time.NewTicker(w.Visibility / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		var jobs []*Job
		var commands [][]any
		for _, job := range w.jobs {
			if job.state.Load() == live {
				jobs, commands = append(jobs, job), append(commands, job.extension())
			}
		}
		for n, err := range w.do(commands) {
			switch {
			case err == nil:
			case refused(err) && !temporary(err):
				w.lose(jobs[n], err)
			default:
				w.OnError(fmt.Errorf("extend the lease of message %s: %w", jobs[n].ID, err))
			}
		}
	}
}

// lose notes that the lease of a message is over too early. The handler's context ends once it has no message left.
func (w *work) lose(job *Job, err error) {
	if !job.state.CompareAndSwap(live, lost) {
		return // its end was under way
	}
	w.OnError(fmt.Errorf("the lease of message %s is lost: %w", job.ID, err))
	for _, other := range w.jobs {
		if other.state.Load() == live {
			return
		}
	}
	w.cancel(ErrLeaseLost)
}

// settle ends leases, and returns for each the error of a refusal. While the broker cannot be reached it tries again, until the
// leases would be over.
func (w *work) settle(outcomes ...outcome) []error {
	refusals := make([]error, len(outcomes))
	left := make([]int, len(outcomes)) // of outcomes
	for n := range outcomes {
		left[n] = n
	}
	for until := time.Now().Add(w.Visibility); ; <-time.After(retryAfter) {
		commands := make([][]any, len(left))
		for n, o := range left {
			commands[n] = outcomes[o].args()
		}
		var again []int
		waiting := false
		for n, err := range w.do(commands) {
			if err == nil {
				continue
			}
			o := &outcomes[left[n]]
			err = fmt.Errorf("%s of message %s: %w", o.command, o.job.ID, err)
			w.OnError(err)
			switch {
			case !refused(err) || temporary(err):
				again, waiting = append(again, left[n]), true
			case o.instead != nil && !refused(err, "LEASELOST"):
				*o, again = *o.instead, append(again, left[n])
			default:
				refusals[left[n]] = err
			}
		}
		left = again
		if len(left) == 0 || waiting && time.Now().After(until) {
			return refusals // what is left is delivered again
		}
	}
}

// do sends commands in one round trip, and returns the error of each.
func (w *work) do(commands [][]any) []error {
	if len(commands) == 0 {
		return nil
	}
	pipe := w.Queue.Client.Pipeline()
	for _, args := range commands {
		pipe.Do(context.Background(), args...)
	}
	replies, _ := pipe.Exec(context.Background()) // each reply has its error
	errs := make([]error, len(commands))
	for n, reply := range replies {
		errs[n] = reply.Err()
	}
	return errs
}

// temporary reports whether a refusal ends by itself.
func temporary(err error) bool {
	return refused(err, "LOADING", "MISCONF", "CLUSTERDOWN", "READONLY", "OOM")
}

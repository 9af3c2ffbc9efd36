package fila

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// retryAfter is the pause after an error of the connection.
	retryAfter = 500 * time.Millisecond
	// defaultVisibility is the visibility timeout of leases, unless it is configured.
	defaultVisibility = 30 * time.Second
)

// ErrLeaseLost is the cause of the end of a handler's context, when its lease is over too early, such as by
// FILA.CANCEL. The message may be delivered to another worker, and what the handler returns has no effect.
var ErrLeaseLost = errors.New("fila: the lease is lost")

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
}

// Handler works on a message. What it returns is the result of the message, nil for none. An error, or a
// panic, is a failure. The context ends when the lease is lost; it does not end with that of Run.
type Handler func(ctx context.Context, job *Job) (result []byte, err error)

// Worker hands the messages of a queue to a handler. Queue and Handler are required.
type Worker struct {
	Queue   *Queue
	Handler Handler

	// Concurrency is how many messages are handled at a time. 0: one.
	Concurrency int

	// Visibility is for how long a message is leased, and by what the lease is extended while the handler
	// works. A message of a process that died is delivered again after it. 0: 30 seconds.
	Visibility time.Duration

	// Consumer is a name that the broker shows to operators. "": host and process.
	Consumer string

	// OnError is called with errors that the worker survives, from several goroutines: the broker cannot be
	// reached, or a lease is lost. nil: they are dropped.
	OnError func(error)
}

// failure is an error that decides what becomes of the message.
type failure struct {
	err   error
	dead  bool
	delay time.Duration
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// Unrecoverable wraps an error of a handler: the message is not tried again, it goes to the dead-letter queue.
func Unrecoverable(err error) error { return &failure{err: err, dead: true} }

// RetryAfter wraps an error of a handler: the message is tried again after a time.
func RetryAfter(delay time.Duration, err error) error { return &failure{err: err, delay: delay} }

type jobKey struct{}

// JobOf returns the message that a handler works on, from its context.
func JobOf(ctx context.Context) (job *Job, ok bool) {
	job, ok = ctx.Value(jobKey{}).(*Job)
	return job, ok
}

// Run works until ctx ends. Then it returns nil, once the handlers have returned and their messages are
// acked or nacked. It waits for a queue that does not exist, unless the queue has Settings: then it creates
// it. While the broker cannot be reached it tries again.
func (w *Worker) Run(ctx context.Context) error {
	if w.Queue == nil || w.Queue.Client == nil || w.Handler == nil {
		return errors.New("fila: a worker needs a Queue with a Client, and a Handler")
	}
	r := w.running()
	defer r.handlers.Wait()
	for {
		free, err := r.take(ctx)
		if err != nil {
			return nil
		}
		jobs, err := r.lease(free)
		if err != nil {
			r.missed(ctx, err)
		}
		for _, job := range jobs {
			if ctx.Err() != nil {
				_ = r.settle("FILA.RELEASE", job) // it was reported
				continue
			}
			free--
			r.handlers.Go(func() {
				defer r.free(1)
				r.handle(job)
			})
		}
		r.free(free)
	}
}

// run is a worker that runs.
type run struct {
	Worker
	slots    chan struct{} // has an element for each message that may be leased
	handlers sync.WaitGroup
}

// running returns the worker with its defaults.
func (w *Worker) running() *run {
	r := &run{Worker: *w}
	r.Concurrency = max(r.Concurrency, 1)
	if r.Visibility <= 0 {
		r.Visibility = defaultVisibility
	}
	if r.Consumer == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		r.Consumer = fmt.Sprintf("%s:%d", host, os.Getpid())
	}
	if r.OnError == nil {
		r.OnError = func(error) {}
	}
	r.slots = make(chan struct{}, r.Concurrency)
	r.free(r.Concurrency)
	return r
}

// take waits for a slot, and takes all that are free.
func (r *run) take(ctx context.Context) (int, error) {
	select {
	case <-r.slots:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if ctx.Err() != nil { // both were ready
		return 0, ctx.Err()
	}
	for n := 1; ; n++ {
		select {
		case <-r.slots:
		default:
			return n, nil
		}
	}
}

func (r *run) free(n int) {
	for range n {
		r.slots <- struct{}{}
	}
}

// lease waits for messages. The call is not cancelled: the lease of a cancelled call would keep a message
// from other consumers.
func (r *run) lease(count int) ([]*Job, error) {
	reply, err := r.Queue.Client.Do(context.Background(), "FILA.LEASE", r.Queue.Name, "COUNT", count,
		"BLOCK", blockFor.Milliseconds(), "VISIBILITY", r.Visibility.Milliseconds(), "CONSUMER", r.Consumer).Slice()
	if err != nil {
		return nil, fmt.Errorf("lease from %q: %w", r.Queue.Name, err)
	}
	jobs := make([]*Job, 0, len(reply))
	for _, one := range reply {
		job, err := jobOf(one)
		if err != nil {
			return jobs, err
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// jobOf reads a message of the reply of FILA.LEASE: receipt, payload, headers, key, attempt, deliveries,
// enqueued_at, lease_until, queue.
func jobOf(leased any) (*Job, error) {
	fields, _ := leased.([]any)
	if len(fields) < 9 {
		return nil, fmt.Errorf("FILA.LEASE has replied %v", leased)
	}
	number := func(i int) int64 { n, _ := fields[i].(int64); return n }
	job := &Job{
		Receipt: text(fields[0]), Payload: []byte(text(fields[1])), Headers: map[string]string{}, Key: text(fields[3]), Attempt: number(4),
		Deliveries: number(5), EnqueuedAt: time.UnixMilli(number(6)), LeaseUntil: time.UnixMilli(number(7)), Queue: text(fields[8]),
	}
	job.ID, _, _ = strings.Cut(job.Receipt, ":")
	headers, _ := fields[2].([]any)
	for i := 0; i+1 < len(headers); i += 2 {
		job.Headers[text(headers[i])] = text(headers[i+1])
	}
	return job, nil
}

// missed pauses after a lease that was refused, or that the broker was not reached for. A queue that does
// not exist is created or waited for.
func (r *run) missed(ctx context.Context, err error) {
	switch {
	case !refused(err, "NOQUEUE"):
		r.OnError(err)
	case len(r.Queue.Settings) > 0:
		if err := r.Queue.Create(context.WithoutCancel(ctx)); err == nil {
			return
		}
		r.OnError(err)
	}
	select {
	case <-ctx.Done():
	case <-time.After(retryAfter):
	}
}

// handle has a message handled, and acks or nacks it.
func (r *run) handle(job *Job) {
	ctx, lose := context.WithCancelCause(context.WithValue(context.Background(), jobKey{}, job))
	defer lose(nil)
	done := make(chan struct{})
	var extending sync.WaitGroup
	extending.Go(func() { r.extend(job, done, lose) })
	result, err := r.call(ctx, job)
	close(done)
	extending.Wait()
	if errors.Is(context.Cause(ctx), ErrLeaseLost) {
		return // an ack would have no effect
	}
	if err == nil {
		// Without RESULT it would be known to those alone that wait already: nil is an empty one.
		err = r.settle("FILA.ACK", job, "RESULT", result)
	}
	if err != nil {
		r.nack(job, err)
	}
}

// call calls the handler. A panic is a failure of the message.
func (r *run) call(ctx context.Context, job *Job) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return r.Handler(ctx, job)
}

// nack reports a failure.
func (r *run) nack(job *Job, err error) {
	options := []any{"ERROR", err.Error()}
	var f *failure
	switch {
	case !errors.As(err, &f):
	case f.dead:
		options = append(options, "DEAD")
	default:
		options = append(options, "DELAY", max(f.delay, 0).Milliseconds())
	}
	_ = r.settle("FILA.NACK", job, options...) // it was reported
}

// extend extends a lease until done is closed.
func (r *run) extend(job *Job, done <-chan struct{}, lose context.CancelCauseFunc) {
	tick := time.NewTicker(r.Visibility / 3)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		err := r.do("FILA.EXTEND", job, r.Visibility.Milliseconds())
		switch {
		case err == nil:
		case refused(err) && !temporary(err):
			r.OnError(err)
			lose(ErrLeaseLost)
			return
		default:
			r.OnError(err)
		}
	}
}

// settle ends a lease, and returns the error of a refusal. While the broker cannot be reached it tries
// again, until the lease would be over.
func (r *run) settle(command string, job *Job, options ...any) error {
	for until := time.Now().Add(r.Visibility); ; <-time.After(retryAfter) {
		err := r.do(command, job, options...)
		if err == nil {
			return nil
		}
		r.OnError(err)
		switch {
		case refused(err) && !temporary(err):
			return err
		case time.Now().After(until):
			return nil // the message is delivered again
		}
	}
}

// do sends a command about a lease.
func (r *run) do(command string, job *Job, options ...any) error {
	if err := r.Queue.Client.Do(context.Background(), append([]any{command, job.Queue, job.Receipt}, options...)...).Err(); err != nil {
		return fmt.Errorf("%s of message %s: %w", command, job.ID, err)
	}
	return nil
}

// temporary reports whether a refusal ends by itself.
func temporary(err error) bool {
	return refused(err, "LOADING", "MISCONF", "CLUSTERDOWN", "READONLY", "OOM")
}

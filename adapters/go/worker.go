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
	// defaultBatch is the most messages of a batch, unless it is configured.
	defaultBatch = 100
)

// Handler works on a message. What it returns is the result of the message, nil for none. An error, or a
// panic, is a failure. The context ends when the lease is lost; it does not end with that of Run.
type Handler func(ctx context.Context, job *Job) (result []byte, err error)

// BatchHandler works on several messages of one key, in the order of delivery. Nil acks those that it has not acked or failed
// itself, with Job.Ack and Job.Fail, and an error, or a panic, fails them. The context ends when the leases of all that are left
// are lost.
type BatchHandler func(ctx context.Context, jobs []*Job) error

// Worker hands the messages of a queue to a handler. Queue, and Handler or BatchHandler, are required.
type Worker struct {
	Queue   *Queue
	Handler Handler

	// BatchHandler gets up to Batch (0: 100) messages at once, all of one fairness key: the one whose turn it is. With the
	// queue's settings BATCH and BATCHWAIT a key waits until it has that many messages; without, it gets what is there.
	BatchHandler BatchHandler
	Batch        int

	// Concurrency is how many messages, or batches, are handled at a time. 0: one.
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

// Run works until ctx ends. Then it returns nil, once the handlers have returned and their messages are
// acked or nacked. It waits for a queue that does not exist, unless the queue has Settings: then it creates
// it. While the broker cannot be reached it tries again.
func (w *Worker) Run(ctx context.Context) error {
	if w.Queue == nil || w.Queue.Client == nil || (w.Handler == nil) == (w.BatchHandler == nil) {
		return errors.New("fila: a worker needs a Queue with a Client, and a Handler or a BatchHandler")
	}
	r := w.running()
	defer r.handlers.Wait()
	for {
		free, err := r.take(ctx)
		if err != nil {
			return nil
		}
		works, err := r.lease(free)
		if err != nil {
			r.missed(ctx, err)
		}
		for _, w := range works {
			if ctx.Err() != nil {
				w.release()
				continue
			}
			free--
			r.handlers.Go(func() {
				defer r.free(1)
				w.handle()
			})
		}
		r.free(free)
	}
}

// run is a worker that runs.
type run struct {
	Worker
	slots    chan struct{} // has an element for each message, or batch, that may be leased
	handlers sync.WaitGroup
}

// running returns the worker with its defaults.
func (w *Worker) running() *run {
	r := &run{Worker: *w}
	r.Concurrency = max(r.Concurrency, 1)
	if r.Batch <= 0 {
		r.Batch = defaultBatch
	}
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

// take waits for a slot, and takes all that are free; for batches one, as each is a lease of its own.
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
		if r.BatchHandler != nil {
			return n, nil
		}
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

// lease waits for messages, and returns each as a work of its own, or all of them as a batch. The call is not cancelled: the
// lease of a cancelled call would keep a message from other consumers.
func (r *run) lease(count int) ([]*work, error) {
	args := []any{"FILA.LEASE", r.Queue.Name, "COUNT", count}
	if r.BatchHandler != nil {
		args = []any{"FILA.LEASE", r.Queue.Name, "COUNT", r.Batch, "SAMEKEY"}
	}
	reply, err := r.Queue.Client.Do(context.Background(), append(args,
		"BLOCK", blockFor.Milliseconds(), "VISIBILITY", r.Visibility.Milliseconds(), "CONSUMER", r.Consumer)...).Slice()
	if err != nil {
		return nil, fmt.Errorf("lease from %q: %w", r.Queue.Name, err)
	}
	works := make([]*work, 0, len(reply))
	for _, one := range reply {
		job, err := jobOf(one)
		if err != nil {
			return works, err
		}
		if r.BatchHandler != nil && len(works) > 0 {
			works[0].jobs = append(works[0].jobs, job)
			continue
		}
		works = append(works, &work{run: r, jobs: []*Job{job}})
	}
	for _, w := range works {
		for _, job := range w.jobs {
			job.work = w
		}
	}
	return works, nil
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

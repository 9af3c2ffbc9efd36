// Package worker has a task done for each message of a queue: [Program] runs a program, which is what
// `fila work` does, and package push sends an HTTP request, as `fila push`.
//
// # A message
//
//	leased ──► task ──► done          ACK
//	           │  ▲     dead          NACK DEAD with the reason
//	           │  │     failed        NACK with the reason, and with what delays or holds it
//	           └──┘     not started   RELEASE: it is no failure of the message
//	       EXTEND each third of the visibility timeout; when the lease is lost, the task is ended
//
// # What is guaranteed
//
// A message is acked only after its task is done, so it is processed at least once, whichever of
// task, worker and broker dies. No message is leased before a task can take it: at most Concurrency
// leases are held, and a worker that stops has none left that no task has.
//
// # Connections
//
// One connection leases, the other reports. Each is opened again when it breaks, for as long as
// the worker runs; a report is sent again until the broker has answered it or the lease is over.
package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/client"
)

// Task is what is done for each message. Its method is called by several goroutines at a time.
type Task interface {
	// Do works on a message until it is done or ctx ends, which says that the lease is lost.
	Do(ctx context.Context, m *Message) Result
}

// Message is a delivery.
type Message struct {
	Queue, ID, Payload, Key string
	Headers                 []string // name, value, ...
	Attempt, Deliveries     int64
	EnqueuedAt              int64 // in ms since 1970

	receipt string
}

// Result is how a task has ended. The zero value says that it is done.
type Result struct {
	Failure    string        // empty: it is done
	Dead       bool          // the message is not to be tried again
	Delay      time.Duration // the message is tried again after it; 0: after the backoff of the queue
	Hold       string        // a throttle that the message names, which is held for Delay in place of the message alone; empty: none
	NotStarted error         // not nil: the message is given back
}

// Worker says what is done for the messages of which queue. Its fields must not change while it runs.
type Worker struct {
	// Dial opens a connection to the broker.
	Dial  func(ctx context.Context) (*client.Conn, error)
	Queue string
	Task  Task

	Concurrency int           // tasks at a time, at least 1
	Max         int64         // ends after so many messages; 0: never
	Once        bool          // ends when no message is ready
	Visibility  time.Duration // of leases; 0: that of the queue
	Consumer    string        // the name that FILA.GET shows; empty: none

	// Log takes a line for each message that failed and each broken connection. It may be
	// called from several goroutines at a time.
	Log func(line string)

	done, failed, lost atomic.Int64
	reports            reporter
}

// Summary is what became of the messages.
type Summary struct {
	Done   int64 // acked
	Failed int64 // nacked
	Lost   int64 // whose leases were over before they could be reported
}

const (
	// blockTime is how long one FILA.LEASE waits, and so how long a worker without messages takes
	// to stop.
	blockTime = time.Second
	// answerTime is how long the broker has for any other answer.
	answerTime = 30 * time.Second
	// retryMax is the longest pause between two attempts to reach the broker.
	retryMax = 5 * time.Second
)

// Run leases and works until ctx ends, or Max or Once is fulfilled; then it waits for the tasks
// that run. Its error is a refusal of the broker, or that it could not be reached at the start.
func (w *Worker) Run(ctx context.Context) (Summary, error) {
	w.reports.dial = w.Dial
	leases, err := w.Dial(ctx)
	if err != nil {
		return Summary{}, err
	}
	if err := w.findVisibility(ctx, leases); err != nil {
		return Summary{}, errors.Join(err, leases.Close())
	}
	err = w.lease(ctx, leases)
	w.reports.close()
	return Summary{w.done.Load(), w.failed.Load(), w.lost.Load()}, err
}

// findVisibility asks the queue for its visibility timeout, unless one was given.
func (w *Worker) findVisibility(ctx context.Context, conn *client.Conn) error {
	reply, err := conn.Do(ctx, "FILA.QUEUE", "INFO", w.Queue)
	if err != nil {
		return err
	}
	if m, ok := reply.(client.Map); ok && w.Visibility == 0 {
		w.Visibility = time.Duration(m.Int("visibility_ms")) * time.Millisecond
	}
	return nil
}

// lease hands messages to tasks until it is to end, and waits for these.
func (w *Worker) lease(ctx context.Context, conn *client.Conn) error {
	free := make(chan struct{}, w.Concurrency)
	for range w.Concurrency {
		free <- struct{}{}
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() {
		if conn != nil {
			_ = conn.Close() // its replies were read
		}
	}()
	wait := newBackoff()
	for begun := int64(0); ctx.Err() == nil && (w.Max == 0 || begun < w.Max); {
		places := w.places(ctx, free, begun)
		if places == 0 {
			return nil // ctx has ended
		}
		messages, err := w.next(ctx, &conn, places)
		for range places - len(messages) {
			free <- struct{}{}
		}
		if err == nil {
			wait.reset()
		} else if err := w.recover(ctx, err, wait); err != nil {
			return err
		}
		if w.Once && err == nil && len(messages) == 0 {
			return nil
		}
		begun += int64(len(messages))
		for _, m := range messages {
			running.Go(func() {
				w.work(ctx, &m)
				free <- struct{}{}
			})
		}
	}
	return nil
}

// places waits until a task can run, and takes all places that are free; 0 when ctx has ended.
func (w *Worker) places(ctx context.Context, free chan struct{}, begun int64) int {
	select {
	case <-ctx.Done():
		return 0
	case <-free:
	}
	n := 1
	for w.Max == 0 || begun+int64(n) < w.Max {
		select {
		case <-free:
			n++
			continue
		default:
		}
		break
	}
	return n
}

// next leases messages, on a connection that it opens if there is none. The signal to stop does not
// cut it short: what the broker has handed out would be lost until its lease ends.
func (w *Worker) next(ctx context.Context, conn **client.Conn, n int) ([]Message, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime+blockTime)
	defer cancel()
	if *conn != nil && (*conn).Err() != nil {
		_ = (*conn).Close() // it is broken
		*conn = nil
	}
	if *conn == nil {
		fresh, err := w.Dial(ctx)
		if err != nil {
			return nil, err
		}
		*conn = fresh
	}
	words := []string{"FILA.LEASE", w.Queue, "COUNT", strconv.Itoa(n), "VISIBILITY", millis(w.Visibility)}
	if !w.Once {
		words = append(words, "BLOCK", millis(blockTime))
	}
	if w.Consumer != "" {
		words = append(words, "CONSUMER", w.Consumer)
	}
	reply, err := (*conn).Do(ctx, words...)
	if err != nil {
		return nil, err
	}
	return w.parse(reply)
}

// parse reads the reply to FILA.LEASE.
func (w *Worker) parse(reply any) ([]Message, error) {
	list, _ := reply.([]any)
	messages := make([]Message, 0, len(list))
	for _, item := range list {
		f, _ := item.([]any)
		const fields = 8
		if len(f) < fields {
			return nil, errors.New("the broker answered FILA.LEASE with something else than messages")
		}
		m := Message{
			Queue: w.Queue, receipt: client.Text(f[0]), Payload: client.Text(f[1]), Headers: client.Texts(f[2]), Key: client.Text(f[3]),
			Attempt: client.Int(f[4]), Deliveries: client.Int(f[5]), EnqueuedAt: client.Int(f[6]),
		}
		m.ID = idOf(m.receipt)
		messages = append(messages, m)
	}
	return messages, nil
}

// recover decides what follows an error of a lease: a pause and another attempt, or the end with
// the error that it returns.
func (w *Worker) recover(ctx context.Context, err error, wait *backoff) error {
	if client.Refused(err) && !passing(err) {
		return err
	}
	pause := wait.next()
	w.Log(fmt.Sprintf("%v; the next attempt is in %s", err, pause.Round(10*time.Millisecond)))
	sleep(ctx, pause)
	return nil
}

// passing says whether a refusal is because of a state of the broker that will pass.
func passing(err error) bool {
	return client.Refused(err, "LOADING", "MISCONF", "OOM", "CLUSTERDOWN") || err.Error() == "ERR max number of clients reached"
}

// errStops is why a message is given back that was leased in the moment of the signal to stop.
var errStops = errors.New("the worker stops")

// work has the task of a message done, and reports what became of it. A signal to stop does not end the task.
func (w *Worker) work(ctx context.Context, m *Message) {
	lease := newLease(w, m)
	result := Result{NotStarted: errStops}
	if ctx.Err() == nil {
		result = w.Task.Do(lease.gone, m)
	}
	lease.finish()
	var err error
	switch {
	case lease.lost():
		w.lost.Add(1)
		w.Log(fmt.Sprintf("%s: its lease was lost while it was worked on; it is delivered again unless it was removed", m.ID))
		return
	case result.NotStarted != nil:
		w.Log(fmt.Sprintf("%s: released, not started: %v", m.ID, result.NotStarted))
		if _, err = w.report(lease, "FILA.RELEASE", w.Queue, m.receipt); err == nil {
			sleep(ctx, time.Second) // the next would fare no better
		}
	case result.Failure == "":
		err = w.ack(lease)
	default:
		err = w.nack(lease, &result)
	}
	if err != nil {
		w.lost.Add(1)
		w.Log(fmt.Sprintf("%s: %v; it is delivered again when its lease is over", m.ID, err))
	}
}

func (w *Worker) ack(l *lease) error {
	reply, err := w.report(l, "FILA.ACK", w.Queue, l.receipt)
	if err != nil {
		return err
	}
	if reply == int64(0) && !l.repeated {
		return errors.New("its lease was over before it was acked")
	}
	w.done.Add(1)
	return nil
}

func (w *Worker) nack(l *lease, r *Result) error {
	words := []string{"FILA.NACK", w.Queue, l.receipt, "ERROR", r.Failure}
	delayed := append(slices.Clone(words), "DELAY", millis(r.Delay))
	switch {
	case r.Dead:
		words = append(words, "DEAD")
	case r.Delay > 0 && r.Hold != "":
		words = append(words, "HOLD", r.Hold, millis(r.Delay))
	case r.Delay > 0:
		words = delayed
	}
	reply, err := w.report(l, words...)
	if client.Refused(err, "INVALID") && r.Hold != "" { // it does not name the throttle
		w.Log(fmt.Sprintf("%s: %v; this message alone is delayed by %s", l.ID, err, r.Delay))
		reply, err = w.report(l, delayed...)
	}
	if client.Refused(err, "LEASELOST") && l.repeated {
		err = nil // the first attempt was executed, or another delivery is under way
	}
	if err != nil {
		return err
	}
	w.failed.Add(1)
	what, _ := reply.(client.Map)
	w.Log(fmt.Sprintf("%s: attempt %d failed: %s (%s)", l.ID, l.Attempt, r.Failure, outcome(what)))
	return nil
}

// outcome is the reply to FILA.NACK in words.
func outcome(m client.Map) string {
	switch {
	case m.Text("action") == "retry":
		return "it is tried again"
	case m.Text("dlq") != "":
		return "it is in " + m.Text("dlq")
	case m != nil:
		return "it was dropped"
	}
	return "reported before"
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

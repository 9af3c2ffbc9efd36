package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/faisca/fila/internal/client"
)

// reporter is the connection on which all tasks report. It is opened when it is needed.
type reporter struct {
	dial func(ctx context.Context) (*client.Conn, error)
	mu   sync.Mutex
	conn *client.Conn
}

// do sends one command.
func (r *reporter) do(ctx context.Context, words ...string) (any, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && r.conn.Err() != nil {
		_ = r.conn.Close() // it is broken
		r.conn = nil
	}
	if r.conn == nil {
		conn, err := r.dial(ctx)
		if err != nil {
			return nil, err
		}
		r.conn = conn
	}
	return r.conn.Do(ctx, words...)
}

func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil {
		_ = r.conn.Close() // what was sent was answered
	}
}

// report sends what became of a message until the broker has answered, or the lease is over.
func (w *Worker) report(l *lease, words ...string) (any, error) {
	wait := newBackoff()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		reply, err := w.reports.do(ctx, words...)
		cancel()
		if err == nil || client.Refused(err) && !passing(err) {
			return reply, err
		}
		left := time.Until(l.until())
		if left <= 0 {
			return nil, fmt.Errorf("%s could not be sent: %w", strings.ToLower(words[0]), err)
		}
		l.repeated = true
		sleep(context.Background(), min(wait.next(), left))
	}
}

// lease keeps the lease of a message while its task runs.
type lease struct {
	*Message

	w        *Worker
	stop     chan struct{}
	ended    sync.WaitGroup
	gone     context.Context //nolint:containedctx // it ends with the lease
	lose     context.CancelFunc
	repeated bool // a report was sent twice: the first may have been executed

	mu       sync.Mutex
	deadline time.Time
}

// newLease begins to extend a lease each third of its time.
func newLease(w *Worker, m *Message) *lease {
	l := &lease{Message: m, w: w, stop: make(chan struct{}), deadline: time.Now().Add(w.Visibility)}
	l.gone, l.lose = context.WithCancel(context.Background())
	l.ended.Go(l.extend)
	return l
}

func (l *lease) extend() {
	tick := time.NewTicker(max(l.w.Visibility/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		begin := time.Now()
		_, err := l.w.reports.do(ctx, "FILA.EXTEND", l.w.Queue, l.receipt, millis(l.w.Visibility))
		cancel()
		switch {
		case err == nil:
			l.mu.Lock()
			l.deadline = begin.Add(l.w.Visibility)
			l.mu.Unlock()
		case client.Refused(err, "LEASELOST", "NOQUEUE", "NOMSG"):
			l.lose()
			return
		}
	}
}

// until is when the lease ends, by this machine's clock.
func (l *lease) until() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// finish ends the extensions.
func (l *lease) finish() {
	close(l.stop)
	l.ended.Wait()
}

// lost says whether the broker has given the message to another consumer, or removed it.
func (l *lease) lost() bool { return l.gone.Err() != nil }

// idOf is the id of the message in a receipt.
func idOf(receipt string) string {
	id, _, _ := strings.Cut(receipt, ":")
	return id
}

// backoff is pauses that double, each shortened by chance.
type backoff struct{ last time.Duration }

const retryMin = 100 * time.Millisecond

func newBackoff() *backoff { return &backoff{} }

func (b *backoff) reset() { b.last = 0 }

func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, retryMin), retryMax)
	return b.last/2 + rand.N(b.last/2)
}

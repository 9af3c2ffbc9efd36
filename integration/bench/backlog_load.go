package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/bench"
	"github.com/faisca/fila/internal/proc"
	"github.com/faisca/fila/internal/progress"
)

// pipelined is the number of enqueues in a pipeline, and of messages in a lease.
const pipelined = 200

// job is one connection's part of the work: the numbers first, first+step, ... below n. done counts
// the completed ones of all connections.
type job struct {
	w           *bench.Conn
	first, step int64
	n           int64
	done        *atomic.Int64
}

// inParallel runs one job per connection and shows their progress. It returns the broker's peak
// resident memory meanwhile.
func (t *trial) inParallel(ctx context.Context, what string, n int64, part func(context.Context, job) error) (peak int64, err error) {
	var done atomic.Int64
	ended := make(chan error, t.conns) // buffered, so that goroutines end after a failure
	var conns []*bench.Conn
	defer func() {
		for _, c := range conns {
			_ = c.Close() // every reply was read, or an error is returned already
		}
	}()
	for i := range t.conns {
		w, err := bench.Dial(ctx, t.Addr())
		if err != nil {
			return 0, err
		}
		conns = append(conns, w)
		go func() { ended <- part(ctx, job{w: w, first: int64(i), step: int64(t.conns), n: n, done: &done}) }()
	}
	bar := progress.New(os.Stderr, what, n)
	defer bar.Done()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for left := t.conns; left > 0; {
		select {
		case err := <-ended:
			if err != nil {
				return 0, err // closes the other connections
			}
			left--
		case <-tick.C:
			bar.Set(done.Load())
			u, err := proc.UseOf(t.PID())
			if err != nil {
				return 0, err
			}
			peak = max(peak, u.Resident)
		}
	}
	bar.Set(done.Load())
	return peak, ctx.Err()
}

// stampBytes is the size of the message number at the start of a payload.
const stampBytes = 8

// enqueue sends the job's messages in pipelines and counts the replies.
func (t *trial) enqueue(ctx context.Context, j job) error {
	payload := make([]byte, 0, t.size)
	for next := j.first; next < j.n && ctx.Err() == nil; {
		sent := 0
		for ; sent < pipelined && next < j.n; sent++ {
			payload = append(payload[:0], t.noise.Payload(uint64(next), t.size)...)
			binary.BigEndian.PutUint64(payload, uint64(next))
			j.w.Append("FILA.ENQUEUE", longQueue, string(payload), "KEY", t.key(next))
			next += j.step
		}
		if err := j.w.Flush(); err != nil {
			return err
		}
		for range sent {
			if _, err := j.w.Reply(); err != nil {
				return err
			}
		}
		j.done.Add(int64(sent))
	}
	return nil
}

// empty leases and acks a part of the queue.
func (t *trial) empty(ctx context.Context) error {
	n := min(t.drain, t.n/2) // not all: the last connection would find the queue empty
	before, err := proc.UseOf(t.PID())
	if err != nil {
		return err
	}
	begun := time.Now()
	peak, err := t.inParallel(ctx, "drained", n, t.drainPart)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	note("memory while drained", "%d MB peak resident", peak>>20)
	after, err := proc.UseOf(t.PID())
	if err != nil {
		return err
	}
	cpu := float64((after.CPU - before.CPU).Microseconds()) / float64(n)
	note("drained", "%d in %.1f s, %.0f/s, %.1f µs of the broker's CPU each", n, took.Seconds(), float64(n)/took.Seconds(), cpu)
	return t.memory("memory after draining")
}

// drainPart leases and acks batches until all connections together have completed n messages.
func (t *trial) drainPart(ctx context.Context, j job) error {
	for ctx.Err() == nil && j.done.Load() < j.n {
		reply, err := j.w.Do("FILA.LEASE", longQueue, "COUNT", strconv.Itoa(pipelined))
		if err != nil {
			return err
		}
		messages, _ := reply.([]any)
		if len(messages) == 0 && t.churn > 0 {
			time.Sleep(time.Millisecond) // other connections hold the remaining messages
			continue
		}
		if len(messages) == 0 {
			return fmt.Errorf("the queue was empty after %d messages", j.done.Load())
		}
		ack := []string{"FILA.ACK", longQueue}
		for _, m := range messages {
			fields, ok := m.([]any)
			if !ok {
				return fmt.Errorf("unexpected message in a reply: %v", m)
			}
			ack = append(ack, fmt.Sprint(fields[0]))
		}
		acked, err := j.w.Do(ack...)
		if err != nil {
			return err
		}
		if acked != int64(len(messages)) {
			return fmt.Errorf("%v of %d messages were acked", acked, len(messages))
		}
		j.done.Add(int64(len(messages)))
	}
	return nil
}

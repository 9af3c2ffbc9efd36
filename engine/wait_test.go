package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// parkedLoad returns the world of a queue "q" whose messages are on disk and being read, and
// parks a task of a client there.
func parkedLoad(t *testing.T, call func(w *world) Call) (*world, *Task) {
	t.Helper()
	w := newWorld(t, func(cfg *Config) { cfg.Window, cfg.WindowTotal = 2, 2 })
	w.queue("q", QueueOptions{})
	w.queue("empty", QueueOptions{})
	w.fill("k", 40, nil)
	w.turn(nil)
	for range 40 { // no batch is committed, so no read begins
		if w.core.queues.byName["q"].awaitingRead > 0 {
			break
		}
		w.turn([]*Task{{Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1})
			return err
		})}})
	}
	task := &Task{Client: NewClient(1, func() {}), Call: call(w)}
	w.turn([]*Task{task})
	return w, task
}

// exec is a transaction.
type exec struct{ calls []Call }

func (e exec) Apply(tx *Tx) error { return tx.Exec(e.calls, make([]error, len(e.calls))) }

// leaseCall leases messages, also in a transaction.
type leaseCall struct{ req LeaseRequest }

func (c *leaseCall) Preflight(tx *Tx) error { return tx.PreflightLease(&c.req) }

func (c *leaseCall) Apply(tx *Tx) error { _, err := tx.Lease(&c.req); return err }

// The table of waitSet: what a client that leaves and an engine that stops do to each kind of
// wait, and which of them Unblock ends.
func TestEachKindOfWaitEndsInItsWay(t *testing.T) {
	for kind, c := range map[waitKind]struct {
		call func(w *world) Call
		left error // of the task after its client has left; nil: it still waits
		stop error
	}{
		waitMessages: {func(*world) Call {
			return &leaseCall{LeaseRequest{Queues: []string{"empty"}, Count: 1}}
		}, ErrClientGone, nil},
		waitEnd: {func(w *world) Call {
			id := w.enqueue("empty", "k", "x")
			req := &ResultRequest{Queue: "empty", ID: id}
			return callFunc(func(tx *Tx) error { return tx.Result(req) })
		}, ErrClientGone, nil},
		waitReads: {func(*world) Call {
			return &leaseCall{LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1}}
		}, ErrClientGone, nil},
		waitPreflight: {func(*world) Call {
			return exec{[]Call{&leaseCall{LeaseRequest{Queues: []string{"q"}, Count: 1}}}}
		}, nil, ErrStopped},
		waitResult: {func(*world) Call {
			req := &Browse{Queue: "q", Count: 1}
			return callFunc(func(tx *Tx) error { _, _, err := tx.Browse(req); return err })
		}, nil, ErrStopped},
		waitTurn: {func(w *world) Call {
			turns := 0
			return callFunc(func(tx *Tx) error {
				if turns++; turns == 1 {
					return tx.yield()
				}
				return nil
			})
		}, nil, ErrStopped},
	} {
		t.Run(fmt.Sprint("kind ", kind), func(t *testing.T) {
			w, task := parkedLoad(t, c.call)
			if task.wait == nil || task.wait.kind != kind {
				t.Fatalf("the task waits %v, want kind %d", task.wait, kind)
			}
			if waits := task.Client.Waits(); waits != (kind == waitMessages || kind == waitEnd) {
				t.Errorf("the client waits for messages: %v", waits)
			}
			_ = Leave{task.Client}.Apply(&Tx{core: w.core, task: &Task{}})
			if !errors.Is(task.err, c.left) || (task.wait == nil) != (c.left != nil) {
				t.Errorf("its client has left: waits %v, error %v", task.wait != nil, task.err)
			}

			w, task = parkedLoad(t, c.call)
			unblocked := (&Tx{core: w.core, task: &Task{}}).Unblock(1, false)
			if unblocked != (kind == waitMessages || kind == waitEnd) || unblocked != (task.wait == nil) {
				t.Errorf("Unblock returns %v, and the task waits %v", unblocked, task.wait != nil)
			}

			w, task = parkedLoad(t, c.call)
			w.core.drain()
			if task.wait != nil || !errors.Is(task.err, c.stop) {
				t.Errorf("the engine has stopped: waits %v, error %v", task.wait != nil, task.err)
			}
			if err := w.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A recovery queues a waiting lease again, which does not begin its wait anew.
func TestAWaitKeepsItsEndOverARecovery(t *testing.T) {
	for name, count := range map[string]int{"small": 1, "in parts": 1000} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			task := &Task{Client: NewClient(1, func() {}), Call: &leaseCall{LeaseRequest{Queues: []string{"q"}, Count: count, Block: 2 * time.Second}}}
			w.Do(task)
			w.Advance(time.Second)
			w.recoverInPlace()
			w.Advance(999 * time.Millisecond)
			if task.Done() {
				t.Fatalf("the wait has ended early: %v", task.Err())
			}
			w.Advance(time.Millisecond)
			if !task.Done() || task.Err() != nil {
				t.Errorf("at its end: done %v, error %v", task.Done(), task.Err())
			}
		})
	}
}

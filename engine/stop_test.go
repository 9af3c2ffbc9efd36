package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// Tasks queued behind a blocked lease when the engine stops were submitted: they are
// executed before the end, and never answered without being executed.
func TestStopExecutesTasksQueuedBehindABlockedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storage.NewMemory()
		e, err := New(DefaultConfig(), store)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *Tx) error {
			return errors.Join(tx.CreateQueue("q", QueueOptions{}), tx.CreateQueue("r", QueueOptions{}))
		})
		cl := NewClient(7, func() {})
		req := &Enqueue{Queue: "r", Payload: []byte("m")}
		if err := e.Prepare(req); err != nil {
			t.Fatal(err)
		}
		var id ID
		lease := &Task{Client: cl, Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
			return err
		})}
		behind := &Task{Client: cl, Call: callFunc(func(tx *Tx) (err error) { id, err = tx.Enqueue(req); return err })}
		e.Submit([]*Task{lease, behind})
		synctest.Wait()
		e.Stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !lease.Done() || !behind.Done() {
			t.Fatal("somebody has no answer")
		}
		if behind.Err() == nil && id == (ID{}) {
			t.Fatal("an enqueue was answered that never happened")
		}
		again := openWorld(t, store.Clone(), time.Now(), nil)
		if n := again.counts("r").Ready; behind.Err() == nil && n != 1 {
			t.Errorf("answered, and %d are there", n)
		}
	})
}

// A nack that waits for its hook has begun: it is finished although its client has
// disconnected, and so are the tasks queued behind it.
func TestANackIsFinishedWhenItsClientHasDisconnected(t *testing.T) {
	bubble(t, DefaultConfig(), storage.NewMemory(), func(e *Engine) {
		gate := make(chan struct{})
		_ = ask(e, func(tx *Tx) error {
			return errors.Join(tx.CreateQueue("q", QueueOptions{}), tx.LoadScript("q", slowVerdict{simHook{hook.OnFailure}, gate}, ""))
		})
		for range 2 {
			req := &Enqueue{Queue: "q", Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				t.Fatal(err)
			}
			_ = ask(e, func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		}
		var ds []*Delivery
		_ = ask(e, func(tx *Tx) (err error) {
			ds, err = tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 2, Block: -1})
			return err
		})
		cl := NewClient(7, func() {})
		nack := &Task{Client: cl}
		req := &Nack{Queue: "q", Receipt: ds[0].Receipt, Delay: -1}
		nack.Call = callFunc(func(tx *Tx) error { _, err := tx.Nack(req); return err })
		ack := &Task{Client: cl, Call: callFunc(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[1].Receipt}); return err })}
		lease := &Task{Client: cl, Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
			return err
		})}
		e.Submit([]*Task{nack, ack, lease})
		e.Leave(cl)
		synctest.Wait()
		close(gate)
		synctest.Wait()
		var n Counts
		_ = ask(e, func(tx *Tx) (err error) { n, err = tx.QueueStats("q"); return err })
		if n.Delayed != 1 || n.Leased != 0 || n.Acked != 1 || n.Waiters != 0 {
			t.Errorf("got %+v", n)
		}
	})
}

// A nack that waits for its hook when the engine stops has not happened, and must not be
// answered as if it had.
func TestStopRefusesANackWithoutAHookDecision(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.must(func(tx *Tx) error { return tx.LoadScript("q", simHook{hook.OnFailure}, "") })
	w.enqueue("q", "k", "m")
	d := w.lease("q", 1)[0]
	req := &Nack{Queue: "q", Receipt: d.Receipt, Delay: -1}
	task := &Task{Client: NewClient(1, func() {})}
	task.Call = callFunc(func(tx *Tx) error { _, err := tx.Nack(req); return err })
	w.core.turn(w.Now(), []*Task{task})
	if task.wait == nil {
		t.Fatal("the nack should wait for its hook")
	}
	w.core.drain()
	if !errors.Is(task.err, ErrStopped) {
		t.Errorf("answered with %v", task.err)
	}
	w.Do()
}

// A client has sent many commands that read messages when the engine stops. Each is refused, and
// none of them starts a read: the reads would hold as many messages in memory as there are commands.
func TestStopStartsNoReadsForQueuedTasks(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "m")
	cl := NewClient(1, func() {})
	tasks := make([]*Task, 50)
	for i := range tasks {
		req := &Get{Queue: "q", ID: id}
		tasks[i] = &Task{Client: cl, Call: callFunc(func(tx *Tx) error { _, err := tx.Get(req); return err })}
	}
	w.core.turn(w.Now(), tasks)
	if tasks[0].wait == nil || len(w.core.out.jobs) != 1 {
		t.Fatalf("the first task should wait for a read: %d jobs", len(w.core.out.jobs))
	}
	for range tasks {
		w.core.drain()
		if n := len(w.core.out.jobs); n != 0 {
			t.Fatalf("%d jobs are left to start", n)
		}
		w.core.turn(w.Now(), nil)
	}
	w.core.drain()
	for i, task := range tasks {
		if !errors.Is(task.err, ErrStopped) {
			t.Errorf("task %d is answered with %v", i, task.err)
		}
	}
	w.Do()
}

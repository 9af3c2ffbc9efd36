package loop_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/storage"
)

// Tasks queued behind a blocked lease when the engine stops were submitted: they are
// executed before the end, and never answered without being executed.
func TestStopExecutesTasksQueuedBehindABlockedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storage.NewMemory()
		e, err := loop.New(engine.DefaultConfig(), store)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run(context.Background()) }()
		<-e.Ready()
		_ = ask(e, func(tx *engine.Tx) error {
			return errors.Join(tx.CreateQueue("q", engine.QueueOptions{}), tx.CreateQueue("r", engine.QueueOptions{}))
		})
		cl := engine.NewClient(7, func() {})
		req := &engine.Enqueue{Queue: "r", Payload: []byte("m")}
		if err := e.Prepare(req); err != nil {
			t.Fatal(err)
		}
		var id engine.ID
		lease := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error {
			_, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
			return err
		})}
		behind := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) (err error) { id, err = tx.Enqueue(req); return err })}
		e.Submit([]*engine.Task{lease, behind})
		synctest.Wait()
		e.Stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if !lease.Done() || !behind.Done() {
			t.Fatalf("Run has returned, and the lease is answered: %t, the enqueue: %t", lease.Done(), behind.Done())
		}
		if behind.Err() == nil && id == (engine.ID{}) {
			t.Fatal("an enqueue was answered that never happened")
		}
		again, err := engine.NewStepper(engine.DefaultConfig(), store.Clone(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var n engine.Counts
		again.Do(&engine.Task{Call: callFunc(func(tx *engine.Tx) (err error) { n, err = tx.QueueStats("r"); return err })})
		if behind.Err() == nil && n.Ready != 1 {
			t.Errorf("answered, and %d are there", n.Ready)
		}
	})
}

// A nack that waits for its hook has begun: it is finished although its client has
// disconnected, and so are the tasks queued behind it.
func TestANackIsFinishedWhenItsClientHasDisconnected(t *testing.T) {
	bubble(t, engine.DefaultConfig(), storage.NewMemory(), func(e *loop.Engine) {
		gate := make(chan struct{})
		_ = ask(e, func(tx *engine.Tx) error {
			return errors.Join(tx.CreateQueue("q", engine.QueueOptions{}), tx.LoadScript("q", slow(gate), ""))
		})
		for range 2 {
			req := &engine.Enqueue{Queue: "q", Payload: []byte("m")}
			if err := e.Prepare(req); err != nil {
				t.Fatal(err)
			}
			_ = ask(e, func(tx *engine.Tx) error { _, err := tx.Enqueue(req); return err })
		}
		var ds []*engine.Delivery
		_ = ask(e, func(tx *engine.Tx) (err error) {
			ds, err = tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 2, Block: -1})
			return err
		})
		cl := engine.NewClient(7, func() {})
		nack := &engine.Task{Client: cl}
		req := &engine.Nack{Queue: "q", Receipt: ds[0].Receipt, Delay: -1}
		nack.Call = callFunc(func(tx *engine.Tx) error { _, err := tx.Nack(req); return err })
		ack := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error { _, err := tx.Ack("q", []engine.Receipt{ds[1].Receipt}); return err })}
		lease := &engine.Task{Client: cl, Call: callFunc(func(tx *engine.Tx) error {
			_, err := tx.Lease(&engine.LeaseRequest{Queues: []string{"q"}, Count: 1, Block: 0})
			return err
		})}
		e.Submit([]*engine.Task{nack, ack, lease})
		e.Leave(cl)
		synctest.Wait()
		close(gate)
		synctest.Wait()
		var n engine.Counts
		_ = ask(e, func(tx *engine.Tx) (err error) { n, err = tx.QueueStats("q"); return err })
		if n.Delayed != 1 || n.Leased != 0 || n.Acked != 1 || n.Waiters != 0 {
			t.Errorf("got %+v", n)
		}
	})
}

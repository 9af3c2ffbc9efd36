package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// stuck makes all further commits of a world hang.
func stuck(w *world) { w.Lazy = func() bool { return true } }

// submitLease submits a lease and expects no reply.
func (w *world) submitLease(count int) (*Task, *[]*Delivery) {
	var ds []*Delivery
	req := &LeaseRequest{Queues: []string{"q"}, Count: count, Block: -1}
	task := &Task{Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
	w.Do(task)
	return task, &ds
}

func TestALeaseOfStoredMessagesWaitsForNoCommit(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "m")
	stuck(w)
	task, ds := w.submitLease(1)
	if !task.Done() || len(*ds) != 1 {
		t.Fatalf("done: %v, with %d messages", task.Done(), len(*ds))
	}
}

func TestALeaseWaitsForTheCommitOfItsMessages(t *testing.T) {
	enqueue := func(w *world, payload string) {
		req := &Enqueue{Queue: "q", Key: "k", Payload: []byte(payload)}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.Do(&Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })})
	}
	for name, c := range map[string]struct {
		change func(*Config)
		before func(w *world)
		count  int
	}{
		"a new message": {count: 1, before: func(w *world) {
			stuck(w)
			enqueue(w, "new")
		}},
		"a new message beside a stored one": {count: 2, before: func(w *world) {
			w.enqueue("q", "k", "old")
			stuck(w)
			enqueue(w, "new")
		}},
		"a second hand-out": {count: 1, before: func(w *world) {
			w.enqueue("q", "k", "m")
			r := w.lease("q", 1)[0].Receipt
			stuck(w)
			w.Do(&Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: "q", Receipt: r}); return err })})
		}},
		"no lag": {count: 1, change: func(c *Config) { c.LeaseWriteDelay = 0 }, before: func(w *world) {
			w.enqueue("q", "k", "m")
			stuck(w)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, c.change)
			w.queue("q", QueueOptions{})
			c.before(w)
			task, ds := w.submitLease(c.count)
			if len(*ds) != c.count {
				t.Fatalf("%d messages are handed out, want %d", len(*ds), c.count)
			}
			if task.Done() {
				t.Fatal("answered before the commit")
			}
			w.Lazy = nil
			w.Do()
			if !task.Done() {
				t.Error("not answered after the commit")
			}
		})
	}
}

func TestATransactionIsAnsweredAsAWhole(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "m")
	stuck(w)
	req := &LeaseRequest{Queues: []string{"q"}, Count: 1, Block: -1}
	errs := make([]error, 1)
	lease := callFunc(func(tx *Tx) error { _, err := tx.Lease(req); return err })
	task := &Task{Call: callFunc(func(tx *Tx) error { return tx.Exec([]Call{lease}, errs) })}
	w.Do(task)
	if task.Done() || errs[0] != nil {
		t.Errorf("answered before the commit: %v, %v", task.Done(), errs[0])
	}
	w.Lazy = nil
	w.Do()
}

// A commit fails after the early reply of a lease: the receipt is invalid afterwards, and
// the message is delivered again with a higher delivery number.
func TestALeaseWithAnEarlyReplyEndsWithAFailedCommit(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.enqueue("q", "k", "m")
	stuck(w)
	req := &Enqueue{Queue: "q", Key: "k", Payload: []byte("lost")}
	if err := w.Prepare(req); err != nil {
		t.Fatal(err)
	}
	lost := &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
	w.Do(lost)
	early, ds := w.submitLease(1)
	if !early.Done() {
		t.Fatal("the lease waits")
	}
	store.FailCommits(storage.ErrReopen)
	w.Lazy = nil
	w.Do()
	if !lost.Done() || lost.Err() == nil {
		t.Fatalf("the enqueue was answered %v", lost.Err())
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
	first := (*ds)[0].Receipt
	again := w.lease("q", 1)
	if len(again) != 1 || again[0].Receipt.ID != first.ID || again[0].Receipt.Fence <= first.Fence {
		t.Fatalf("got %v after %v", again, first)
	}
	n := 0
	w.must(func(tx *Tx) (err error) { n, err = tx.Ack("q", []Receipt{first}); return err })
	if n != 0 {
		t.Error("the old receipt has acked the message")
	}
}

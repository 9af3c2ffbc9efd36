package engine

import (
	"testing"
	"time"
)

// kill dead-letters the messages of a lease.
func (w *world) kill(ds ...*Delivery) {
	w.t.Helper()
	for _, d := range ds {
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: d.Queue, Receipt: d.Receipt, Delay: -1, Dead: true})
			return err
		})
	}
}

// start runs a call up to its commit.
func (w *world) start(call func(tx *Tx) error) *Task {
	task := &Task{Call: callFunc(call)}
	w.Lazy = func() bool { return true }
	w.Do(task)
	w.Lazy = nil
	return task
}

func TestAMessageAckedDuringARedriveStaysGone(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Window = 2 })
	w.queue("a", QueueOptions{})
	for range 4 {
		w.enqueue("a", "k", "x")
	}
	w.kill(w.lease("a", 4)...)
	// The first message is delayed, and only the disk knows which one it is.
	first := w.lease("a.dlq", 1)[0]
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "a.dlq", Receipt: first.Receipt, Delay: time.Second})
		return err
	})
	w = openWorld(t, w.store, w.now, func(c *Config) { c.Window = 2 })

	// While the page of a redrive is read, a message of it is acked, and the edge moves
	// back behind the messages that the redrive moves as the page has them.
	req := &Redrive{DLQ: "a.dlq"}
	task := w.start(func(tx *Tx) error { _, err := tx.Redrive(req); return err })
	var ds []*Delivery
	w.start(func(tx *Tx) (err error) {
		ds, err = tx.Lease(&LeaseRequest{Queues: []string{"a.dlq"}, Count: 1, Block: -1})
		return err
	})
	if len(ds) != 1 {
		t.Fatal("nothing to lease")
	}
	acked := 0
	w.start(func(tx *Tx) (err error) { acked, err = tx.Ack("a.dlq", []Receipt{ds[0].Receipt}); return err })
	if acked != 1 {
		t.Fatal("not acked")
	}
	w.now = w.now.Add(2 * time.Second)
	w.start(func(*Tx) error { return nil })
	w.Do()
	if !task.Done() || task.Err() != nil {
		t.Fatalf("the redrive is done: %v, %v", task.Done(), task.Err())
	}
	for _, d := range w.lease("a", 10) {
		if d.Receipt.ID == ds[0].Receipt.ID {
			t.Error("an acked message came back")
		}
	}
}

package engine

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// says extends a lease with a text.
func (w *world) says(d *Delivery, text string) {
	w.must(func(tx *Tx) error {
		_, err := tx.ExtendWith(d.Queue, d.Receipt, time.Minute, ExtendOptions{Progress: &text})
		return err
	})
}

// progress is what FILA.RESULT shows.
func (w *world) progress(queue string, id ID) string { return w.result(queue, id).Progress }

func TestProgressEndsWithItsLease(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "x")
	for name, end := range map[string]func(d *Delivery){
		"release": func(d *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
		},
		"nack": func(d *Delivery) {
			w.must(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: 0}); return err })
		},
		"expiry":    func(*Delivery) { w.Advance(time.Minute) },
		"no text":   func(d *Delivery) { w.says(d, ""); w.Advance(time.Minute) },
		"a restart": func(*Delivery) { w.restart(); w.Advance(time.Minute) },
	} {
		d := w.lease("q", 1)[0]
		w.says(d, "half")
		w.must(func(tx *Tx) error { _, err := tx.Extend("q", d.Receipt, time.Minute); return err }) // leaves the text
		if got := w.progress("q", id); got != "half" {
			t.Fatalf("before the %s it is %q", name, got)
		}
		end(d)
		if got := w.progress("q", id); got != "" || w.core.leases.notes.Len() != 0 {
			t.Errorf("after the %s it is %q, with %d notes", name, got, w.core.leases.notes.Len())
		}
	}
	d := w.lease("q", 1)[0]
	w.says(d, "half")
	w.must(func(tx *Tx) error { return tx.DeleteQueue("q", true) })
	w.Do()
	if n := w.core.leases.notes.Len(); n != 0 {
		t.Errorf("%d notes are of a deleted queue", n)
	}
}

func TestProgressIsBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "a")
	ds := w.lease("q", 1)
	before := w.core.leases.byID[id].until
	long := strings.Repeat("x", ProgressBytes+1)
	err := w.do(func(tx *Tx) error {
		_, err := tx.ExtendWith("q", ds[0].Receipt, time.Hour, ExtendOptions{Progress: &long})
		return err
	})
	if !errors.Is(err, ErrTooBig) || w.core.leases.byID[id].until != before {
		t.Errorf("a text that is too long: %v, or the lease has another end", err)
	}
}

// A request that waits is answered with what was said last when its time is over.
func TestARequestThatWaitsFollowsTheProgress(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "x")
	d := w.lease("q", 1)[0]
	w.says(d, "a third")
	task, req := w.asks(1, "q", id, time.Second)
	if task.Done() || req.Result.Progress != "a third" {
		t.Fatalf("done %v, %+v", task.Done(), req.Result)
	}
	w.says(d, "half")
	w.Advance(time.Second)
	if !task.Done() || req.Result.Status != ResultPending || req.Result.Progress != "half" {
		t.Errorf("done %v, %+v", task.Done(), req.Result)
	}
}

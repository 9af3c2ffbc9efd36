package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
	"github.com/faisca/fila/storage"
)

// replace enqueues a message with a payload and REPLACE under the unique id u of q, and returns its id.
func (w *world) replace(payload string, change func(*Enqueue)) ID {
	w.t.Helper()
	return w.unique("u", func(req *Enqueue) {
		req.Payload, req.Replace = []byte(payload), true
		if change != nil {
			change(req)
		}
	})
}

// leaseOne leases the next message of q, nil if there is none, with its payload.
func (w *world) leaseOne() (d *Delivery, payload string) {
	w.t.Helper()
	ds := w.lease("q", 1)
	if len(ds) == 0 {
		return nil, ""
	}
	if _, err := w.Load(ds); err != nil {
		w.t.Fatal(err)
	}
	return ds[0], string(ds[0].Payload())
}

// A message that waits is replaced, whether it is in memory or on disk only, ready or delayed, before and
// after a restart. It keeps its id and its place, and has nothing left of the old one.
func TestAReplacementTakesThePlaceOfAMessageThatWaits(t *testing.T) {
	for _, window := range []int{2, 100} {
		for _, delayed := range []bool{false, true} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("window %d, delayed %v, restart %v", window, delayed, restart), func(t *testing.T) {
					w := newWorld(t, func(c *Config) { c.Window, c.WindowTotal, c.DueWindow, c.BodyBytes = window, window, window, 0 })
					w.queue("q", QueueOptions{})
					for range 3 {
						w.enqueue("q", "k", "before")
						if delayed {
							w.unique("", func(req *Enqueue) { req.Delay = time.Minute })
						}
					}
					old := func(req *Enqueue) {
						req.TTL, req.Throttles, req.Cost = time.Hour, []string{"t"}, 3
						req.Headers = []Header{{Name: []byte("old"), Value: []byte("x")}}
						if delayed {
							req.Delay = time.Minute
						}
					}
					id := w.replace("old", old)
					w.enqueue("q", "k", "after")
					if restart {
						w.restart()
					}
					if again := w.replace("new", nil); again != id {
						t.Fatalf("answered with %s, want %s", again, id)
					}
					if restart {
						w.restart()
					}
					w.Advance(2 * time.Second)
					for range 3 {
						if _, payload := w.leaseOne(); payload != "before" {
							t.Fatalf("%q comes first", payload)
						}
					}
					d, payload := w.leaseOne()
					if payload != "new" || d.Receipt.ID != id || len(d.Headers()) != 0 || d.Meta().Cost > 1 || len(d.Meta().Throttles) != 0 || d.Meta().ExpiresAt != 0 || d.Attempt != 1 {
						t.Errorf("%q, %+v", payload, d)
					}
					w.Advance(time.Second) // its lease is written
					w.ackID(id)
					w.Advance(2 * time.Hour)
					if n := len(uniqueEntries(w.store)); n != 0 {
						t.Errorf("%d ids are taken", n)
					}
					it := w.store.Scan(storage.Expiries, nil, nil)
					defer it.Close()
					if it.Seek(nil) {
						t.Errorf("an expiry is left: %x", it.Key())
					}
				})
			}
		}
	}
}

// DELAY starts again with each replacement, up to MAXDELAY after the first. Without it the message is ready.
func TestTheDelayStartsAgainWithEachReplacement(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	later := func(delay, most time.Duration) func(*Enqueue) {
		return func(req *Enqueue) { req.Delay, req.MaxDelay = delay, most }
	}
	for i := range 9 {
		w.replace(fmt.Sprint(i), later(200*time.Millisecond, time.Second))
		w.Advance(100 * time.Millisecond)
		if d, _ := w.leaseOne(); d != nil {
			t.Fatalf("delivered after replacement %d", i)
		}
	}
	w.replace("last", later(200*time.Millisecond, time.Second))
	w.Advance(99 * time.Millisecond)
	if d, _ := w.leaseOne(); d != nil {
		t.Fatal("delivered before its time")
	}
	w.Advance(time.Millisecond)
	d, payload := w.leaseOne()
	if payload != "last" {
		t.Fatalf("a second after the first, %q is delivered", payload)
	}
	w.ackID(d.Receipt.ID)
	w.replace("a", later(time.Hour, 0))
	w.replace("b", nil)
	if _, payload := w.leaseOne(); payload != "b" {
		t.Errorf("without DELAY, %q is delivered", payload)
	}
}

// A message that is leased, or has failed, is not replaced, and one that was released is.
func TestALeasedOrFailedMessageIsNotReplaced(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.DedupWindow: 60_000}})
	id := w.replace("one", nil)
	d, _ := w.leaseOne()
	dedup := func(req *Enqueue) { req.Dedup = "d" }
	if again := w.replace("two", dedup); again != id {
		t.Errorf("answered with %s while it is leased, want %s", again, id)
	}
	w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
	if w.replace("two", dedup); w.counts("q").Replaced != 0 {
		t.Error("a request that was answered has replaced the message when it was sent again")
	}
	if again := w.replace("three", nil); again != id {
		t.Errorf("answered with %s, want %s", again, id)
	}
	old := d.Receipt
	d, payload := w.leaseOne()
	if payload != "three" || d.Receipt.Fence <= old.Fence {
		t.Errorf("%q has the receipt %s after %s", payload, d.Receipt, old)
	}
	w.must(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: time.Minute})
		return err
	})
	if again := w.replace("four", nil); again != id {
		t.Errorf("answered with %s after a failure, want %s", again, id)
	}
	w.restart()
	w.replace("five", nil)
	w.Advance(time.Hour)
	if _, payload := w.leaseOne(); payload != "three" {
		t.Errorf("the failed message is %q", payload)
	}
}

// What a replacement must not change is refused; a full queue takes it and a paused one does not.
func TestWhatAReplacementIsRefusedFor(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{Given: queueset.Given{queueset.MaxDepth: 1}})
	w.replace("one", func(req *Enqueue) { req.Priority = new(uint8(7)) })
	try := func(change func(*Enqueue)) error {
		req := &Enqueue{Queue: "q", Key: "k", Meta: Meta{Unique: "u"}, Payload: []byte("x"), Replace: true}
		change(req)
		if err := w.Prepare(req); err != nil {
			return err
		}
		return w.do(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	for name, change := range map[string]func(*Enqueue){
		"another key":             func(req *Enqueue) { req.Key = "other" },
		"another priority":        func(req *Enqueue) { req.Priority = new(uint8(4)) },
		"no id":                   func(req *Enqueue) { req.Unique = "" },
		"UNTIL LEASE without one": func(req *Enqueue) { req.Unique, req.Replace, req.UntilLease = "", false, true },
		"MAXDELAY alone":          func(req *Enqueue) { req.Replace, req.MaxDelay = false, 1 },
		"a time to live that ends before": func(req *Enqueue) {
			req.Delay, req.TTL = time.Hour, time.Minute
		},
	} {
		if err := try(change); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := try(func(req *Enqueue) { req.Priority = new(uint8(7)) }); err != nil {
		t.Errorf("the queue is full: %v", err)
	}
	w.must(func(tx *Tx) error { return tx.Pause("q", true, false, true) })
	if err := try(func(*Enqueue) {}); !errors.Is(err, ErrPaused) {
		t.Errorf("its intake is paused: %v", err)
	}
}

// With UNTIL LEASE, the id is free while the message is leased, and a message that has been leased does not
// get it back. A lease that a crash forgets leaves the id taken.
func TestAnIDUntilTheLeaseIsFreeWithTheLease(t *testing.T) {
	until := func(req *Enqueue) { req.UntilLease = true }
	nack := func(w *world, d *Delivery) {
		w.must(func(tx *Tx) error {
			_, err := tx.Nack(&Nack{Queue: "q", Receipt: d.Receipt, Delay: 0})
			return err
		})
	}
	release := func(w *world, d *Delivery) {
		w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{d.Receipt}); return err })
	}
	for _, x := range []struct {
		name  string
		after func(w *world, d *Delivery)
		free  bool
	}{
		{"lease", func(*world, *Delivery) {}, true},
		{"lease that is written", func(w *world, _ *Delivery) { w.Advance(time.Second) }, true},
		{"lease that a restart finds", func(w *world, _ *Delivery) { w.Advance(time.Second); w.restart() }, true},
		{"lease that a crash forgets", func(w *world, _ *Delivery) { w.restart() }, false},
		{"nack", nack, true},
		{"nack and a restart", func(w *world, d *Delivery) { nack(w, d); w.restart() }, true},
		{"release", release, true},
		{"release and a restart", func(w *world, d *Delivery) { release(w, d); w.restart() }, true},
		{"expiry", func(w *world, _ *Delivery) { w.Advance(time.Minute) }, true},
		{"delivery that did not arrive", func(w *world, d *Delivery) {
			w.must(func(tx *Tx) error { return tx.Undeliver([]*Delivery{d}) })
		}, false},
		{"delivery that did not arrive after it was written", func(w *world, d *Delivery) {
			w.Advance(time.Second)
			w.must(func(tx *Tx) error { return tx.Undeliver([]*Delivery{d}) })
		}, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			first := w.unique("u", until)
			if w.unique("u", until) != first {
				t.Fatal("the id is free while the message waits")
			}
			d, _ := w.leaseOne()
			x.after(w, d)
			second := w.unique("u", until)
			if (second != first) != x.free {
				t.Fatalf("the id is that of %s, the first is %s", second, first)
			}
			if w.unique("u", until) != second {
				t.Error("the id is not taken by the second")
			}
			w.restart()
			if w.unique("u", until) != second {
				t.Error("the id is not taken by the second after a crash")
			}
			w.Advance(time.Hour)
			for d, _ := w.leaseOne(); d != nil; d, _ = w.leaseOne() {
				w.ackID(d.Receipt.ID)
			}
			if left := uniqueEntries(w.store); len(left) != 0 {
				t.Errorf("taken after the end: %v", left)
			}
		})
	}
}

// An enqueue that takes an id which a lease has freed records that lease in its own write.
func TestAnEnqueueThatTakesALentIDWritesTheLease(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	until := func(req *Enqueue) { req.UntilLease = true }
	first := w.unique("u", until)
	d, _ := w.leaseOne()
	second := w.unique("u", until)
	w.restart()
	if first == second {
		t.Fatal("the id was not free")
	}
	w.must(func(tx *Tx) error {
		if n, err := tx.Ack("q", []Receipt{d.Receipt}); n != 1 || err != nil {
			t.Errorf("after a crash, the lease of the first is gone: %d, %v", n, err)
		}
		return nil
	})
}

// Replacing the only message of a key again and again does not cost the key its turn.
func TestReplacementsDoNotDelayAKey(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for i := range 20 {
		w.unique("", func(req *Enqueue) { req.Key = fmt.Sprint("other", i) })
	}
	w.replace("0", nil)
	for i := range 20 {
		w.unique("", func(req *Enqueue) { req.Key = fmt.Sprint("late", i) })
	}
	for i := range 21 {
		w.replace(fmt.Sprint(i), nil)
		if d, _ := w.leaseOne(); d.Key == "k" {
			return
		}
	}
	t.Error("the key of the message that is replaced has lost its turn")
}

// The bodies that a publish shares are released once, also where both publishes begin with the same message.
func TestAReplacedCopyOfAPublishReleasesItsBody(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"q", "r"} {
		w.queue(name, QueueOptions{})
		w.must(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: name}); return err })
	}
	publish := func(fill byte) {
		t.Helper()
		payload := make([]byte, 4<<10)
		payload[0] = fill
		req := &Publish{Topic: "t", Message: Enqueue{Key: "k", Meta: Meta{Unique: "u"}, Payload: payload, Replace: true}}
		if err := w.PreparePublish(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Publish(req); return err })
	}
	bodies := func() (n int) {
		it := w.store.Scan(storage.Bodies, nil, storage.HoldersPrefix())
		defer it.Close()
		for ok := it.Seek(nil); ok; ok = it.Next() {
			n++
		}
		return n
	}
	publish(1)
	publish(2)
	if n := bodies(); n != 1 {
		t.Errorf("%d bodies after a publish that has replaced both", n)
	}
	if held := w.lease("r", 1); len(held) != 1 {
		t.Fatal("no message")
	}
	publish(3) // in r it is answered, so q has the whole one
	publish(4)
	if n := bodies(); n != 1 {
		t.Errorf("%d bodies while r has the second", n)
	}
	w.restart()
	w.Advance(time.Hour)
	if ds := w.lease("q", 1); len(ds) != 1 {
		t.Error("nothing in q")
	} else if _, err := w.Load(ds); err != nil || ds[0].Payload()[0] != 4 {
		t.Errorf("q has %d: %v", ds[0].Payload()[0], err)
	}
}

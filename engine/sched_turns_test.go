package engine

import (
	"fmt"
	"testing"
	"time"
)

// waitFor has n clients wait for messages of a queue, at most count each. got is called for
// each delivery, in order.
func (w *world) waitFor(queue string, n, count int, got func(d *Delivery)) {
	tasks := make([]*Task, n)
	for i := range tasks {
		tasks[i] = &Task{Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(&LeaseRequest{Queues: []string{queue}, Count: count, Block: 0, Visibility: time.Hour})
			for _, d := range ds {
				got(d)
			}
			return err
		})}
	}
	w.Do(tasks...)
}

// A throttle that gets room for many messages at once serves the queues in turns, however many
// consumers wait for one of them and however many messages each of them asks for.
func TestQueuesTakeTurnsAtRoomForManyMessages(t *testing.T) {
	const room = 10
	for name, x := range map[string]struct {
		set  ThrottleOptions
		more func(w *world, held []*Delivery)
	}{
		"tokens": {
			ThrottleOptions{Rate: new(float64(room)), Burst: new(uint64(room))},
			func(w *world, _ []*Delivery) { w.now = w.now.Add(time.Second); w.Do() },
		},
		"places of acked messages": {
			ThrottleOptions{Concurrency: new(uint64(room))},
			func(w *world, held []*Delivery) {
				var rs []Receipt
				for _, d := range held {
					rs = append(rs, d.Receipt)
				}
				w.must(func(tx *Tx) error { _, err := tx.Ack("c", rs); return err })
			},
		},
		"a higher limit": {
			ThrottleOptions{Concurrency: new(uint64(room))},
			func(w *world, _ []*Delivery) {
				w.must(func(tx *Tx) error {
					return tx.SetThrottle("t", ThrottleOptions{Concurrency: new(uint64(2 * room))})
				})
			},
		},
	} {
		for _, throttles := range [][]string{{"t"}, {"t", "roomy"}} {
			for _, count := range []int{1, room} {
				t.Run(fmt.Sprintf("%s, throttles %s, %d a lease", name, throttles, count), func(t *testing.T) {
					w := newWorld(t, nil)
					w.throttle("t", x.set)
					w.throttle("roomy", ThrottleOptions{Concurrency: new(uint64(100 * room))})
					for _, q := range []string{"a", "b", "c"} {
						w.queue(q, QueueOptions{NoDLQ: true})
					}
					w.fillKeys("c", room, throttles...)
					held := w.lease("c", room)
					w.fillKeys("a", 7*room, throttles...)
					w.fillKeys("b", room, throttles...)
					var order string
					for _, q := range []string{"a", "b"} {
						w.waitFor(q, room, count, func(d *Delivery) { order += d.Queue })
					}
					x.more(w, held)
					got := map[rune]int{}
					for _, q := range order {
						got[q]++
					}
					if len(held) != room || got['a'] != room/2 || got['b'] != room/2 {
						t.Errorf("%d messages took all the room, then they went out as %s, want half of the room for each queue", len(held), order)
					}
					w.sound()
				})
			}
		}
	}
}

// A poll finds an admitted message behind classes that were woken with it and that another
// throttle stops.
func TestAPollFindsAnAdmittedMessageBehindThrottledOnes(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"free", "full", "roomy"} {
		w.throttle(name, ThrottleOptions{Concurrency: new(uint64(1))})
	}
	for _, name := range []string{"q", "other"} {
		w.queue(name, QueueOptions{NoDLQ: true})
	}
	w.fillKeys("other", 1, "free")
	held := w.lease("other", 1)
	for i, throttles := range [][]string{{"free", "full"}, {"free", "full", "roomy"}, {"free"}} {
		req := &Enqueue{Queue: "q", Key: fmt.Sprint("k", i), Payload: []byte("m"), Meta: Meta{Throttles: throttles}}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
	}
	if n := len(w.lease("q", 3)); n != 0 {
		t.Fatalf("%d messages went out, and their throttle is full", n)
	}
	w.fillKeys("other", 1, "full")
	w.lease("other", 1)
	w.must(func(tx *Tx) error { _, err := tx.Ack("other", []Receipt{held[0].Receipt}); return err })
	if ds := w.lease("q", 3); len(ds) != 1 || ds[0].Key != "k2" {
		t.Errorf("a poll has got %d messages, want that of k2", len(ds))
	}
}

package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/queueset"
)

// batch leases messages of one key, and returns them as key and number.
func (w *world) batch(count int, queues ...string) string {
	w.t.Helper()
	var ds []*Delivery
	req := &LeaseRequest{Queues: queues, Count: count, SameKey: true, Block: -1}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
	w.untilDone(task, nil)
	if task.Err() != nil {
		w.t.Fatal(task.Err())
	}
	return w.take(ds)
}

// take acks deliveries and returns their payloads.
func (w *world) take(ds []*Delivery) string {
	w.t.Helper()
	for _, d := range ds {
		if _, err := w.Load([]*Delivery{d}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.ackAll(ds)
	return payloads(ds)
}

// putKey enqueues messages of a key from one number to another.
func (w *world) putKey(queue, key string, from, to int) {
	w.t.Helper()
	for i := from; i <= to; i++ {
		w.enqueue(queue, key, fmt.Sprint(key, i))
	}
}

func TestABatchIsOfOneKeyAndItsTurnsPayForIt(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.putKey("q", "a", 1, 9)
	w.putKey("q", "b", 1, 9)
	if got := w.batch(4, "q"); got != "a1 a2 a3 a4" {
		t.Fatal(got)
	}
	if got := w.take(w.lease("q", 8)); got != "b1 b2 b3 b4 a5 b5 a6 b6" {
		t.Errorf("after a batch of 4 of a: %s", got)
	}
	if got := w.batch(9, "q"); got != "a7 a8 a9" {
		t.Errorf("all that a has: %s", got)
	}
	if got := w.batch(9, "q"); got != "b7 b8 b9" {
		t.Errorf("all that b has: %s", got)
	}
	if got := w.batch(9, "q"); got != "" {
		t.Errorf("nothing is left, and a batch has %s", got)
	}
}

// Its messages are all acked, so that the key is forgotten.
func TestAnEmptyKeyOwesWhatItsBatchHasCost(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.putKey("q", "a", 1, 6)
	w.putKey("q", "b", 1, 20)
	if got := w.batch(6, "q"); got != "a1 a2 a3 a4 a5 a6" {
		t.Fatal(got)
	}
	if n := w.counts("q"); n.Leased != 0 {
		t.Fatalf("%+v", n)
	}
	if got := w.take(w.lease("q", 2)); got != "b1 b2" { // rounds that pass pay for it
		t.Fatal(got)
	}
	w.putKey("q", "a", 7, 9)
	if got := w.take(w.lease("q", 7)); got != "b3 b4 b5 b6 b7 a7 b8" {
		t.Errorf("a is back: %s", got)
	}
}

func TestABatchReadsWhatIsOnDisk(t *testing.T) {
	for _, window := range []int{2, 7, 100} {
		w := newWorld(t, func(c *Config) { c.Window = window })
		w.queue("q", QueueOptions{})
		w.putKey("q", "b", 1, 1)
		w.putKey("q", "a", 1, 50)
		w.batch(1, "q")
		var want []string
		for i := range 40 {
			want = append(want, fmt.Sprint("a", i+1))
		}
		if got := w.batch(40, "q"); got != strings.Join(want, " ") {
			t.Errorf("window %d: %s", window, got)
		}
	}
}

func TestABatchIsWhatThrottlesAdmit(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.throttle("rate", ThrottleOptions{Rate: new(1.0), Burst: new(uint64(3))})
	w.throttle("places", ThrottleOptions{Concurrency: new(uint64(2))})
	for i := range 10 {
		w.send(Enqueue{Queue: "q", Key: "a", Meta: Meta{Throttles: []string{"rate"}}, Payload: fmt.Appendf(nil, "a%d", i)})
		w.send(Enqueue{Queue: "q", Key: "b", Meta: Meta{Throttles: []string{"places"}}, Payload: fmt.Appendf(nil, "b%d", i)})
		w.send(Enqueue{Queue: "q", Key: "c", Meta: Meta{Throttles: []string{"places"}}, Payload: fmt.Appendf(nil, "c%d", i)})
	}
	for _, want := range []string{"a0 a1 a2", "b0 b1", "c0 c1"} {
		if got := w.batch(9, "q"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	w.Advance(2 * time.Second)
	for _, want := range []string{"b2 b3", "c2 c3", "a3 a4"} {
		if got := w.batch(9, "q"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Two queues take turns at a throttle: the turns that a batch has had ahead are missing afterwards.
func TestABatchUsesTurnsOfItsQueueAtAThrottle(t *testing.T) {
	w := newWorld(t, nil)
	w.throttle("t", ThrottleOptions{Rate: new(1.0), Burst: new(uint64(5))})
	for _, q := range []string{"p", "q"} {
		w.queue(q, QueueOptions{})
		for i := range 20 {
			w.send(Enqueue{Queue: q, Key: "k", Meta: Meta{Throttles: []string{"t"}}, Payload: fmt.Appendf(nil, "%s%d", q, i)})
		}
	}
	if got := w.batch(1, "q") + " " + w.batch(4, "p"); got != "q0 p0 p1 p2 p3" {
		t.Fatal(got)
	}
	var got []string
	for i := range 12 {
		name := []string{"p", "q"}[i%2]
		req := &LeaseRequest{Queues: []string{name}, Count: 1, Block: 0}
		var again func()
		client := NewClient(uint64(10+i), func() {})
		again = func() {
			w.Do(&Task{Client: client, Call: callFunc(func(tx *Tx) error {
				ds, err := tx.Lease(req)
				for _, d := range ds {
					got = append(got, d.Queue)
				}
				return err
			})})
		}
		again()
	}
	w.Advance(time.Second)
	for range 9 {
		w.Advance(time.Second)
	}
	if order := strings.Join(got, ""); !strings.HasPrefix(order, "qqq") {
		t.Errorf("p has had 4 messages and q 1, and the next ones are of %s", order)
	}
}

func TestAnOrderedQueueRefusesABatch(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("o", QueueOptions{Given: queueset.Given{queueset.Ordered: 1}})
	w.queue("q", QueueOptions{})
	err := w.do(func(tx *Tx) error {
		_, err := tx.Lease(&LeaseRequest{Queues: []string{"q", "o"}, Count: 2, SameKey: true, Block: 0})
		return err
	})
	if !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// A purge while the others are being read ends the batch with what it has, which is gone.
func TestAPurgeEndsTheReadOfABatch(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Window = 2 })
	w.queue("q", QueueOptions{})
	w.putKey("q", "a", 1, 9)
	w.Lazy = func() bool { return true }
	var ds []*Delivery
	req := &LeaseRequest{Queues: []string{"q"}, Count: 5, SameKey: true, Block: -1}
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
	w.Do(task)
	if task.Done() {
		t.Fatal("it has not waited for a read")
	}
	purge := &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err })}
	w.Do(purge)
	w.Lazy = nil
	for range 5 {
		w.Do()
	}
	if !task.Done() || task.Err() != nil || len(ds) != 0 {
		t.Errorf("done %v, %d messages: %v", task.Done(), len(ds), task.Err())
	}
}

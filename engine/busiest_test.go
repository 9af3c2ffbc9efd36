package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// The deliveries that a count returns add up to the deliveries at some time between request
// and reply, however keys end and return meanwhile.
func TestTheBusiestKeysAndTheRestAreAllDeliveries(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{NoDLQ: true})
		delivered, asked, slices := uint64(0), 0, 0
		turn := func(tasks ...*Task) { w.turn(append(tasks, w.results()...)) }
		work := func() {
			switch rng.IntN(12) {
			case 0:
				if rng.IntN(20) == 0 {
					turn(purgeOf("q"))
				}
			case 1, 2, 3, 4:
				w.enqueue("q", fmt.Sprintf("k%d", rng.IntN(200)), "m")
			default:
				for _, d := range w.lease("q", 1+rng.IntN(2)) {
					delivered++
					if rng.IntN(4) > 0 {
						w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
					}
				}
			}
		}
		for range 200 {
			w.enqueue("q", fmt.Sprintf("k%d", rng.IntN(200)), "m")
		}
		for range 300 {
			work()
		}
		w.core.tasks.budget.turn, w.core.detached.max = 8, 3
		for asked < 10 {
			asked++
			before := delivered
			req := &Busiest{Queue: "q", N: 3}
			var top []BusyKey
			var rest BusyKey
			task := &Task{Client: NewClient(uint64(asked), func() {}), Call: callFunc(func(tx *Tx) (err error) {
				top, rest, err = tx.BusiestKeys(req)
				return err
			})}
			turn(task)
			for !task.Done() {
				slices++
				work()
				turn()
				if f := w.core.cut(); f != nil {
					w.commit(f)
				}
			}
			if task.Err() != nil {
				t.Fatal(task.Err())
			}
			sum := rest.Delivered
			for i, k := range top {
				sum += k.Delivered
				if i > 0 && k.Delivered > top[i-1].Delivered {
					t.Fatalf("seed %d: %v is not in order", seed, top)
				}
			}
			if sum < before || sum > delivered {
				t.Fatalf("seed %d: the keys sum up to %d deliveries, when it was asked for there were %d, now %d", seed, sum, before, delivered)
			}
		}
		if slices < asked {
			t.Fatalf("seed %d: %d turns for %d counts: the test is about those in slices", seed, slices, asked)
		}
		w.Advance(time.Second)
	}
}

// A million requests cost no more than two: they share a count.
func TestRequestsForTheBusiestKeysShareOneCount(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 1000)
	w.lease("q", 500)
	w.core.tasks.budget.turn = 64
	var tasks []*Task
	for i := range 40 {
		req := &Busiest{Queue: "q", N: 10}
		tasks = append(tasks, &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
			top, rest, err := tx.BusiestKeys(req)
			if err == nil && (len(top) != 10 || rest.Delivered != 490) {
				t.Errorf("%d keys and the rest with %d deliveries", len(top), rest.Delivered)
			}
			return err
		})})
	}
	w.Do(tasks...)
	for _, task := range tasks {
		if !task.Done() || task.Err() != nil {
			t.Fatalf("done %v: %v", task.Done(), task.Err())
		}
	}
	if n := w.core.queues.byName["q"].idle.counts; n > 3 {
		t.Errorf("%d counts for clients who asked at the same time", n)
	}
}

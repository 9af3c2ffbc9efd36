package engine

import (
	"fmt"
	"testing"
	"time"
)

// A throttle that can admit many keys at once wakes them in portions, and a client that
// asks later consumes nothing before the keys in the throttle's line.
func TestAThrottleWakesManyKeysInPortions(t *testing.T) {
	const n = 3 * turnUnits
	w := newWorld(t, nil)
	w.throttle("t", ThrottleOptions{Concurrency: new(uint64(1))})
	for _, name := range []string{"first", "late"} {
		w.queue(name, QueueOptions{NoDLQ: true})
	}
	w.fillKeys("first", 1, "t")
	w.lease("first", 1)
	w.fillKeys("late", 100, "t")
	var got int
	var tasks []*Task
	for i := range n {
		name := fmt.Sprintf("q%d", i)
		w.queue(name, QueueOptions{NoDLQ: true})
		w.fillKeys(name, 1, "t")
		tasks = append(tasks, &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
			_, err := tx.Lease(&LeaseRequest{Queues: []string{name}, Count: 1, Block: time.Hour})
			return err
		})})
	}
	w.Do(tasks...)
	if len(w.core.waits.parked) != n {
		t.Fatalf("%d wait, want %d", len(w.core.waits.parked), n)
	}
	w.tick(&Task{Call: callFunc(func(tx *Tx) error {
		return tx.SetThrottle("t", ThrottleOptions{Concurrency: new(uint64(n + 1000))})
	})})
	turns := 1
	for ; w.core.order.behind(w.core); turns++ {
		if turns == 1000 {
			t.Fatalf("it has no end: %d wait", len(w.core.waits.parked))
		}
		w.tick(&Task{Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(&LeaseRequest{Queues: []string{"late"}, Count: 50, Block: -1})
			got += len(ds)
			return err
		})})
		if spent := w.core.tasks.budget.Spent; spent > unitsMax {
			t.Fatalf("turn %d has done %d units of work", turns, spent)
		}
		if waiting := len(w.core.waits.parked); got > turns && waiting > 0 {
			t.Fatalf("turn %d: a client that asks later has got %d messages, and %d still wait", turns, got, waiting)
		}
	}
	if turns < 3 {
		t.Errorf("it took %d turns, the test is about at least 3", turns)
	}
	w.Do()
	if len(w.core.waits.parked) > 0 {
		t.Errorf("%d wait, and the throttle has room", len(w.core.waits.parked))
	}
	w.sound()
}

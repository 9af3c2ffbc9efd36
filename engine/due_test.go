package engine

import (
	"fmt"
	"testing"
	"time"
)

// delay enqueues n delayed messages into a queue, each with a key of its own, the last one
// due first.
func (w *world) delay(queue string, n int) {
	w.t.Helper()
	tasks := make([]*Task, n)
	for i := range tasks {
		req := &Enqueue{Queue: queue, Key: fmt.Sprintf("k%d", i), Delay: time.Hour - time.Duration(i)*time.Second/1000}
		if err := w.Prepare(req); err != nil {
			w.t.Fatal(err)
		}
		tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
	}
	w.Do(tasks...)
}

// The next due time of a key is found among the delayed messages of its own queue, in one
// turn.
func TestTheTimeOfADelayedKeyCostsABoundedPartOfATurn(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("few", QueueOptions{})
	w.queue("many", QueueOptions{})
	w.delay("few", 10)
	most := 2 * w.core.cfg.DueWindow
	w.delay("many", most-10)
	if n := w.core.delayed.index.Len(); n != most {
		t.Fatalf("the head has %d entries, the test is about %d", n, most)
	}
	for queue, n := range map[string]int{"few": 10, "many": most - 10} {
		last := fmt.Sprintf("k%d", n-1)
		due := w.now.Add(time.Hour - time.Duration(n-1)*time.Second/1000)
		w.must(func(tx *Tx) error {
			before := tx.core.tasks.budget.Spent
			i, err := tx.Key(queue, last)
			if spent := tx.core.tasks.budget.Spent - before; spent != 1+n/dueLooks || spent > turnUnits/2 {
				t.Errorf("%s: a key takes %d units of work", queue, spent)
			}
			if i.State != KeyDelayed || !i.ReadyAt.Equal(due) {
				t.Errorf("%s: it is %s, ready at %v, want %v", queue, i.State, i.ReadyAt, due)
			}
			return err
		})
		var list []*KeyInfo
		req := &Keys{Queue: queue, Count: n, Match: func(name string) bool { return name == last }}
		task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { _, list, err = tx.Keys(req); return err })}
		w.untilDone(task, nil)
		if len(list) != 1 || !list[0].ReadyAt.Equal(due) {
			t.Errorf("%s: the page has %d keys", queue, len(list))
		}
	}
}

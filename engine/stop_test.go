package engine

import (
	"errors"
	"testing"

	"github.com/faisca/fila/internal/hook"
)

// A nack that waits for its hook when the engine stops has not happened, and must not be
// answered as if it had.
func TestStopRefusesANackWithoutAHookDecision(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.must(func(tx *Tx) error { return tx.LoadScript("q", simHook{hook.OnFailure}, "") })
	w.enqueue("q", "k", "m")
	d := w.lease("q", 1)[0]
	req := &Nack{Queue: "q", Receipt: d.Receipt, Delay: -1}
	task := &Task{Client: NewClient(1, func() {})}
	task.Call = callFunc(func(tx *Tx) error { _, err := tx.Nack(req); return err })
	w.core.turn(w.Now(), []*Task{task})
	if task.wait == nil {
		t.Fatal("the nack should wait for its hook")
	}
	w.core.drain()
	if !errors.Is(task.err, ErrStopped) {
		t.Errorf("answered with %v", task.err)
	}
	w.Do()
}

// A client has sent many commands that read messages when the engine stops. Each is refused, and
// none of them starts a read: the reads would hold as many messages in memory as there are commands.
func TestStopStartsNoReadsForQueuedTasks(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	id := w.enqueue("q", "k", "m")
	cl := NewClient(1, func() {})
	tasks := make([]*Task, 50)
	for i := range tasks {
		req := &Get{Queue: "q", ID: id}
		tasks[i] = &Task{Client: cl, Call: callFunc(func(tx *Tx) error { _, err := tx.Get(req); return err })}
	}
	w.core.turn(w.Now(), tasks)
	if tasks[0].wait == nil || len(w.core.out.jobs) != 1 {
		t.Fatalf("the first task should wait for a read: %d jobs", len(w.core.out.jobs))
	}
	for range tasks {
		w.core.drain()
		if n := len(w.core.out.jobs); n != 0 {
			t.Fatalf("%d jobs are left to start", n)
		}
		w.core.turn(w.Now(), nil)
	}
	w.core.drain()
	for i, task := range tasks {
		if !errors.Is(task.err, ErrStopped) {
			t.Errorf("task %d is answered with %v", i, task.err)
		}
	}
	w.Do()
}

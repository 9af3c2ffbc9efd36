package engine

import (
	"testing"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/queueset"
)

// A task that waits for a read off the loop ends also if a recovery comes between: the task begins
// another read then, and the result of the first one arrives before that of the other.
func TestAnAwaitedReadEndsAfterARecovery(t *testing.T) {
	prepared := func(w *world, req *Enqueue) *Enqueue {
		if err := w.Prepare(req); err != nil {
			w.t.Fatal(err)
		}
		w.Advance(time.Minute)
		return req
	}
	for name, call := range map[string]func(w *world) callFunc{
		"run of a recurring message": func(w *world) callFunc {
			w.cron(minutely(CatchUpLast))
			req := &CronRun{Name: "m"}
			return func(tx *Tx) error { _, err := tx.RunCron(req); return err }
		},
		"history of a budget": func(w *world) callFunc {
			req := &BudgetHistory{Name: "b", Count: 9}
			return func(tx *Tx) error { _, _, err := tx.BudgetHistory(req); return err }
		},
		"history of a script": func(w *world) callFunc {
			w.returns(hook.EnqueueDecision{})
			req := &ScriptHistory{Queue: "q", Kind: hook.OnEnqueue}
			return func(tx *Tx) error { _, err := tx.ScriptHistory(req); return err }
		},
		"ids of an enqueue": func(w *world) callFunc {
			req := prepared(w, &Enqueue{Queue: "q", Dedup: "d", Meta: Meta{Unique: "u"}, Payload: []byte("x")})
			w.send(Enqueue{Queue: "q", Dedup: "other", Meta: Meta{Unique: "other"}, Payload: []byte("x")})
			w.Advance(time.Minute) // what was prepared is stale
			return func(tx *Tx) error { _, err := tx.Enqueue(req); return err }
		},
		"id of a movement": func(*world) callFunc {
			req := &BudgetMove{Name: "b", Amount: 1, ID: "i"} // not looked up at all
			return func(tx *Tx) error { _, err := tx.MoveBudget(req); return err }
		},
		"bindings of a topic": func(w *world) callFunc {
			w.must(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: "q"}); return err })
			req := &Publish{Topic: "t", Message: Enqueue{Payload: []byte("x")}}
			if err := w.PreparePublish(req); err != nil {
				w.t.Fatal(err)
			}
			w.must(func(tx *Tx) error { _, err := tx.Bind("t", Binding{Queue: "r"}); return err })
			return func(tx *Tx) error { _, err := tx.Publish(req); return err }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{Given: queueset.Given{queueset.DedupWindow: 60_000}})
			w.queue("r", QueueOptions{})
			w.must(func(tx *Tx) error { return tx.SetBudget("b", &BudgetOptions{}) })
			w.must(func(tx *Tx) error { _, err := tx.MoveBudget(&BudgetMove{Name: "b", Amount: 1}); return err })
			task := &Task{Call: call(w)}
			before := w.core.out.committed
			w.Lazy = func() bool { return w.core.out.committed > before } // the batch is committed, and the read does not end
			if w.Do(task); task.Done() || len(w.reads) != 1 {
				t.Fatalf("done: %v, and %d reads are under way", task.Done(), len(w.reads))
			}
			w.recoverInPlace()
			steps := 0
			w.Lazy = func() bool { steps++; return steps > 1000 }
			if w.Do(); !task.Done() || task.Err() != nil {
				t.Errorf("done: %v, %v", task.Done(), task.Err())
			}
			w.Lazy = nil
			w.Do()
			w.sound()
		})
	}
}

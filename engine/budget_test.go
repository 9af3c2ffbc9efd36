package engine

import (
	"errors"
	"github.com/faisca/fila/engine/turn"
	"testing"
	"time"

	"github.com/faisca/fila/storage"
)

// unitsMax bounds the units that a turn may spend: its steps, and one indivisible operation
// more for each.
const unitsMax = 2 * turnUnits

// untilDone runs turns until a task is done, each with the tasks of others, and returns
// their number. It fails if a turn exceeds unitsMax.
func (w *world) untilDone(task *Task, others func(turn int) []*Task) (turns int) {
	w.t.Helper()
	tasks := []*Task{task}
	for ; !task.Done(); turns++ {
		if turns == 10_000 {
			w.t.Fatal("the task has no end")
		}
		if others != nil {
			tasks = append(tasks, others(turns)...)
		}
		w.tick(tasks...)
		if spent := w.core.tasks.budget.Spent; spent > unitsMax {
			w.t.Fatalf("turn %d has done %d units of work, want at most %d", turns, spent, unitsMax)
		}
		tasks = nil
	}
	return turns
}

// leaseAll leases all messages of "q" and returns the receipts.
func (w *world) leaseAll() (receipts []Receipt) {
	w.t.Helper()
	for {
		ds := w.lease("q", 1000)
		if len(ds) == 0 {
			return receipts
		}
		for _, d := range ds {
			receipts = append(receipts, d.Receipt)
		}
	}
}

func TestManyReceiptsInOneCommandYieldToOtherClients(t *testing.T) {
	const n = 5 * turnUnits
	for name, call := range map[string]func(tx *Tx, rs []Receipt) (int, error){
		"ack":     func(tx *Tx, rs []Receipt) (int, error) { return tx.Ack("q", rs) },
		"release": func(tx *Tx, rs []Receipt) (int, error) { return tx.Release("q", rs) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			w.fill("k", n, nil)
			receipts := w.leaseAll()
			first, other := NewClient(1, func() {}), NewClient(2, func() {})
			done, followed := 0, 0
			task := &Task{Client: first, Call: callFunc(func(tx *Tx) (err error) { done, err = call(tx, receipts); return err })}
			var asked []*Task
			turns := w.untilDone(task, func(turn int) []*Task {
				if len(asked) > 2 && !asked[len(asked)-3].Done() { // in this test a commit takes a turn
					t.Fatalf("turn %d: another client has waited for three turns", turn)
				}
				asked = append(asked, &Task{Client: other, Call: callFunc(func(*Tx) error { return nil })})
				if turn > 0 {
					return asked[len(asked)-1:]
				}
				return append(asked[:1:1], &Task{Client: first, Call: callFunc(func(*Tx) error { followed = done; return nil })})
			})
			if task.Err() != nil || done != n || turns < 5 {
				t.Errorf("%d receipts were handled in %d turns: %v", done, turns, task.Err())
			}
			w.Do()
			if followed != n {
				t.Error("what the client had sent behind it was applied before its end")
			}
		})
	}
}

func TestReceiptsInATransactionAreOneWrite(t *testing.T) {
	w := newWorld(t, nil)
	w.core.tasks.budget.Turn = 4
	w.queue("q", QueueOptions{})
	w.fill("k", 100, nil)
	receipts := w.leaseAll()
	errs, n := make([]error, 1), 0
	w.tick(&Task{Call: callFunc(func(tx *Tx) error {
		return tx.Exec([]Call{callFunc(func(tx *Tx) (err error) { n, err = tx.Ack("q", receipts); return err })}, errs)
	})})
	if n != 100 || errs[0] != nil || len(w.core.leases.byID) != 0 {
		t.Errorf("after one turn %d of 100 are acked, %d leases are left: %v", n, len(w.core.leases.byID), errs[0])
	}
}

// Some slices may be on disk while others were lost with the memory: their number is
// unknown.
func TestACommandInSlicesIsRefusedWhenTheStoreFailsInBetween(t *testing.T) {
	store := storage.NewMemory()
	w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
	w.queue("q", QueueOptions{})
	w.fill("k", 100, nil)
	receipts := w.leaseAll()
	w.core.tasks.budget.Turn = 4
	task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Ack("q", receipts); return err })}
	for range 5 {
		w.tick()
	}
	w.tick(task)
	w.tick()
	store.FailCommits(errors.New("no space left"))
	w.Do()
	if !task.Done() || !errors.Is(task.Err(), ErrMisconf) {
		t.Errorf("the command is done %v: %v", task.Done(), task.Err())
	}
	store.FailCommits(nil)
	if err := w.Repair(); err != nil {
		t.Fatal(err)
	}
}

func TestAnExpiredLeaseIsInvalidBeforeItsTimerIsProcessed(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.fill("k", 100, nil)
	receipts := w.leaseAll()
	w.core.tasks.budget.Turn = 4
	w.now = w.now.Add(time.Hour)
	n := -1
	w.tick(&Task{Call: callFunc(func(tx *Tx) (err error) { n, err = tx.Ack("q", receipts[len(receipts)-1:]); return err })})
	if left := len(w.core.leases.byID); left < 90 {
		t.Fatalf("%d of 100 leases are left: the test is about those that expire later", left)
	}
	if n != 0 {
		t.Error("a lease that was over has been acked")
	}
	w.tick(&Task{Call: callFunc(func(tx *Tx) error {
		_, err := tx.Nack(&Nack{Queue: "q", Receipt: receipts[len(receipts)-1], Delay: -1})
		if !errors.Is(err, ErrLeaseLost) {
			t.Errorf("a nack of it: %v", err)
		}
		return nil
	})})
	w.Advance(time.Second)
	if len(w.core.leases.byID) != 0 {
		t.Errorf("%d leases have not expired", len(w.core.leases.byID))
	}
}

// A client that sends many commands has its share of each turn, and other clients have
// theirs.
func TestAClientThatHasUsedItsShareYieldsToOthers(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	c := w.core
	c.tasks.budget.Turn = 400
	greedy, modest := NewClient(1, func() {}), NewClient(2, func() {})
	var order []int
	var tasks []*Task
	for i := range 1000 {
		tasks = append(tasks, &Task{Client: greedy, Call: callFunc(func(*Tx) error { order = append(order, i); return nil })})
	}
	tasks = append(tasks, &Task{Client: modest, Call: callFunc(func(*Tx) error { order = append(order, -1); return nil })})
	c.turn(w.now, tasks)
	if n := len(order); n != c.tasks.budget.Share()+1 || order[n-1] != -1 || !c.tasks.unfinished {
		t.Fatalf("the first turn has applied %d tasks, the last is %d", n, order[n-1])
	}
	w.Do()
	at := 0
	for _, i := range order {
		if i >= 0 && i != at {
			t.Fatalf("task %d of the client was applied in place of %d", i, at)
		}
		if i >= 0 {
			at++
		}
	}
	if at != 1000 || len(c.tasks.backlog) != 0 || c.tasks.bytes != 0 {
		t.Errorf("%d tasks were applied, %d are left", at, len(c.tasks.backlog))
	}
}

// All clients wait while a batch is committed.
func TestSlicesAddLittleToABatch(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.LeaseWriteDelay = 0 })
	w.queue("q", QueueOptions{})
	const n = 20_000
	w.fill("k", n, nil)
	w.leaseAll()
	w.now = w.now.Add(time.Hour)
	c := w.core
	for range 1000 { // the disk is slow: no batch is cut
		c.turn(w.now, nil)
	}
	if weight := c.out.batch.Size() + 200*c.out.batch.Len(); weight > turn.SliceWeight+4096 || !c.mustCut() {
		t.Errorf("timers have put %d records of %d bytes into a batch", c.out.batch.Len(), c.out.batch.Size())
	}
	w.Advance(time.Second)
	if len(c.leases.byID) != 0 {
		t.Errorf("%d leases have not expired", len(c.leases.byID))
	}
}

// Tasks of a disconnected client that had yielded are executed, as they were submitted
// before. Tasks queued behind its wait for messages are not.
func TestYieldedTasksOfADisconnectedClientAreExecuted(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.core.tasks.budget.Turn = 4
	cl := NewClient(1, func() {})
	ran := 0
	count := func() *Task { return &Task{Client: cl, Call: callFunc(func(*Tx) error { ran++; return nil })} }
	tasks := []*Task{count(), count(), count(), count(), count()}
	blocking := &Task{Client: cl, Call: callFunc(func(tx *Tx) error {
		_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1})
		return err
	})}
	w.core.turn(w.now, append(tasks, blocking, count(), count()))
	if ran != 1 {
		t.Fatalf("%d tasks ran in the first turn, want one", ran)
	}
	w.Leave(cl)
	w.Do()
	if ran < 5 || !blocking.Done() {
		t.Errorf("%d of the 5 tasks before the wait were executed, the wait has ended %v", ran, blocking.Done())
	}
	w.sound()
}

func TestALeaseOfManyMessagesYieldsToOtherClients(t *testing.T) {
	for name, block := range map[string]time.Duration{"a poll": -1, "one that waits": time.Hour} {
		t.Run(name, func(t *testing.T) {
			const n = 2 * turnUnits
			w := newWorld(t, func(c *Config) { c.Window = n })
			w.queue("q", QueueOptions{})
			if block < 0 {
				w.fill("k", n, nil)
			} else {
				w.must(func(tx *Tx) error { return tx.Pause("q", false, true, true) })
				w.fill("k", n, nil)
			}
			var ds []*Delivery
			req := &LeaseRequest{Queues: []string{"q"}, Count: n, Block: block}
			task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(tx *Tx) (err error) { ds, err = tx.Lease(req); return err })}
			turns := w.untilDone(task, func(turn int) []*Task {
				if turn == 2 && block > 0 {
					return []*Task{{Call: callFunc(func(tx *Tx) error { return tx.Pause("q", false, true, false) })}}
				}
				if turn == 4 && task.Client.Waits() {
					t.Error("it has got messages, and counts as waiting for some")
				}
				return nil
			})
			if len(ds) != n || task.Err() != nil || turns < 4 {
				t.Fatalf("%d messages in %d turns: %v", len(ds), turns, task.Err())
			}
			for i, d := range ds[1:] {
				if d.Receipt.ID.Nanos() < ds[i].Receipt.ID.Nanos() {
					t.Fatal("the messages are not in order")
				}
			}
			w.sound()
		})
	}
}

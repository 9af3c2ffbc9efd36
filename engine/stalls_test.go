package engine

import (
	"fmt"
	"github.com/faisca/fila/engine/turn"
	"slices"
	"testing"
	"time"
)

// How long a command or many timers may delay other clients, in units of work and records
// written: no turn exceeds its budget, whatever the amount of work.

// stallN is the number of keys, leases and values: several times what a turn processes.
const stallN = 3 * turnUnits

// stallWorld has stallN keys with a message each in "q", as many leases of "held", whose
// keys have a throttle, and as many values.
func stallWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, func(c *Config) { c.Limits.Count, c.LeaseWriteDelay = 1<<20, 0 })
	w.queue("q", QueueOptions{})
	w.queue("held", QueueOptions{})
	w.queue("other", QueueOptions{})
	w.fillKeys("q", stallN)
	w.fillKeys("held", stallN)
	w.lease("held", stallN)
	w.must(func(tx *Tx) error { return tx.SetConfig(manyValues(stallN)) })
	w.Do()
	return w
}

// act is a command, or a time at which timers fire.
type act struct {
	call func(w *world) func(tx *Tx) error
	// later is how far the time advances before the first turn.
	later time.Duration
	// over reports the end of an act of timers.
	over func(c *core) bool
	// turns is the minimum number of turns: the test is about work that is divided.
	turns int
}

func acts() map[string]act {
	receipts := func(w *world) (rs []Receipt) {
		for _, m := range w.core.leases.ends.Entries() {
			rs = append(rs, Receipt{ID: m.id, Fence: m.fence})
		}
		return rs
	}
	return map[string]act{
		"ACK": {turns: 3, call: func(w *world) func(tx *Tx) error {
			rs := receipts(w)
			return func(tx *Tx) error { _, err := tx.Ack("held", rs); return err }
		}},
		"RELEASE": {turns: 3, call: func(w *world) func(tx *Tx) error {
			rs := receipts(w)
			return func(tx *Tx) error { _, err := tx.Release("held", rs); return err }
		}},
		"LEASE": {turns: 3, call: func(*world) func(tx *Tx) error {
			req := &LeaseRequest{Queues: []string{"q"}, Count: stallN, Block: -1}
			return func(tx *Tx) error { _, err := tx.Lease(req); return err }
		}},
		"CANCEL": {turns: 3, call: func(w *world) func(tx *Tx) error {
			req := &Cancel{Queue: "q"}
			for k := range w.core.queues.byName["q"].roster.All() {
				req.IDs = append(req.IDs, k.window.First().id)
			}
			return func(tx *Tx) error { _, err := tx.Cancel(req); return err }
		}},
		"KEYS": {turns: 3, call: func(*world) func(tx *Tx) error {
			req := &Keys{Queue: "q", Count: stallN, Match: func(string) bool { return true }}
			return func(tx *Tx) error { _, _, err := tx.Keys(req); return err }
		}},
		"STATS": {turns: 2, call: func(*world) func(tx *Tx) error {
			survey := &Survey{Queue: "q"}
			return func(tx *Tx) error { _, _, err := tx.Survey(survey); return err }
		}},
		"FIGURES": {turns: 3, call: func(*world) func(tx *Tx) error {
			req := &Figures{Count: 10}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		}},
		"MEMORY USAGE": {turns: 2, call: func(*world) func(tx *Tx) error {
			req := &QueueMemory{Queue: "q"}
			return func(tx *Tx) error { _, err := tx.QueueMemory(req); return err }
		}},
		"PURGE": {turns: 3, over: func(c *core) bool { return !c.tasks.unfinished }, call: func(*world) func(tx *Tx) error {
			return func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "held"}); return err }
		}},
		"QUEUE DELETE": {turns: 3, over: func(c *core) bool { return !c.tasks.unfinished }, call: func(*world) func(tx *Tx) error {
			return func(tx *Tx) error { return tx.DeleteQueue("held", true) }
		}},
		"CONFIG SET": {turns: 1, call: func(*world) func(tx *Tx) error {
			return func(tx *Tx) error { return tx.SetConfig(map[string]string{"k000001": "new"}) }
		}},
		"the end of all leases": {turns: 3, later: time.Hour, over: func(c *core) bool { return len(c.leases.byID) == 0 }},
	}
}

func TestNoOperationStallsTheLoop(t *testing.T) {
	for name, a := range acts() {
		t.Run(name, func(t *testing.T) {
			w := stallWorld(t)
			c := w.core
			task := &Task{Client: NewClient(1, func() {}), Call: callFunc(func(*Tx) error { return nil })}
			if a.call != nil {
				task.Call = callFunc(a.call(w))
			}
			w.now = w.now.Add(a.later)
			other := NewClient(2, func() {})
			var asked []*Task
			turns := w.untilDone(task, func(nth int) []*Task {
				if n := len(asked); n > 2 && !asked[n-3].Done() {
					t.Fatalf("turn %d: another client has waited for three turns", nth)
				}
				if f := w.flight; f != nil && f.batch != nil && f.batch.Size()+turn.RecordWeight*f.batch.Len() > 2*turn.SliceWeight+2*turn.RecordWeight*turnUnits {
					t.Fatalf("turn %d: a batch has %d records of %d bytes", nth, f.batch.Len(), f.batch.Size())
				}
				asked = append(asked, &Task{Client: other, Call: callFunc(func(*Tx) error { return nil })})
				return asked[len(asked)-1:]
			})
			if task.Err() != nil {
				t.Fatal(task.Err())
			}
			for ; a.over != nil && !a.over(c); turns++ {
				if turns == 10_000 {
					t.Fatal("it has no end")
				}
				w.tick()
				if c.tasks.budget.Spent > unitsMax {
					t.Fatalf("a turn has done %d units of work, want at most %d", c.tasks.budget.Spent, unitsMax)
				}
			}
			if turns < a.turns {
				t.Errorf("it took %d turns, the test is about at least %d", turns, a.turns)
			}
			w.Do()
			w.sound()
		})
	}
}

// Clients whose waits end together are answered in portions, and none is forgotten.
func TestWaitsThatEndTogetherYieldToOtherClients(t *testing.T) {
	const n = 3 * turnUnits
	for name, end := range map[string]func(w *world) *Task{
		"their time is over":    func(w *world) *Task { w.now = w.now.Add(time.Minute); return nil },
		"the queue was deleted": func(*world) *Task { return deletionOf("q") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{})
			var tasks []*Task
			for i := range n {
				tasks = append(tasks, &Task{Client: NewClient(uint64(i+1), func() {}), Call: callFunc(func(tx *Tx) error {
					_, err := tx.Lease(&LeaseRequest{Queues: []string{"q"}, Count: 1, Block: time.Minute})
					return err
				})})
			}
			w.Do(tasks...)
			if len(w.core.waits.parked) != n {
				t.Fatalf("%d wait, want %d", len(w.core.waits.parked), n)
			}
			turns := 0
			for task := end(w); len(w.core.waits.parked) > 0; turns++ {
				if turns == 1000 {
					t.Fatal("it has no end")
				}
				if task != nil {
					w.tick(task)
					task = nil
				} else {
					w.tick()
				}
				if spent := w.core.tasks.budget.Spent; spent > unitsMax {
					t.Fatalf("turn %d has done %d units of work", turns, spent)
				}
			}
			w.Do()
			for i, task := range tasks {
				if !task.Done() {
					t.Fatalf("client %d has no answer", i)
				}
			}
			if turns < 3 {
				t.Errorf("%d turns for %d clients", turns, n)
			}
		})
	}
}

// Messages that are due, or whose TTL passes, in the same second.
func TestMessagesThatAreDueTogetherAreProcessedInPortions(t *testing.T) {
	const n = 3 * turnUnits
	for name, req := range map[string]Enqueue{"due": {Delay: time.Hour}, "outlived": {TTL: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.queue("q", QueueOptions{NoDLQ: true})
			for i := range n {
				r := req
				r.Queue, r.Key = "q", fmt.Sprintf("k%d", i%1000)
				if err := w.Prepare(&r); err != nil {
					t.Fatal(err)
				}
				w.turn([]*Task{{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(&r); return err })}})
			}
			w.Do()
			w.now = w.now.Add(2 * time.Hour)
			turns := 0
			left := func() int64 {
				q := w.core.queues.byName["q"]
				if req.Delay > 0 {
					return q.figures.Delayed
				}
				return q.figures.Total
			}
			for ; left() > 0; turns++ {
				if turns == 10_000 {
					t.Fatalf("%d are left", left())
				}
				w.tick()
				if spent := w.core.tasks.budget.Spent; spent > unitsMax {
					t.Fatalf("turn %d has done %d units of work", turns, spent)
				}
			}
			if turns < 3 {
				t.Errorf("%d turns for %d messages", turns, n)
			}
		})
	}
}

// A trimmed index keeps about its earlier half, in order.
func TestATrimmedIndexKeepsTheEarliestEntries(t *testing.T) {
	const window = 1000
	w := newWorld(t, func(c *Config) { c.DueWindow = window })
	w.queue("q", QueueOptions{NoDLQ: true})
	for i := range 5*window + 7 {
		req := &Enqueue{Queue: "q", Key: "k", Delay: time.Duration(1+i*7919%5000) * time.Second}
		if err := w.Prepare(req); err != nil {
			t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		if n := w.core.delayed.index.Len(); n > 2*window || i > 2*window && n < window/2 {
			t.Fatalf("the head has %d of %d entries, for a window of %d", n, i+1, window)
		}
	}
	w.sound()
	last, got := time.Duration(0), 0
	for got < 5*window+7 {
		w.Advance(time.Minute)
		last += time.Minute
		if last > 2*time.Hour {
			t.Fatalf("%d have come after %v", got, last)
		}
		got += len(w.leaseAll())
	}
}

// The budget of a turn holds across the commands of a pipeline: a deletion is counted as what it costs
// the store, so a client that deletes very many queues has a few dozen in a turn.
func TestAPipelineOfDeletionsYieldsToOtherClients(t *testing.T) {
	const n = 500
	w := newWorld(t, nil)
	cl := NewClient(1, func() {})
	tasks := make([]*Task, n)
	for i := range tasks {
		name := fmt.Sprint("q", i)
		w.queue(name, QueueOptions{NoDLQ: true})
		tasks[i] = &Task{Client: cl, Call: deletionOf(name).Call}
	}
	w.Do()
	other := NewClient(2, func() {})
	var asked []*Task
	for turn, left := 0, n; left > 0; turn++ {
		if turn > 2 && !asked[turn-3].Done() {
			t.Fatalf("turn %d: another client has waited for three turns", turn)
		}
		asked = append(asked, &Task{Client: other, Call: callFunc(func(*Tx) error { return nil })})
		w.tick(slices.Concat(tasks, asked[turn:])...)
		tasks = nil
		now := len(w.core.queues.byName)
		if gone := left - now; gone > w.core.tasks.budget.Share()/8+1 {
			t.Fatalf("turn %d has deleted %d queues", turn, gone)
		}
		left = now
	}
	w.Do()
}

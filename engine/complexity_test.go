package engine

import (
	"fmt"
	"testing"
	"time"
)

// callWork is what a call has cost.
type callWork struct {
	units, most int           // of all of its turns in the run with the fewest, of the largest turn
	took        time.Duration // the shortest of several runs
}

// workOf runs a call several times, each on figures that are as old as age says.
func (w *world) workOf(age time.Duration, call func() func(tx *Tx) error) (k callWork) {
	w.t.Helper()
	for range 5 {
		w.now = w.now.Add(age)
		task := &Task{Call: callFunc(call())}
		units := 0
		began := time.Now()
		for first := true; first || !task.Done(); first = false {
			if first {
				w.tick(task)
			} else {
				w.tick()
			}
			spent := w.core.tasks.budget.Spent
			units, k.most = units+spent, max(k.most, spent)
		}
		took := time.Since(began)
		if task.Err() != nil {
			w.t.Fatal(task.Err())
		}
		if k.units == 0 {
			k.units, k.took = units, took
		}
		k.units, k.took = min(k.units, units), min(k.took, took)
	}
	return k
}

// addKeys enqueues a message for each of n fairness keys, in portions.
func (w *world) addKeys(queue string, n int) {
	w.t.Helper()
	const portion = 10_000
	for from := 0; from < n; from += portion {
		tasks := make([]*Task, min(n-from, portion))
		for i := range tasks {
			req := &Enqueue{Queue: queue, Key: fmt.Sprint("tenant-", from+i), Payload: []byte("m")}
			if err := w.Prepare(req); err != nil {
				w.t.Fatal(err)
			}
			tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })}
		}
		w.Do(tasks...)
	}
}

// What operators ask for again and again costs what its Spec says: nothing but a sweep, which all
// of them share, depends on the number of fairness keys. Units are what the engine counts. At length, the
// time tells whether it counts everything: of the shortest of several runs, only the ratio matters, and
// what looks at each key takes four times as long as is allowed.
func TestTheWorkOfFiguresIsAsTheirComplexitySays(t *testing.T) {
	many := 1_000_000
	if testing.Short() {
		many /= 25
	}
	const few, count = 1000, 10
	calls := map[string]struct {
		age   time.Duration // of the figures of keys
		perN  bool          // proportional to the number of keys, in slices
		units int           // at most, where it is not
		call  func() func(tx *Tx) error
	}{
		"FILA.STATS queue but for the age": {units: 2, call: func() func(tx *Tx) error {
			return func(tx *Tx) error {
				if _, _, err := tx.BusiestKeys("q"); err != nil {
					return err
				}
				if _, err := tx.QueueStats("q"); err != nil {
					return err
				}
				_, err := tx.RedriveInfo("q")
				return err
			}
		}},
		"FILA.FIGURES": {units: count * (figuresUnits + 1), call: func() func(tx *Tx) error {
			req := &Figures{Count: count, Durations: true}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		}},
		"FILA.FIGURES QUEUE": {units: 2 * (figuresUnits + 1), call: func() func(tx *Tx) error {
			req := &Figures{Queue: "q"}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		}},
		"FILA.KEYS BY": {units: count * (describeUnits + 1), call: func() func(tx *Tx) error {
			req := &TopKeys{Queue: "q", By: ByDepth, Count: count}
			return func(tx *Tx) error { _, err := tx.TopKeys(req); return err }
		}},
		"a sweep": {age: time.Hour, perN: true, call: func() func(tx *Tx) error {
			req := &Figures{Count: count}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		}},
	}
	worlds := map[int]*world{}
	for _, n := range []int{few, many} {
		w := newWorld(t, func(c *Config) { c.FiguresAge = time.Minute })
		w.queue("q", QueueOptions{NoDLQ: true})
		w.addKeys("q", n)
		w.lease("q", few/2)
		if got := w.core.queues.byName["q"].keys.Len(); got != n {
			t.Fatalf("%d keys, want %d", got, n)
		}
		w.workOf(0, calls["FILA.FIGURES"].call) // sweeps
		worlds[n] = w
	}
	for name, c := range calls {
		a, b := worlds[few].workOf(c.age, c.call), worlds[many].workOf(c.age, c.call)
		t.Logf("%s: %d keys %+v, %d keys %+v", name, few, a, many, b)
		if most := unitsMax; b.most > most {
			t.Errorf("%s: a turn is %d units with %d keys, want at most %d", name, b.most, many, most)
		}
		if c.perN {
			if least := (many - few) / sweepKeysPerUnit; b.units-a.units < least || b.units-a.units > 2*least {
				t.Errorf("%s: %d units with %d keys, %d with %d", name, a.units, few, b.units, many)
			}
			continue
		}
		if a.units > c.units || b.units > c.units {
			t.Errorf("%s: %d units with %d keys, %d with %d, want at most %d", name, a.units, few, b.units, many, c.units)
		}
		if ratio := float64(b.took) / float64(a.took); !testing.Short() && ratio > float64(many)/few/4 {
			t.Errorf("%s takes %.0f times as long with %d times the keys", name, ratio, many/few)
		}
	}
}

// What describes all queues together looks at none of them: it says the same when there are none to
// look at.
func TestStatsLookAtNoQueue(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("idle", QueueOptions{})
	for i := range 20 {
		queue := fmt.Sprint("q", i)
		w.queue(queue, QueueOptions{})
		w.enqueue(queue, "a", "m")
		w.enqueue(queue, "b", "m")
		w.delay(queue, 1)
		d := w.lease(queue, 1)[0]
		switch i % 4 {
		case 0:
			w.must(func(tx *Tx) error { return tx.DeleteQueue(queue, true) })
		case 1:
			w.must(func(tx *Tx) error { _, err := tx.Nack(&Nack{Queue: queue, Receipt: d.Receipt, Dead: true}); return err })
		case 2:
			w.must(func(tx *Tx) error { _, err := tx.Ack(queue, []Receipt{d.Receipt}); return err })
		}
		waits := &LeaseRequest{Queues: []string{"idle", "idle" + DLQSuffix}, Count: 10, Block: 0}
		w.Do(&Task{Client: NewClient(uint64(i)+1, func() {}), Call: callFunc(func(tx *Tx) error { _, err := tx.Lease(waits); return err })})
	}
	w.sound() // compares with what a look at each queue finds
	tx := &Tx{core: w.core}
	with := tx.Stats()
	if with.Ready == 0 || with.Delayed == 0 || with.Leased == 0 || with.Dead == 0 || with.Keys == 0 || with.Waiters == 0 || with.Rounds == 0 || with.Acked == 0 {
		t.Errorf("the test is about queues of which %+v says something", with)
	}
	names, numbers := w.core.queues.byName, w.core.queues.byNumber
	w.core.queues.byName, w.core.queues.byNumber = nil, nil
	without := tx.Stats()
	w.core.queues.byName, w.core.queues.byNumber = names, numbers
	without.Queues = with.Queues
	if with != without {
		t.Errorf("Stats looks at queues: with them it says\n%+v, without\n%+v", with, without)
	}
}

// What the dashboard asks for again and again costs the same with many queues.
func TestTheWorkOfFiguresDoesNotGrowWithTheQueues(t *testing.T) {
	const few, many, count = 100, 20_000, 10
	calls := map[string]func() func(tx *Tx) error{
		"FILA.STATS": func() func(tx *Tx) error { return func(tx *Tx) error { tx.Stats(); return nil } },
		"FILA.FIGURES QUEUE": func() func(tx *Tx) error {
			req := &Figures{Queue: "q0"}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		},
		"FILA.FIGURES": func() func(tx *Tx) error {
			req := &Figures{Count: count}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		},
		"FILA.HISTORY": func() func(tx *Tx) error {
			return func(tx *Tx) error { _, err := tx.History("", HistoryMax); return err }
		},
		"FILA.SCRIPT STATS": func() func(tx *Tx) error {
			return func(tx *Tx) error {
				tx.core.queues.names = nil // as after the creation of a queue
				_, err := tx.Scripts("q0")
				return err
			}
		},
	}
	worlds := map[int]*world{}
	for _, n := range []int{few, many} {
		w := newWorld(t, func(c *Config) { c.FiguresAge = time.Hour })
		for from := 0; from < n; from += few {
			tasks := make([]*Task, few)
			for i := range tasks {
				tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { return tx.CreateQueue(fmt.Sprint("q", from+i), QueueOptions{NoDLQ: true}) })}
			}
			w.Do(tasks...)
		}
		w.workOf(0, calls["FILA.FIGURES"]) // sweeps
		worlds[n] = w
	}
	for name, call := range calls {
		a, b := worlds[few].workOf(0, call), worlds[many].workOf(0, call)
		t.Logf("%s: %d queues %+v, %d queues %+v", name, few, a, many, b)
		if a.units != b.units || b.most > count*(figuresUnits+1) {
			t.Errorf("%s: %d units with %d queues, %d with %d", name, a.units, few, b.units, many)
		}
		if ratio := float64(b.took) / float64(a.took); !testing.Short() && ratio > many/few/4 {
			t.Errorf("%s takes %.0f times as long with %d times the queues", name, ratio, many/few)
		}
	}
}

// What operators do to queues costs the same with many of them, and what it sets off is done in portions.
func TestTheWorkOnAQueueDoesNotGrowWithTheQueues(t *testing.T) {
	const few, many = 100, 20_000
	dlq := "q0"
	calls := map[string]func(w *world, i int) func(tx *Tx) error{
		"CREATE DLQ": func(_ *world, i int) func(tx *Tx) error {
			return func(tx *Tx) error { return tx.CreateQueue(fmt.Sprint("new", i), QueueOptions{DLQ: &dlq}) }
		},
		"CREATE, of a dead-letter queue": func(w *world, i int) func(tx *Tx) error {
			name := fmt.Sprint("dead", i)
			w.queue(name, QueueOptions{NoDLQ: true})
			return func(tx *Tx) error { return tx.CreateQueue(fmt.Sprint("other", i), QueueOptions{DLQ: &name}) }
		},
		"ALTER DLQ": func(_ *world, i int) func(tx *Tx) error {
			return func(tx *Tx) error { return tx.AlterQueue(fmt.Sprint("q", i+1), QueueOptions{DLQ: &dlq}) }
		},
		"DELETE": func(_ *world, i int) func(tx *Tx) error {
			return func(tx *Tx) error { return tx.DeleteQueue(fmt.Sprint("q", i+50), true) }
		},
		"THROTTLE SET, the first": func(_ *world, i int) func(tx *Tx) error {
			return func(tx *Tx) error {
				return tx.SetThrottle(fmt.Sprint("t", i), ThrottleOptions{Concurrency: new(uint64(1))})
			}
		},
	}
	worlds := map[int]*world{}
	for _, n := range []int{few, many} {
		w := newWorld(t, nil)
		for i := range n {
			w.queue(fmt.Sprint("q", i), QueueOptions{NoDLQ: true})
		}
		worlds[n] = w
	}
	for name, call := range calls {
		var took [2]time.Duration
		for i, n := range []int{few, many} {
			w := worlds[n]
			w.Do()
			for run := range 20 {
				task := &Task{Call: callFunc(call(w, run))}
				w.Do()
				began := time.Now()
				w.tick(task)
				if once := time.Since(began); run == 0 || once < took[i] {
					took[i] = once
				}
				if spent := w.core.tasks.budget.Spent; spent > unitsMax {
					t.Errorf("%s: a turn is %d units with %d queues", name, spent, n)
				}
				if w.Do(); task.Err() != nil {
					t.Fatal(task.Err())
				}
			}
		}
		t.Logf("%s: %v with %d queues, %v with %d", name, took[0], few, took[1], many)
		if ratio := float64(took[1]) / float64(took[0]); !testing.Short() && ratio > many/few/4 {
			t.Errorf("%s takes %.0f times as long with %d times the queues", name, ratio, many/few)
		}
	}
}

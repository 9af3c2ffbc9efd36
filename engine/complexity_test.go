package engine

import (
	"fmt"
	"testing"
	"time"
)

// callWork is what a call has cost.
type callWork struct {
	units, most int           // of all of its turns, of the largest turn
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
			spent := w.core.tasks.budget.spent
			units, k.most = units+spent, max(k.most, spent)
		}
		took := time.Since(began)
		if task.Err() != nil {
			w.t.Fatal(task.Err())
		}
		if k.units == 0 || took < k.took {
			k.units, k.took = units, took
		}
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
// of them share, depends on the number of fairness keys. Units are what the engine counts; the
// time, of which only the ratio matters, tells whether it counts everything.
func TestTheWorkOfFiguresIsAsTheirComplexitySays(t *testing.T) {
	many := 1_000_000
	if testing.Short() {
		many /= 10
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
		if got := w.core.queues.byName["q"].keys.n; got != n {
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
		if ratio := float64(b.took) / float64(a.took); ratio > float64(many)/few/4 {
			t.Errorf("%s takes %.0f times as long with %d times the keys", name, ratio, many/few)
		}
	}
}

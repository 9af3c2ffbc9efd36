package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/states"
	"github.com/faisca/fila/internal/queueset"
)

// listed asks for pages of figures until the last, and returns the names.
func (w *world) listed(req Figures) (names []string) {
	w.t.Helper()
	for range 1000 {
		one := req
		task, page := figuresTask(&one)
		w.finish(task)
		for _, f := range page.Queues {
			names = append(names, f.Name)
		}
		switch {
		case page.Behind != nil:
			req.Sort = &Sort{By: req.Sort.By, Reverse: req.Sort.Reverse, After: page.Behind}
		case page.Next != 0:
			req.Cursor = page.Next
		default:
			return names
		}
	}
	w.t.Fatal("the listing has no end")
	return nil
}

// finish runs turns until a task is done.
func (w *world) finish(task *Task) {
	w.t.Helper()
	for turns := 0; !task.Done(); turns++ {
		if turn := w.core.tasks.budget.Spent; turn > w.core.tasks.budget.Turn+unitsMax {
			w.t.Fatalf("a turn is %d units", turn)
		}
		if turns == 0 {
			w.tick(task)
		} else {
			w.tick()
		}
		if turns > 1000 {
			w.t.Fatal("the task has no end")
		}
	}
	if task.Err() != nil {
		w.t.Fatal(task.Err())
	}
}

func troublesOf(f *QueueFigures) []string {
	var words []string
	for t := range f.Judged.Troubles.All() {
		words = append(words, t.String())
	}
	return words
}

// Each trouble is found in the queue that has it, in no other, and not any more when what it calls for is done.
func TestEachTroubleIsOfTheQueueThatHasIt(t *testing.T) {
	one := uint64(1)
	slow := 0.001
	throttled := func(key string) Enqueue {
		return Enqueue{Queue: "q", Key: "k", Payload: []byte("m"), Meta: Meta{Throttles: []string{key}}}
	}
	lease := func(queue string) func(w *world) { return func(w *world) { w.lease(queue, 1) } }
	for name, x := range map[string]struct {
		trouble figures.Trouble
		make    func(w *world)
		others  []string // that it has as well
		end     func(w *world)
	}{
		"no consumer": {figures.LacksConsumer, func(w *world) { w.enqueue("q", "k", "m") }, nil, lease("q")},
		"dead": {figures.HasDead, func(w *world) {
			w.enqueue("q", "k", "m")
			w.nack(&Nack{Queue: "q", Receipt: w.lease("q", 1)[0].Receipt, Dead: true})
		}, nil, func(w *world) {
			w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q" + DLQSuffix}); return err })
		}},
		"full": {figures.NearlyFull, func(w *world) {
			w.must(func(tx *Tx) error {
				return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.MaxDepth: 3}})
			})
			w.delay("q", 3)
		}, nil, func(w *world) {
			w.must(func(tx *Tx) error {
				return tx.AlterQueue("q", QueueOptions{Given: queueset.Given{queueset.MaxDepth: 4}})
			})
		}},
		"late": {figures.WaitsLong, func(w *world) {
			w.enqueue("q", "k", "m")
			w.Advance(figures.LongWait + time.Second)
		}, []string{"no_consumer"}, lease("q")},
		"expiring": {figures.LeasesExpire, func(w *world) {
			for range 20 {
				w.enqueue("q", "k", "m")
				w.lease("q", 1)
			}
			w.Advance(31 * time.Second)
		}, nil, func(w *world) { w.Advance(11 * time.Minute) }},
		"paused": {figures.IsPaused, func(w *world) {
			w.enqueue("q", "k", "m")
			w.must(func(tx *Tx) error { return tx.Pause("q", false, true, true) })
			w.Advance(time.Hour)
		}, nil, func(w *world) {
			w.must(func(tx *Tx) error { return tx.Pause("q", false, true, false) })
		}},
		"no credit": {figures.LacksCredit, func(w *world) {
			w.setBudget("empty", BudgetOptions{})
			w.send(Enqueue{Queue: "q", Key: "k", Payload: []byte("m"), Meta: Meta{Budgets: []string{"empty"}}})
		}, nil, func(w *world) { w.credit("empty", 10) }},
		"throttled": {figures.IsThrottled, func(w *world) {
			w.throttle("rate", ThrottleOptions{Rate: &slow, Burst: &one})
			w.send(throttled("rate"))
			w.send(throttled("rate"))
			w.lease("q", 1)
		}, nil, func(w *world) { w.must(func(tx *Tx) error { _, err := tx.DeleteThrottle("rate"); return err }) }},
		"slots": {figures.LacksSlots, func(w *world) {
			w.throttle("slots", ThrottleOptions{Concurrency: &one})
			w.send(throttled("slots"))
			w.send(throttled("slots"))
			w.lease("q", 1)
		}, nil, func(w *world) { w.must(func(tx *Tx) error { _, err := tx.DeleteThrottle("slots"); return err }) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.FiguresAge = time.Millisecond })
			w.queue("q", QueueOptions{})
			w.queue("other", QueueOptions{})
			if f := w.allFigures()["q"]; f.Judged.Troubles != 0 {
				t.Fatalf("an empty queue has troubles %v", troublesOf(f))
			}
			x.make(w)
			w.now = w.now.Add(time.Second)
			got := w.allFigures()
			want := slices.Concat(x.others, []string{x.trouble.String()})
			if words := troublesOf(got["q"]); !sameWords(words, want) {
				t.Errorf("its troubles are %v, want %v; it is %s: %s", words, want, got["q"].State.State, got["q"].State.Reason)
			}
			if words := append(troublesOf(got["other"]), troublesOf(got["q"+DLQSuffix])...); words != nil {
				t.Errorf("another queue has the troubles %v", words)
			}
			x.end(w)
			w.now = w.now.Add(time.Second)
			if f := w.allFigures()["q"]; f.Judged.Troubles&(1<<x.trouble) != 0 {
				t.Errorf("it still has it: %v, %s", troublesOf(f), f.State.Reason)
			}
		})
	}
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// A dead-letter queue of one queue is shown with it: its messages are those of the queue, and a folded listing leaves it
// out. One of several queues is listed by itself, and so is one of a queue that the user may not see.
func TestADeadLetterQueueIsShownWithItsQueue(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.FiguresAge = time.Millisecond })
	w.queue("own", QueueOptions{})
	w.queue("shared", QueueOptions{NoDLQ: true})
	w.queue("a", QueueOptions{DLQ: new("shared")})
	w.queue("b", QueueOptions{DLQ: new("shared")})
	for _, queue := range []string{"own", "own", "a", "b"} {
		w.enqueue(queue, "k", "m")
		w.nack(&Nack{Queue: queue, Receipt: w.lease(queue, 1)[0].Receipt, Dead: true})
	}
	all := w.allFigures()
	for name, dead := range map[string]int64{"own": 2, "own.dlq": 0, "a": 0, "b": 0, "shared": 2} {
		if f := all[name]; f.Judged.Dead != dead || (f.Judged.Troubles&(1<<figures.HasDead) != 0) != (dead > 0) {
			t.Errorf("%s is shown with %d dead messages, want %d, and with troubles %v", name, f.Judged.Dead, dead, troublesOf(f))
		}
	}
	if of := all["own.dlq"].DLQOf; of != "own" || all["shared"].DLQOf != "" {
		t.Errorf("the dead-letter queues are of %q and %q", of, all["shared"].DLQOf)
	}
	byName := &Sort{By: figures.ColumnName}
	if got := w.listed(Figures{Count: 2, Sort: byName, Fold: true}); !slices.Equal(got, []string{"a", "b", "own", "shared"}) {
		t.Errorf("folded: %v", got)
	}
	notOwn := func(name string) bool { return name != "own" }
	if got := w.listed(Figures{Count: 2, Sort: byName, Fold: true, Match: notOwn, May: notOwn}); !slices.Equal(got, []string{"a", "b", "own.dlq", "shared"}) {
		t.Errorf("folded, of a user who may not see own: %v", got)
	}
}

// Sorted, selected and grouped listings say what the figures of each queue say, in slices as small as you like.
func TestListingsOfQueuesAgreeWithTheirFigures(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, func(c *Config) { c.FiguresAge = time.Hour })
		for i := range 5 + rng.IntN(60) {
			queue := fmt.Sprintf("q%02d", i)
			w.queue(queue, QueueOptions{})
			for range rng.IntN(4) {
				w.enqueue(queue, "k", "m")
			}
			for _, d := range w.lease(queue, rng.IntN(3)) {
				if rng.IntN(2) == 0 {
					w.nack(&Nack{Queue: queue, Receipt: d.Receipt, Dead: true})
				}
			}
			if rng.IntN(5) == 0 {
				w.must(func(tx *Tx) error { return tx.Pause(queue, false, true, true) })
			}
		}
		all := w.allFigures()
		w.core.tasks.budget.Turn = 40 + rng.IntN(turnUnits)
		value := map[figures.Column]func(f *QueueFigures) int64{
			figures.ColumnName:    func(*QueueFigures) int64 { return 0 },
			figures.ColumnReady:   func(f *QueueFigures) int64 { return f.Ready },
			figures.ColumnLeased:  func(f *QueueFigures) int64 { return f.Leased },
			figures.ColumnDead:    func(f *QueueFigures) int64 { return f.Judged.Dead },
			figures.ColumnKeys:    func(f *QueueFigures) int64 { return f.Keys },
			figures.ColumnDropped: func(f *QueueFigures) int64 { return int64(f.Dropped) },
		}
		for by, of := range value {
			names := w.listed(Figures{Count: 1 + rng.IntN(20), Sort: &Sort{By: by}})
			for i := range len(names) - 1 {
				if a, b := of(all[names[i]]), of(all[names[i+1]]); a < b || a == b && names[i] > names[i+1] {
					t.Fatalf("seed %d, by %s: %s with %d comes before %s with %d", seed, by, names[i], a, names[i+1], b)
				}
			}
			if len(names) != len(all) {
				t.Fatalf("seed %d, by %s: %d of %d queues are listed", seed, by, len(names), len(all))
			}
			back := w.listed(Figures{Count: 1 + rng.IntN(20), Sort: &Sort{By: by, Reverse: true}})
			if slices.Reverse(back); !slices.Equal(back, names) {
				t.Fatalf("seed %d, by %s: the other way round it is %v, want %v", seed, by, back, names)
			}
		}
		for trouble := range figures.Troubles {
			var set figures.TroubleSet
			set.Set(Trouble(trouble), true)
			w.wantSelected(t, all, Figures{Count: 7, Troubles: set}, func(f *QueueFigures) bool { return f.Judged.Troubles&set != 0 })
		}
		w.wantSelected(t, all, Figures{Count: 7, Troubles: EveryTrouble, Sort: &Sort{By: figures.ColumnTrouble}}, func(f *QueueFigures) bool { return f.Judged.Troubles != 0 })
		for s := range KeyState(states.States) {
			w.wantSelected(t, all, Figures{Count: 7, State: &s}, func(f *QueueFigures) bool { return f.State.State == s })
		}
		groups := new(TroubleGroups)
		task, _ := figuresTask(&Figures{Groups: groups})
		w.finish(task)
		var want TroubleGroups
		for _, f := range all {
			want.Add(f.Name, &f.Judged)
		}
		if fmt.Sprint(*groups) != fmt.Sprint(want) {
			t.Errorf("seed %d: groups %v, want %v", seed, *groups, want)
		}
	}
}

// wantSelected compares a listing with the figures of all queues.
func (w *world) wantSelected(t *testing.T, all map[string]*QueueFigures, req Figures, selects func(f *QueueFigures) bool) {
	t.Helper()
	var want []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if selects(all[name]) {
			want = append(want, name)
		}
	}
	if got := w.listed(req); !sameWords(got, want) {
		t.Errorf("%+v lists %v, want %v", req, got, want)
	}
}

// To sort and to group costs a unit for each queue, in turns that are no longer than others.
func TestTheWorkOfAListingIsOneUnitForEachQueue(t *testing.T) {
	const many, count = 20_000, 10
	w := newWorld(t, func(c *Config) { c.FiguresAge = time.Hour })
	for from := 0; from < many; from += 1000 {
		tasks := make([]*Task, 1000)
		for i := range tasks {
			tasks[i] = &Task{Call: callFunc(func(tx *Tx) error { return tx.CreateQueue(fmt.Sprint("q", from+i), QueueOptions{NoDLQ: true}) })}
		}
		w.Do(tasks...)
	}
	w.workOf(time.Minute, func() func(tx *Tx) error { // sweeps
		req := &Figures{Count: 1}
		return func(tx *Tx) error { _, err := tx.Figures(req); return err }
	})
	for name, call := range map[string]func() func(tx *Tx) error{
		"BY": func() func(tx *Tx) error {
			req := &Figures{Count: count, Fold: true, Sort: &Sort{By: figures.ColumnTrouble}}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		},
		"GROUP": func() func(tx *Tx) error {
			req := &Figures{Groups: new(TroubleGroups)}
			return func(tx *Tx) error { _, err := tx.Figures(req); return err }
		},
	} {
		got := w.workOf(0, call)
		if got.units < many || got.units > many+many/10 || got.most > unitsMax {
			t.Errorf("%s of %d queues is %d units, at most %d in a turn", name, many, got.units, got.most)
		}
	}
}

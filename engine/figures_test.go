package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/states"
	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/storage"
)

// figuresTask returns a task for a page of figures, and the page once it is done.
func figuresTask(req *Figures) (*Task, *FiguresPage) {
	page := new(FiguresPage)
	return &Task{Call: callFunc(func(tx *Tx) (err error) {
		*page, err = tx.Figures(req)
		return err
	})}, page
}

// allFigures returns the figures of all queues by name, from one page.
func (w *world) allFigures() map[string]*QueueFigures {
	w.t.Helper()
	task, page := figuresTask(&Figures{Count: 1000})
	w.Do(task)
	if !task.Done() || task.Err() != nil || page.Next != 0 {
		w.t.Fatalf("done %v: %v, next %d", task.Done(), task.Err(), page.Next)
	}
	all := map[string]*QueueFigures{}
	for _, f := range page.Queues {
		all[f.Name] = f
	}
	return all
}

// topKeys returns the first keys of a queue in an order.
func (w *world) topKeys(queue string, by Order) (names []string) {
	w.t.Helper()
	req := &TopKeys{Queue: queue, By: by, Count: figures.TopKeysMax}
	w.must(func(tx *Tx) error {
		list, err := tx.TopKeys(req)
		for _, k := range list {
			names = append(names, k.Key)
		}
		return err
	})
	return names
}

// messUp gives the keys of queue q all states, at random.
func (w *world) messUp(rng *rand.Rand, keys int) {
	w.t.Helper()
	one := uint64(1)
	slow := 0.001
	w.must(func(tx *Tx) error { return tx.SetThrottle("slots", ThrottleOptions{Concurrency: &one}) })
	w.must(func(tx *Tx) error { return tx.SetThrottle("rate", ThrottleOptions{Rate: &slow}) })
	w.setBudget("empty", BudgetOptions{})
	for range 3 * keys {
		req := &Enqueue{Queue: "q", Key: fmt.Sprintf("k%04d", rng.IntN(keys)), Payload: []byte("m")}
		switch rng.IntN(9) {
		case 0:
			req.Throttles = []string{"slots"}
		case 1:
			req.Throttles = []string{"rate"}
		case 2:
			req.Delay = time.Hour
		case 3:
			req.Budgets = []string{"empty"}
		}
		if err := w.Prepare(req); err != nil {
			w.t.Fatal(err)
		}
		w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
		w.now = w.now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
	}
	w.lease("q", keys)
	for i := range keys / 10 {
		w.must(func(tx *Tx) error { return tx.PauseKey("q", fmt.Sprintf("k%04d", 10*i), true) })
	}
}

func TestASweepFindsWhatDescribingEachKeyFinds(t *testing.T) {
	seen := [states.KeyStates]int64{}
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 7)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		w.queue("q", QueueOptions{})
		w.queue("empty", QueueOptions{})
		w.messUp(rng, 20+rng.IntN(400))
		c, q := w.core, w.core.queues.byName["q"]
		w.core.tasks.budget.Turn = 16 + rng.IntN(turnUnits)
		got := w.allFigures()["q"]

		var inState [states.KeyStates]int64
		var oldest int64
		values := [Orders]map[string]int64{{}, {}, {}, {}}
		for k := range q.roster.All() {
			i := c.describe(k)
			inState[i.State]++
			values[ByDepth][k.name], values[ByDelivered][k.name] = i.Depth, int64(i.Delivered)
			if k.window.Len() > 0 {
				since := k.window.First().since
				if oldest == 0 || since < oldest {
					oldest = since
				}
				values[ByAge][k.name] = c.now - since + 1
			}
			if i.State == KeyBusy || i.State == KeyNoConsumer || i.State == KeyReady {
				values[ByBehind][k.name] = int64((i.FairShare - i.Share) * figures.BehindScale)
			}
		}
		for i, n := range inState {
			seen[i] += n
		}
		found := [states.KeyStates]int64{}
		for i := range got.States {
			found[i] = got.States[i].Keys
		}
		if found != inState || !got.OldestReady.Equal(unix(oldest)) || !got.SweptAt.Equal(unix(c.now)) {
			t.Errorf("seed %d: the sweep has found %v and %v, want %v and %v", seed, found, got.OldestReady, inState, unix(oldest))
		}
		for by := range Orders {
			top := got.Top[by]
			last := int64(math.MaxInt64)
			for _, name := range top {
				v, ok := values[by][name]
				if !ok || v > last {
					t.Errorf("seed %d: order %d: %s with %d is behind a key with %d", seed, by, name, v, last)
				}
				last = v
				delete(values[by], name)
			}
			if len(top) > figures.TopKeysMax {
				t.Errorf("seed %d: order %d has %d keys", seed, by, len(top))
			}
			for name, v := range values[by] {
				if v > last || len(top) < figures.TopKeysMax && v > 0 {
					t.Errorf("seed %d: order %d lacks %s with %d", seed, by, name, v)
				}
			}
		}
		if f := w.allFigures()["empty"]; f.States != (states.ByState{}) || !f.SweptAt.IsZero() {
			t.Errorf("seed %d: a queue without keys: %+v", seed, f.KeyFigures)
		}
	}
	for i, n := range seen {
		if s := KeyState(i); n == 0 && s != KeyReady && s != KeyLoading && s != KeyOrdered && s != KeyGathering && s != KeyHeld && s != KeyNoConsumer { //nolint:gosec // few
			t.Errorf("no key was %s", s)
		}
	}
}

// A hundred requests cost one sweep, and a request soon after it none.
func TestRequestsForFiguresShareOneSweep(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 1000)
	w.core.tasks.budget.Turn = 64
	units := func(n int) (all int) {
		var tasks []*Task
		for range n {
			task, _ := figuresTask(&Figures{Count: 10})
			tasks = append(tasks, task)
		}
		for turn := 0; !tasks[0].Done(); turn++ {
			if turn == 1000 {
				t.Fatal("it has no end")
			}
			w.tick(tasks...)
			all += w.core.tasks.budget.Spent
			if turn == 0 {
				tasks = tasks[:1]
				for range n - 1 { // they come while it is under way
					task, _ := figuresTask(&Figures{Count: 10})
					tasks = append(tasks, task)
				}
			} else {
				tasks = tasks[:1]
			}
		}
		w.tick()
		return all
	}
	one := units(1)
	if one < 1000/sweepKeysPerUnit {
		t.Fatalf("a sweep of 1000 keys is %d units", one)
	}
	if soon := units(1); soon > 20 {
		t.Errorf("a request after it is %d units, the sweep was %d", soon, one)
	}
	w.now = w.now.Add(w.core.cfg.FiguresAge + 1)
	if many := units(100); many > one+100*20 {
		t.Errorf("100 requests are %d units, one is %d", many, one)
	}
}

func TestNoTurnSweepsMoreThanItsPart(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.fillKeys("q", 5*turnUnits)
	var tasks []*Task
	for range 20 {
		task, _ := figuresTask(&Figures{Count: 10})
		tasks = append(tasks, task)
	}
	s := &w.core.sweep
	turns := 0
	for ; turns == 0 || s.Running; turns++ {
		before := s.Seen
		w.tick(tasks...)
		tasks = nil
		if n := s.Seen - before; n > turnUnits {
			t.Fatalf("turn %d has swept %d keys, want at most %d", turns, n, turnUnits)
		}
	}
	if turns < 5 {
		t.Errorf("%d turns", turns)
	}
}

// The states in which a purge, a deletion or a recovery may meet a sweep: before the queue, in
// the middle of its keys, and after it.
func TestASweepSurvivesWhatHappensToItsQueues(t *testing.T) {
	for name, act := range map[string]func(w *world){
		"a purge":              func(w *world) { w.tick(purgeOf("q")) },
		"a purge and new keys": func(w *world) { w.tick(purgeOf("q")); w.fillKeys("q", 5) },
		"a deletion":           func(w *world) { w.tick(deletionOf("q")) },
		"a recovery":           func(w *world) { w.recoverInPlace() },
		"a new queue": func(w *world) {
			w.tick(&Task{Call: callFunc(func(tx *Tx) error { return tx.CreateQueue("new", QueueOptions{}) })})
		},
		"no request that waits": func(w *world) { w.now = w.now.Add(2 * w.core.cfg.FiguresAge) },
	} {
		for turns := range 14 {
			w := newWorld(t, nil)
			w.queue("before", QueueOptions{})
			w.queue("q", QueueOptions{})
			w.queue("after", QueueOptions{})
			for _, queue := range []string{"before", "q", "after"} {
				w.fillKeys(queue, 100)
			}
			w.core.tasks.budget.Turn = 40
			task, page := figuresTask(&Figures{Count: 100})
			w.tick(task)
			for range turns {
				w.tick()
			}
			act(w)
			for i := 0; !task.Done(); i++ {
				if i == 1000 {
					t.Fatalf("%s after %d turns: the sweep has no end", name, turns)
				}
				w.tick()
			}
			if task.Err() != nil {
				t.Fatalf("%s after %d turns: %v", name, turns, task.Err())
			}
			w.sound()
			for _, f := range page.Queues {
				sum := int64(0)
				for i := range f.States {
					sum += f.States[i].Keys
				}
				if whole := f.Name == "before" || f.Name == "after"; whole && sum != 100 || sum != 0 && sum != 100 && sum != 5 {
					t.Errorf("%s after %d turns: %d keys of %q have a state", name, turns, sum, f.Name)
				}
			}
			w.now = w.now.Add(2 * w.core.cfg.FiguresAge)
			for queue, f := range w.allFigures() {
				sum := int64(0)
				for i := range f.States {
					sum += f.States[i].Keys
				}
				if sum != f.Keys {
					t.Errorf("%s after %d turns: the next sweep has found %d of %d keys of %q", name, turns, sum, f.Keys, queue)
				}
			}
		}
	}
}

func TestTopKeysAreDescribedAsTheyAreNow(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	for i := range 5 {
		for range i + 1 {
			w.enqueue("q", fmt.Sprintf("k%d", i), "m")
		}
	}
	if got := w.topKeys("q", ByDepth); !slices.Equal(got, []string{"k4", "k3", "k2", "k1", "k0"}) {
		t.Errorf("by depth: %v", got)
	}
	if got := w.topKeys("q", ByAge); !slices.Equal(got, []string{"k0", "k1", "k2", "k3", "k4"}) {
		t.Errorf("by age: %v", got)
	}
	purge := &Purge{Queue: "q", Key: "k3"}
	w.must(func(tx *Tx) error { _, err := tx.Purge(purge); return err })
	if got := w.topKeys("q", ByDepth); !slices.Equal(got, []string{"k4", "k2", "k1", "k0"}) {
		t.Errorf("by depth, without the key that was purged: %v", got)
	}
	for _, d := range w.lease("q", 3) {
		w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{d.Receipt}); return err })
	}
	w.now = w.now.Add(w.core.cfg.FiguresAge + 1)
	if got := w.topKeys("q", ByDelivered); len(got) != 2 {
		t.Errorf("by deliveries: %v, want those that had one and have messages", got)
	}
	if got := w.topKeys("q", ByBehind); len(got) == 0 || got[0] != "k4" {
		t.Errorf("by what they are behind: %v", got)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.TopKeys(&TopKeys{Queue: "none"}); return err }); err == nil {
		t.Error("a queue that does not exist has keys")
	}
}

// What is summed, listed and deleted adds up to all.
func TestPagesOfFiguresAddUp(t *testing.T) {
	w := newWorld(t, nil)
	total := func(c Counts) uint64 { return c.Enqueued + c.Delivered + c.Acked }
	for i := range 20 {
		queue := fmt.Sprintf("q%02d", i)
		w.queue(queue, QueueOptions{NoDLQ: true})
		for range i + 1 {
			w.enqueue(queue, "k", "m")
		}
		w.now = w.now.Add(time.Second)
		for _, d := range w.lease(queue, 2) {
			w.now = w.now.Add(time.Second)
			w.must(func(tx *Tx) error { _, err := tx.Ack(queue, []Receipt{d.Receipt}); return err })
		}
	}
	for _, queue := range []string{"q03", "q17"} {
		w.must(func(tx *Tx) error { return tx.DeleteQueue(queue, true) })
	}
	var stats Stats
	w.must(func(tx *Tx) error { stats = tx.Stats(); return nil })
	if stats.Acked != 39 || stats.Enqueued != 210 {
		t.Fatalf("%+v: want the events of deleted queues, too", stats.Counts)
	}
	for _, count := range []int{1, 7, 100} {
		var sum, listed, deleted QueueFigures
		names, summed, pages := []string{}, 0, 0
		for cursor := uint64(0); pages == 0 || cursor != 0; pages++ {
			task, page := figuresTask(&Figures{Cursor: cursor, Count: count, Durations: true, Sum: func(name string) bool { return name >= "q10" }})
			w.Do(task)
			if task.Err() != nil {
				t.Fatal(task.Err())
			}
			for _, f := range page.Queues {
				names = append(names, f.Name)
				listed.add(f)
				if f.Wait.Count != f.Delivered || f.Work.Count != f.Acked || f.Durations.Wait.Count() != f.Delivered || f.Work.P50 < time.Second {
					t.Errorf("%s: waits %+v, leases %+v, %d deliveries", f.Name, f.Wait, f.Work, f.Delivered)
				}
			}
			sum.add(&page.Sum)
			deleted.add(&page.Deleted)
			summed += page.Summed
			cursor = page.Next
		}
		if len(names) != 9 || summed != 9 || !slices.IsSorted(names) {
			t.Errorf("pages of %d: %v, and %d in the sum", count, names, summed)
		}
		if got, want := total(sum.Counts)+total(listed.Counts)+total(deleted.Counts), total(stats.Counts); got != want {
			t.Errorf("pages of %d: %d events, want %d", count, got, want)
		}
		var wait histogram.Histogram
		for _, d := range []*QueueFigures{&sum, &listed, &deleted} {
			wait.Add(d.Durations.Wait)
		}
		if wait.Count() != stats.Delivered {
			t.Errorf("pages of %d: %d waits, %d deliveries", count, wait.Count(), stats.Delivered)
		}
	}
}

func TestDurationsAreThoseOfEachOutcome(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{NoDLQ: true})
	for i, end := range []func(r Receipt){
		figures.OutcomeAcked:    func(r Receipt) { w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{r}); return err }) },
		figures.OutcomeNacked:   func(r Receipt) { w.nack(&Nack{Queue: "q", Receipt: r, Delay: time.Hour}) },
		figures.OutcomeExpired:  func(Receipt) { w.Advance(time.Minute) },
		figures.OutcomeReleased: func(r Receipt) { w.must(func(tx *Tx) error { _, err := tx.Release("q", []Receipt{r}); return err }) },
	} {
		w.enqueue("q", "k", "m")
		w.Advance(time.Duration(1<<i) * time.Second)
		ds := w.lease("q", 1)
		w.Advance(time.Duration(1<<i) * 2 * time.Second)
		end(ds[0].Receipt)
		w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q"}); return err }) // what has come back
	}
	d := w.core.queues.byName["q"].figures.Durations()
	if got := d.Wait.Sum(); got != (1+2+4+8)*time.Second {
		t.Errorf("the waits are %v", got)
	}
	for i, want := range [Outcomes]time.Duration{2 * time.Second, 4 * time.Second, 30 * time.Second, 16 * time.Second} {
		if h := d.Work[i]; h.Count() != 1 || h.Sum() != want {
			t.Errorf("%s: %d leases of %v, want one of %v", Outcome(i), h.Count(), h.Sum(), want) //nolint:gosec // few
		}
	}
}

// A message waits since it is ready, not since it was enqueued, also after a restart.
func TestAWaitBeginsWhenTheMessageIsReady(t *testing.T) {
	for name, restart := range map[string]bool{"in memory": false, "after a restart": true} {
		t.Run(name, func(t *testing.T) {
			store := storage.NewMemory()
			w := openWorld(t, store, time.Unix(1_700_000_000, 0), nil)
			w.queue("q", QueueOptions{})
			reopen := func() {
				w.Advance(time.Second)
				if restart {
					w = openWorld(t, store, w.now, nil)
					w.Do()
				}
			}
			waits := func(want time.Duration, queue string) Receipt {
				t.Helper()
				r := w.leaseFor(queue, 1)
				h := w.core.queues.byName[queue].figures.Durations().Wait
				if h.Count() != 1 || h.Sum() < want || h.Sum() > want+time.Millisecond {
					t.Errorf("%s: %d waits of %v, want one of %v", queue, h.Count(), h.Sum(), want)
				}
				w.core.queues.byName[queue].figures.Durations().Wait = nil
				return r[0]
			}
			req := &Enqueue{Queue: "q", Key: "k", Payload: []byte("m"), Delay: time.Hour}
			if err := w.Prepare(req); err != nil {
				t.Fatal(err)
			}
			w.must(func(tx *Tx) error { _, err := tx.Enqueue(req); return err })
			w.Advance(time.Hour)
			reopen()
			w.nack(&Nack{Queue: "q", Receipt: waits(time.Second, "q"), Delay: time.Minute})
			w.Advance(time.Minute)
			reopen()
			w.nack(&Nack{Queue: "q", Receipt: waits(time.Second, "q"), Dead: true})
			reopen()
			waits(time.Second, "q.dlq")
		})
	}
}

// No counter goes back, whatever fails and whatever is deleted.
// What comes, goes or is purged while queues are listed must not be counted twice: not in two
// places of the listing, and not in it and among the deleted.
func TestAListingIsOfTheQueuesThatThereWereAtItsBeginning(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 40 {
		w.queue(fmt.Sprintf("q%02d", i), QueueOptions{NoDLQ: true})
		w.enqueue(fmt.Sprintf("q%02d", i), "k", "m")
	}
	w.allFigures() // the sweep is recent
	w.core.tasks.budget.Turn = 24
	task, page := figuresTask(&Figures{Count: FiguresAll, Durations: true})
	meanwhile := []func(tx *Tx) error{
		func(tx *Tx) error { return tx.CreateQueue("new", QueueOptions{NoDLQ: true}) },
		func(tx *Tx) error { return tx.DeleteQueue("q00", true) },
		func(tx *Tx) error { return tx.DeleteQueue("q38", true) },
		func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q01"}); return err },
		func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: "q39"}); return err },
	}
	tasks := []*Task{task}
	for _, f := range meanwhile {
		tasks = append(tasks, &Task{Call: callFunc(f)})
	}
	w.Do(tasks...)
	for i, task := range tasks {
		if !task.Done() || task.Err() != nil {
			t.Fatalf("task %d: done %v, %v", i, task.Done(), task.Err())
		}
	}
	names := make([]string, len(page.Queues))
	for i, f := range page.Queues {
		names[i] = f.Name
	}
	if len(names) != 38 || names[0] != "q00" || names[1] != "q01" || names[37] != "q37" || page.Deleted.Enqueued != 0 {
		t.Errorf("%d queues, %v; %d events of deleted ones", len(names), names, page.Deleted.Enqueued)
	}
	created := page.Queues[1].CreatedAt
	if f := w.allFigures()["q01"]; created.IsZero() || !f.CreatedAt.Equal(created) || f.Enqueued != 1 {
		t.Errorf("after a purge: created at %v instead of %v, %d enqueued", f.CreatedAt, created, f.Enqueued)
	}
}

func TestCountersOutliveARecoveryInPlace(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("deleted", QueueOptions{NoDLQ: true})
	for range 3 {
		w.enqueue("q", "k", "m")
		w.enqueue("deleted", "k", "m")
	}
	ds := w.lease("q", 2)
	w.must(func(tx *Tx) error { _, err := tx.Ack("q", []Receipt{ds[0].Receipt}); return err })
	w.must(func(tx *Tx) error { return tx.Undeliver(ds[1:]) })
	w.must(func(tx *Tx) error { return tx.DeleteQueue("deleted", true) })
	before := w.counts("q")
	w.recoverInPlace()
	w.recoverInPlace()
	w.Do()
	after := w.counts("q")
	if after.Enqueued != 3 || after.Delivered != 2 || after.Undelivered != 1 || after.Acked != 1 || after.Rounds != before.Rounds || after.Rounds == 0 {
		t.Errorf("%+v, before the recovery %+v", after, before)
	}
	var all Stats
	w.must(func(tx *Tx) error { all = tx.Stats(); return nil })
	if all.Enqueued != 6 {
		t.Errorf("%d were enqueued into all queues, want 6 with those of the deleted one", all.Enqueued)
	}
}

//go:build !race

package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine/figures"
)

// moments returns the history of a queue, or of all.
func (w *world) moments(queue string) (list []Moment) {
	w.t.Helper()
	w.must(func(tx *Tx) (err error) { list, err = tx.History(queue); return err })
	return list
}

// happens does something to one of the queues.
func (w *world) happens(rng *rand.Rand, queues []string) {
	w.t.Helper()
	name := queues[rng.IntN(len(queues))]
	q := w.core.queues.byName[name]
	switch n := rng.IntN(12); {
	case q == nil:
		w.queue(name, QueueOptions{NoDLQ: true})
	case n == 0:
		w.must(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: name}); return err })
	case n == 1:
		w.must(func(tx *Tx) error { return tx.DeleteQueue(name, true) })
	case n < 7:
		w.enqueue(name, fmt.Sprint("k", rng.IntN(5)), "m")
	default:
		for _, d := range w.lease(name, 1+rng.IntN(3)) {
			w.must(func(tx *Tx) error { _, err := tx.Ack(name, []Receipt{d.Receipt}); return err })
		}
	}
}

// present returns the present numbers of a queue, or of all.
func (w *world) present(queue string) (n figures.Numbers) {
	if queue != "" {
		if q := w.core.queues.byName[queue]; q != nil {
			counts := q.counts()
			n = figures.Numbers{Flow: counts.Flow, ByStatus: counts.ByStatus}
		}
		return n
	}
	events, _ := w.core.queues.figures.Deleted()
	all := Counts{Events: events}
	for _, q := range w.core.queues.byName {
		all.Add(q.counts())
	}
	return figures.Numbers{Flow: all.Flow, ByStatus: all.ByStatus}
}

// The history of each queue, and of all together, is what the counts were every ten seconds, whether
// or not the broker had anything to do then.
func TestHistoryIsWhatTheCountsWere(t *testing.T) {
	queues := []string{"a", "b", "c", "d"}
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // reproducible on purpose
		w := newWorld(t, nil)
		begun := figures.StepAt(w.Now().UnixNano())
		was := map[string]map[uint32]figures.Numbers{"": {begun: {}}}
		for range 600 {
			from := figures.StepAt(w.Now().UnixNano())
			w.now = w.now.Add(time.Duration(rng.Int64N(int64(6 * time.Second))))
			if rng.IntN(40) == 0 {
				w.now = w.now.Add(time.Duration(rng.Int64N(int64(15 * time.Minute))))
			}
			to := figures.StepAt(w.Now().UnixNano())
			for _, name := range append(queues, "") { // nothing has happened in between
				if name != "" && w.core.queues.byName[name] == nil {
					delete(was, name)
					continue
				}
				if was[name] == nil {
					was[name] = map[uint32]figures.Numbers{from: {}}
				}
				for step := from + 1; step <= to; step++ {
					was[name][step] = w.present(name)
				}
			}
			w.happens(rng, queues)
			for name, numbers := range was {
				if name != "" && (w.core.queues.byName[name] == nil || unix(w.core.queues.byName[name].set.CreatedAt).Equal(w.Now())) {
					continue // deleted, or created just now
				}
				list := w.moments(name)
				if len(list) > figures.Steps || len(list) < min(figures.Steps, int(to-begun+1)) && name == "" {
					t.Fatalf("seed %d: %d moments", seed, len(list))
				}
				for _, m := range list {
					if want := numbers[figures.StepAt(m.At.UnixNano())]; m.Numbers != want {
						t.Fatalf("seed %d, %q at %v of %v: %+v, want %+v", seed, name, m.At, w.Now(), m.Numbers, want)
					}
				}
			}
		}
	}
}

// Very many queues are recorded in slices. What happens between two of them counts once.
func TestManyQueuesAreRecordedInSlices(t *testing.T) {
	w := newWorld(t, nil)
	const n = 200
	name := func(i int) string { return fmt.Sprintf("q%03d", i) }
	for i := range n {
		w.queue(name(i), QueueOptions{NoDLQ: true})
		w.enqueue(name(i), "k", "m")
	}
	const turn = 32
	w.core.tasks.budget.turn = turn
	w.now = w.now.Add(figures.Length)
	turns := 0
	for w.tick(); w.core.history.no != 0; turns++ {
		// Queues get new numbers: some that are recorded already, and some that are not.
		purge := func(i int) *Task {
			return &Task{Call: callFunc(func(tx *Tx) error { _, err := tx.Purge(&Purge{Queue: name(i)}); return err })}
		}
		w.tick(purge(turns), purge(n-1-turns))
		if spent := w.core.tasks.budget.spent; spent > 2*turn {
			t.Errorf("a turn is %d units", spent)
		}
	}
	if turns < 3 {
		t.Fatalf("%d turns", turns)
	}
	list := w.moments("")
	if got := list[len(list)-1]; got.Enqueued != n || got.Ready > n || got.Ready < n-int64(2*turns) {
		t.Errorf("%+v of %d queues", got.Numbers, n)
	}
}

// The history of a broker survives a failed commit, and begins with the start of the broker.
func TestHistoryOutlivesARecoveryInPlaceAndBeginsWithTheBroker(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	for range 5 {
		w.enqueue("q", "k", "m")
		w.now = w.now.Add(figures.Length)
	}
	before, all := w.moments("q"), w.moments("")
	if len(before) != 6 || before[5].Enqueued != 5 || before[3].Ready != 3 {
		t.Fatalf("%+v", before)
	}
	w.core.reset()
	if err := w.core.recover(); err != nil {
		t.Fatal(err)
	}
	if err := w.core.start(); err != nil {
		t.Fatal(err)
	}
	w.Do()
	if after := w.moments("q"); !slices.Equal(after, before) {
		t.Errorf("%+v after a recovery, want %+v", after, before)
	}
	if after := w.moments(""); !slices.Equal(after, all) {
		t.Errorf("%+v of all after a recovery, want %+v", after, all)
	}
	w.restart()
	if after := w.moments("q"); len(after) != 1 || after[0].Enqueued != 0 || after[0].Ready != 5 {
		t.Errorf("%+v after a restart", after)
	}
	if err := w.do(func(tx *Tx) error { _, err := tx.History("none"); return err }); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
}

// Those that wait are listed in the order in which they are served, and only while they wait.
func TestConsumersAreListedInTheOrderInWhichTheyCame(t *testing.T) {
	w := newWorld(t, nil)
	w.queue("q", QueueOptions{})
	w.queue("other", QueueOptions{})
	var served []uint64
	for i := range uint64(5) {
		req := &LeaseRequest{Queues: []string{"other", "q"}[i%2:], Count: 1, Block: time.Duration(i) * time.Minute}
		w.Do(&Task{Client: NewClient(100+i, func() {}), Call: callFunc(func(tx *Tx) error {
			ds, err := tx.Lease(req)
			if len(ds) > 0 {
				served = append(served, 100+i)
			}
			return err
		})})
	}
	listed := func(queue string, count int) (ids []uint64) {
		w.must(func(tx *Tx) error {
			ids = nil
			_, list, err := tx.Consumers(queue, 0, count)
			for _, x := range list {
				holds := slices.Contains(served, x.Client)
				if holds != (x.Queues == 0) || holds != (x.Leases == 1) || holds != !x.LeasedAt.IsZero() {
					t.Errorf("%d waits for %d queues and holds %d leases since %v, served %v", x.Client, x.Queues, x.Leases, x.LeasedAt, holds)
				}
				if block := time.Duration(x.Client-100) * time.Minute; !holds && block == 0 && !x.Until.IsZero() || holds && !x.Until.IsZero() || !holds && block > 0 && !x.Until.Equal(w.Now().Add(block)) {
					t.Errorf("%d waits until %v", x.Client, x.Until)
				}
				ids = append(ids, x.Client)
			}
			return err
		})
		return ids
	}
	if got := listed("q", 10); !slices.Equal(got, []uint64{100, 101, 102, 103, 104}) {
		t.Errorf("%v wait for q", got)
	}
	if got := listed("other", 10); !slices.Equal(got, []uint64{100, 102, 104}) {
		t.Errorf("%v wait for other", got)
	}
	if got := listed("q", 2); !slices.Equal(got, []uint64{100, 101}) {
		t.Errorf("the first two are %v", got)
	}
	w.enqueue("q", "k", "m")
	w.enqueue("q", "k", "m")
	if got := listed("q", 10); !slices.Equal(served, []uint64{100, 101}) || !slices.Equal(got, []uint64{100, 101, 102, 103, 104}) {
		t.Errorf("%v were served, %v wait or hold leases", served, got)
	}
	if err := w.do(func(tx *Tx) error { _, _, err := tx.Consumers("none", 0, 1); return err }); !errors.Is(err, ErrNoQueue) {
		t.Error(err)
	}
}

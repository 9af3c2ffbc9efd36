package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/histogram"
)

// world is queues that come and go while they are being listed.
type world struct {
	rng     *rand.Rand
	now     time.Time
	live    []*engine.QueueFigures // in the order of their creation
	deleted engine.QueueFigures
	total   uint64 // events of all queues that ever were
	names   int
}

// happen lets something happen.
func (w *world) happen() {
	w.now = w.now.Add(time.Millisecond)
	switch at := w.rng.IntN(max(len(w.live), 1)); {
	case len(w.live) == 0 || len(w.live) < w.names && w.rng.IntN(12) == 0:
		w.create()
	case w.rng.IntN(12) == 0:
		q := w.live[at]
		w.live = append(w.live[:at:at], w.live[at+1:]...)
		w.deleted.Counts.Add(engine.Counts{Events: engine.Events{Flow: q.Flow, DeadBy: q.DeadBy}})
		w.deleted.Durations.Add(&q.Durations)
	default:
		q := w.live[at]
		n := w.rng.Uint64N(10)
		q.Enqueued += n
		q.DeadBy[1] += n
		w.total += n
		if q.Durations.Wait == nil && n > 0 {
			q.Durations.Wait = new(histogram.Histogram)
		}
		for range n {
			q.Durations.Wait.Observe(time.Duration(w.rng.Int64N(int64(time.Minute))))
		}
	}
}

// create creates a queue under a name that is free.
func (w *world) create() {
	name := fmt.Sprintf("queue-%d", w.rng.IntN(w.names))
	for _, q := range w.live {
		if q.Name == name {
			return
		}
	}
	w.live = append(w.live, &engine.QueueFigures{Name: name, CreatedAt: w.now})
}

// list lists the queues that there were at its beginning and still are, as the engine does, with
// what happens meanwhile. One may be missed, as one that is purged.
func (w *world) list(sum func(string) bool, meanwhile int) engine.FiguresPage {
	p := engine.FiguresPage{Deleted: copyOf(&w.deleted)}
	for _, next := range slices.Clone(w.live) {
		for range w.rng.IntN(meanwhile + 1) {
			w.happen()
		}
		if !slices.Contains(w.live, next) || meanwhile > 0 && w.rng.IntN(20) == 0 {
			continue
		}
		f := copyOf(next)
		if sum(next.Name) {
			p.Sum.Counts.Add(f.Counts)
			p.Sum.Durations.Add(&f.Durations)
			p.Summed++
		} else {
			p.Queues = append(p.Queues, &f)
		}
	}
	p.Now = w.now
	return p
}

func copyOf(q *engine.QueueFigures) engine.QueueFigures {
	f := *q
	f.Durations = engine.Durations{}
	f.Durations.Add(&q.Durations)
	return f
}

// take is what a reading does with a page. It returns the counters by series.
func (s *queues) take(p *engine.FiguresPage, live []*engine.QueueFigures) map[string]tally {
	s.round++
	shown := map[string]tally{}
	for _, f := range p.Queues {
		shown[f.Name] = s.see(f).shown()
	}
	for _, name := range s.missing() {
		created := time.Time{}
		for _, q := range live {
			if q.Name == name {
				created = q.CreatedAt
			}
		}
		s.miss(name, created)
	}
	shown[""] = s.others(p)
	s.read = p.Now
	return shown
}

// counts are what a tally counts of one event, three times.
func counts(t *tally) [3]uint64 {
	n := [3]uint64{t.Enqueued, t.DeadBy[1], 0}
	if h := t.durations[0]; h != nil {
		n[2] = h.Count()
	}
	return n
}

func TestNoCounterGoesBackAndNoneCountsTwiceWhileQueuesComeAndGo(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible on purpose
		w := &world{rng: rng, now: time.Unix(1e9, 0), names: 3 + rng.IntN(10)}
		s := &queues{most: rng.IntN(6), named: map[string]*namedQueue{}}
		var before map[string]tally
		for range 60 {
			for range rng.IntN(10) {
				w.happen()
			}
			still := rng.IntN(3) == 0
			meanwhile := 3
			if still {
				meanwhile = 0
			}
			page := w.list(s.choice(), meanwhile)
			shown := s.take(&page, w.live)
			if len(s.named) > s.most {
				t.Fatalf("seed %d: %d names, at most %d", seed, len(s.named), s.most)
			}
			for name, now := range shown {
				then, known := before[name]
				if !known {
					continue
				}
				a, b := counts(&then), counts(&now)
				for i := range a {
					if b[i] < a[i] {
						t.Fatalf("seed %d: counter %d of %q goes from %d to %d", seed, i, name, a[i], b[i])
					}
				}
				if then.durations[0] != nil && now.durations[0].Sum() < then.durations[0].Sum() {
					t.Fatalf("seed %d: the sum of %q goes back", seed, name)
				}
			}
			before = shown
			if !still {
				continue
			}
			// At rest, every event is shown once: by a queue, by the others, or by one that is gone.
			sum := s.departed.plus(&s.rest)
			for _, q := range s.named {
				own := q.last.minus(&q.offset)
				sum = sum.plus(&own)
			}
			if got := counts(&sum); got != [3]uint64{w.total, w.total, w.total} {
				t.Fatalf("seed %d: %v events are shown, %d happened", seed, got, w.total)
			}
		}
	}
}

func TestAQueueKeepsItsNameUntilItIsDeleted(t *testing.T) {
	s := &queues{most: 2, named: map[string]*namedQueue{}}
	w := &world{rng: rand.New(rand.NewPCG(1, 1)), now: time.Unix(1e9, 0), names: 5} //nolint:gosec // reproducible on purpose
	for i := range 4 {
		w.now = w.now.Add(time.Second)
		w.live = append(w.live, &engine.QueueFigures{Name: fmt.Sprintf("queue-%d", i), CreatedAt: w.now})
		w.live[i].Enqueued = 10
	}
	enqueued := func() map[string]uint64 {
		page := w.list(s.choice(), 0)
		all := map[string]uint64{}
		for name, t := range s.take(&page, w.live) {
			all[name] = t.Enqueued
		}
		return all
	}
	want := func(want map[string]uint64) {
		t.Helper()
		if got := enqueued(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	want(map[string]uint64{"queue-0": 10, "queue-1": 10, "": 20})
	w.live[3].Enqueued++
	want(map[string]uint64{"queue-0": 10, "queue-1": 10, "": 21})
	w.deleted.Enqueued += w.live[0].Enqueued
	w.live = w.live[1:]
	want(map[string]uint64{"queue-1": 10, "": 21}) // the name is free from now on
	w.live[1].Enqueued += 5
	want(map[string]uint64{"queue-1": 10, "queue-2": 0, "": 26}) // it counts from now on
	w.live[1].Enqueued++
	want(map[string]uint64{"queue-1": 10, "queue-2": 1, "": 26})
	// One that is made again at once goes on.
	w.deleted.Enqueued += w.live[0].Enqueued
	w.now = w.now.Add(time.Second)
	w.live[0] = &engine.QueueFigures{Name: "queue-1", CreatedAt: w.now}
	w.live[0].Enqueued = 3
	want(map[string]uint64{"queue-1": 13, "queue-2": 1, "": 26})
}

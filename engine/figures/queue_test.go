package figures

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Every counter is in the list, once: what is added, is added of all.
func TestEachCounterIsAddedAndGrows(t *testing.T) {
	var a, b Events
	for i, n := range a.each() {
		*n = uint64(i + 1)
		*b.each()[i] = 100
	}
	seen := map[uint64]bool{}
	for _, n := range a.each() {
		seen[*n] = true
	}
	if len(seen) != int(eventKinds) {
		t.Fatalf("%d of %d counters are different", len(seen), eventKinds)
	}
	sum := a
	sum.Add(&b)
	var rest Events
	rest.Grow(&sum, &b)
	if rest != a {
		t.Errorf("%+v, want %+v", rest, a)
	}
	if rest.Grow(&a, &b); rest != a {
		t.Errorf("%+v went back from %+v", rest, a)
	}
}

func TestEachEventHasItsName(t *testing.T) {
	var a All
	q := new(Queue)
	a.Enter(q, "")
	for e := range eventKinds {
		q.Count(e, uint64(e)+1)
	}
	want := Events{
		Flow: Flow{Enqueued: 1, Delivered: 2, Acked: 3, Nacked: 4, Expired: 5}, DeadLettered: 6, Dropped: 7, Released: 8, Redriven: 9, Cancelled: 10,
		Purged: 11, Deduplicated: 12, TTLExpired: 13, Undelivered: 14, Results: 15, Rounds: 16, Replaced: 17, DeadBy: [DeadReasons]uint64{18, 19, 20, 21},
	}
	if got := q.Counts(0).Events; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := a.Counts(0).Events; got != want {
		t.Errorf("all: %+v, want %+v", got, want)
	}
}

// world is queues, and what the figures say of them counted a second way.
type world struct {
	All
	rng     *rand.Rand
	queues  map[string]*Queue
	deleted []*Queue // with waits that are not answered
	happens uint64   // events
}

// happen lets something happen to a queue.
func (w *world) happen(q *Queue) {
	n := Messages{Total: w.rng.Int64N(3), Delayed: w.rng.Int64N(2), Leased: w.rng.Int64N(2)}
	q.Change(Messages{Total: n.Total + n.Delayed + n.Leased, Delayed: n.Delayed, Leased: n.Leased})
	if e := Event(w.rng.IntN(int(eventKinds))); e == Delivered { //nolint:gosec // few
		q.Delivered(time.Second)
	} else {
		q.Count(e, 1)
	}
	w.happens++
	switch w.rng.IntN(8) {
	case 1:
		q.SetDead(!q.Dead)
	case 2:
		q.Wait(1)
	case 3:
		q.AwaitResults(1)
	case 4:
		q.SetCounted()
	case 5:
		q.Detach(nil)
	}
}

func (w *world) step(names int) {
	name := fmt.Sprint(w.rng.IntN(names))
	switch q := w.queues[name]; {
	case q == nil:
		q = new(Queue)
		w.Enter(q, "")
		w.queues[name] = q
	case w.rng.IntN(20) == 0:
		q.Detach(nil)
		w.Leave(q)
		w.deleted = append(w.deleted, q)
		delete(w.queues, name)
	case w.rng.IntN(100) == 0:
		w.recover()
	default:
		w.happen(q)
	}
}

// recover forgets all queues, and finds most of them again, without messages. The first time, it fails in
// the middle.
func (w *world) recover() {
	for range 2 {
		w.Reset(maps.All(w.queues))
		for name := range w.queues {
			w.queues[name] = new(Queue)
			w.Enter(w.queues[name], "")
		}
	}
	delete(w.queues, slices.Sorted(maps.Keys(w.queues))[0]) // the failed batch has created it
	w.Reset(maps.All(w.queues))
	for name := range w.queues {
		w.queues[name] = new(Queue)
		w.Enter(w.queues[name], "")
		w.Recover(name, w.queues[name])
	}
	w.Recovered()
	w.deleted = nil
}

func TestTheSumsAreThoseOfAllQueues(t *testing.T) {
	for seed := range uint64(100) {
		w := &world{rng: rand.New(rand.NewPCG(seed, 12)), queues: map[string]*Queue{}} //nolint:gosec // reproducible on purpose
		for range 300 {
			w.step(6)
			if err := w.Check(slices.Collect(maps.Values(w.queues)), w.deleted); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		events, durations := w.Deleted()
		sum := Counts{Events: events}
		waits := durations.Wait
		d := Durations{Wait: waits}
		for _, q := range w.queues {
			sum.Add(q.Counts(3))
			d.Add(q.Durations())
		}
		all := w.Counts(3 * len(w.queues))
		sum.Waiters, sum.ResultWaits = all.Waiters, all.ResultWaits // of deleted queues, too
		if all != sum {
			t.Errorf("seed %d: all have %+v, the queues %+v", seed, all, sum)
		}
		counted := uint64(0)
		for _, n := range all.Events.each() {
			counted += *n
		}
		if counted != w.happens || d.Wait != nil && d.Wait.Count() != all.Delivered {
			t.Errorf("seed %d: %d events are counted, %d have happened, %d were deliveries", seed, counted, w.happens, all.Delivered)
		}
	}
}

// A sum that does not hold is found.
func TestTheCheckFindsAWrongSum(t *testing.T) {
	for name, wrong := range map[string]func(a *All, q *Queue){
		"an event":        func(_ *All, q *Queue) { q.events[Acked]++ },
		"a message":       func(_ *All, q *Queue) { q.Total++ },
		"a waiter":        func(a *All, _ *Queue) { a.waiters++ },
		"a wait":          func(_ *All, q *Queue) { q.ResultWaits++ },
		"dead messages":   func(_ *All, q *Queue) { q.Dead = true },
		"a queue counted": func(_ *All, q *Queue) { q.Counted = true },
		"a deleted queue": func(a *All, _ *Queue) { a.deleted.events[Enqueued]++ },
	} {
		var a All
		q := new(Queue)
		a.Enter(q, "")
		q.Change(Messages{Total: 1})
		queues := []*Queue{q}
		if err := a.Check(queues, nil); err != nil {
			t.Fatal(err)
		}
		if wrong(&a, q); a.Check(queues, nil) == nil {
			t.Errorf("%s: nothing is found", name)
		}
	}
}

func TestMessagesAreShownByStatus(t *testing.T) {
	n := Messages{Total: 10, Leased: 3, Delayed: 2, Retrying: 1}
	if got, want := n.byStatus(false), (ByStatus{Ready: 5, Delayed: 3, Leased: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := n.byStatus(true), (ByStatus{Dead: 5, Delayed: 3, Leased: 2}); got != want {
		t.Errorf("%+v of a dead-letter queue, want %+v", got, want)
	}
	if n.Total = 1; n.byStatus(false).Ready != 0 { // while it is being counted
		t.Errorf("%+v", n.byStatus(false))
	}
}

func TestAQueueIsUnusedUntilSomethingHappens(t *testing.T) {
	var a All
	q := new(Queue)
	if a.Enter(q, ""); q.Unused() {
		t.Error("a queue is unused whose messages are not counted")
	}
	if q.SetCounted(); !q.Unused() {
		t.Error("a new queue is used")
	}
	q.Change(Messages{Total: 1})
	q.Count(Enqueued, 1)
	if q.Unused() {
		t.Error("a queue with a message is unused")
	}
	if q.Change(Messages{Total: -1}); q.Unused() {
		t.Error("a queue that had a message is unused")
	}
}

func TestASharesMinuteSlides(t *testing.T) {
	w := newKeys()
	at := int64(1000) * minute
	w.Took(w.come("a"), "a", at, 3)
	w.Took(w.come("b"), "b", at, 1)
	if got := w.Share(w.live["a"], at); got != 0.75 {
		t.Errorf("a share of %v", got)
	}
	w.Took(w.live["b"], "b", at+minute, 4)
	if got := w.Share(w.live["a"], at+minute+minute/2); got != 1.5/6 {
		t.Errorf("a share of %v half a minute later", got)
	}
	if got := w.Share(w.live["a"], at+3*minute); got != 0 {
		t.Errorf("a share of %v when nothing was delivered", got)
	}
}

func TestTheDurationsOfALeaseAreThoseOfItsOutcome(t *testing.T) {
	q := new(Queue)
	new(All).Enter(q, "")
	q.Delivered(time.Second)
	for o := range Outcome(Outcomes) {
		q.Held(o, time.Duration(o+1)*time.Minute)
	}
	wait, work := q.Durations().Summaries()
	if wait.Count != 1 || wait.P50 < time.Second || work.Count != Outcomes || work.P99 < Outcomes*time.Minute {
		t.Errorf("waits %+v, leases %+v", wait, work)
	}
	for o := range Outcome(Outcomes) {
		if got := q.Durations().Work[o].Sum(); got != time.Duration(o+1)*time.Minute {
			t.Errorf("%v: %v", o, got)
		}
	}
}

package figures

import (
	"fmt"
	"iter"
	"time"

	"github.com/faisca/fila/engine/internal/timeline"
)

// Queue is what is counted of a queue. All.Enter makes it ready for use.
type Queue struct {
	Messages
	Waiters     int64 // consumers that wait, changed by Wait
	ResultWaits int64 // requests for results that wait, changed by AwaitResults
	Counted     bool  // the numbers of messages are exact
	Dead        bool  // its messages are dead ones, set by SetDead

	name string
	all  *All
	totals
	share    minuteSum // cost delivered
	idle     idleStats // of keys without messages
	busiest  busiestKeys
	swept    *KeyFigures // of its keys, from the last sweep; nil: none, or it had no keys
	recorded uint32      // step in which history has recorded it last
	written  uint32      // the last step that a record of its history has
}

// totals count since the start of the broker, but for the history. They outlive recoveries in place, and those of a
// deleted queue are kept.
type totals struct {
	events    counters
	durations Durations
	lines     timeline.Lines[values]
	before    Flow // what lines has from before the start
	followed  followedKeys
}

// add adds the totals of a queue that is gone.
func (t *totals) add(o *totals) {
	t.events.add(&o.events)
	t.durations.Add(&o.durations)
}

// sums are those of all queues, kept beside them, so that what operators ask for again and again
// takes the same time however many queues there are. Whatever changes a queue changes its sum.
type sums struct {
	events   counters    // of deleted queues, too
	messages [2]Messages // of dead-letter queues in the second
	// waiters and resultWaits are those of deleted queues, too, until they are answered.
	waiters, resultWaits int64
	uncounted            int64 // queues of which Counted is false
}

// All is what is counted of all queues together.
type All struct {
	sums
	deleted totals            // of all queues that were deleted
	follows followTable       // the followed keys of all queues
	before  map[string]totals // of the queues before a recovery, by name; nil: none is under way
}

// Reset forgets the queues for a recovery, but not what counts since the start of the broker: Recover
// gives it to those that are found again.
func (a *All) Reset(queues iter.Seq2[string, *Queue]) {
	if a.before == nil { // else the last recovery has failed
		a.before = map[string]totals{}
		for name, q := range queues {
			a.before[name] = q.totals
			q.followed.detach()
		}
	}
	a.sums = sums{events: a.events}
}

// Recover takes over the totals of a queue that was there before the recovery.
func (a *All) Recover(name string, q *Queue) {
	if t, ok := a.before[name]; ok {
		q.totals = t
		delete(a.before, name)
		q.followed.moveTo(q)
	}
}

// Recovered ends a recovery. Queues that the failed batch has created are gone.
func (a *All) Recovered() {
	for _, t := range a.before {
		a.deleted.add(&t)
		a.follows.dropAll(&t.followed)
	}
	a.before = nil
}

// Enter adds a queue without messages, which are not counted yet.
func (a *All) Enter(q *Queue, name string) {
	q.all, q.name = a, name
	a.uncounted++
}

// Leave keeps the totals of a queue that is deleted.
func (a *All) Leave(q *Queue) {
	a.deleted.add(&q.totals)
	a.follows.dropAll(&q.followed)
}

// Counts returns those of all queues, deleted ones included. keys is the number of fairness keys.
func (a *All) Counts(keys int) Counts {
	n := Counts{ByStatus: a.messages[0].byStatus(false), Keys: int64(keys), Waiters: a.waiters, ResultWaits: a.resultWaits, Events: a.events.events(), Counting: a.uncounted > 0}
	n.add(a.messages[1].byStatus(true))
	return n
}

// Deleted returns the events of all queues that were deleted, and their durations.
func (a *All) Deleted() (Events, *Durations) { return a.deleted.events.events(), &a.deleted.durations }

// Counts returns the counts of a queue, which has a number of fairness keys.
func (q *Queue) Counts(keys int) Counts {
	return Counts{ByStatus: q.byStatus(q.Dead), Keys: int64(keys), Waiters: q.Waiters, ResultWaits: q.ResultWaits, Events: q.events.events(), Counting: !q.Counted}
}

// Durations returns those of the queue. They are shared, and change.
func (q *Queue) Durations() *Durations { return &q.durations }

// Unused reports whether the queue has no message, and nothing has ever happened in it.
func (q *Queue) Unused() bool { return q.Counted && q.Total == 0 && q.events == counters{} }

// in returns the sum that the messages of a queue are in.
func (q *Queue) in() *Messages {
	if q.Dead {
		return &q.all.messages[1]
	}
	return &q.all.messages[0]
}

// Change changes the numbers of messages.
func (q *Queue) Change(by Messages) {
	q.Messages.add(by)
	q.in().add(by)
}

// SetCounted records that the numbers of messages are exact.
func (q *Queue) SetCounted() {
	if !q.Counted {
		q.Counted = true
		q.all.uncounted--
	}
}

// SetDead says whether the messages are dead ones.
func (q *Queue) SetDead(dead bool) {
	q.in().subtract(q.Messages)
	q.Dead = dead
	q.in().add(q.Messages)
}

// Detach forgets the messages of the queue and its keys that have some, since a purge detaches them.
// Keep keeps the statistics of these keys later. look says what followed keys hold.
func (q *Queue) Detach(look func(f *Followed) KeyHolds) {
	q.followed.gone(look)
	q.in().subtract(q.Messages)
	q.Messages, q.swept = Messages{}, nil
	q.SetCounted()
	q.dropBusiest()
}

// Wait changes the number of consumers that wait.
func (q *Queue) Wait(by int64) {
	q.Waiters += by
	q.all.waiters += by
}

// AwaitResults changes the number of requests that wait for results.
func (q *Queue) AwaitResults(by int64) {
	q.ResultWaits += by
	q.all.resultWaits += by
}

// Count counts events.
func (q *Queue) Count(what Event, n uint64) {
	q.events[what] += n
	q.all.events[what] += n
}

// Delivered counts a delivery of a message that has been ready for some time.
func (q *Queue) Delivered(waited time.Duration) {
	observe(&q.durations.Wait, waited)
	q.Count(Delivered, 1)
}

// Held counts how long a message was leased, whose lease ends.
func (q *Queue) Held(o Outcome, held time.Duration) { observe(&q.durations.Work[o], held) }

// Check counts again: the sums are those of the queues and of deleted ones (33), and followed keys are in their places (43). Waits of
// deleted queues may not be answered yet.
func (a *All) Check(queues, deleted []*Queue) error {
	if err := a.follows.check(queues); err != nil {
		return err
	}
	want := sums{events: a.deleted.events}
	for _, q := range queues {
		want.events.add(&q.events)
		want.waiters += q.Waiters
		want.resultWaits += q.ResultWaits
		if !q.Counted {
			want.uncounted++
		}
		if q.Dead {
			want.messages[1].add(q.Messages)
		} else {
			want.messages[0].add(q.Messages)
		}
	}
	for _, q := range deleted {
		want.waiters += q.Waiters
		want.resultWaits += q.ResultWaits
	}
	if want != a.sums {
		return fmt.Errorf("all queues have %+v, the sums say %+v", want, a.sums)
	}
	return nil
}

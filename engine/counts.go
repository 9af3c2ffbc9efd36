package engine

import (
	"time"

	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/timeline"
)

// Counters and gauges of queues. Those of all queues together are kept beside them (sums), so
// that what operators ask for again and again takes the same time however many queues there
// are. Whatever changes one goes through a function of this file that changes both.

// countKind is a kind of event that totals count.
type countKind uint8

const (
	countEnqueued countKind = iota
	countDeduplicated
	countTTLExpired
	countDelivered
	countUndelivered
	countAcked
	countNacked
	countLeaseExpired
	countReleased
	countRedriven
	countDropped
	countCancelled
	countPurged
	countResults // stored
	countDead    // the first of those by DeadReasons, in their order
	countKinds   = countDead + countKind(deadReasons)
)

// totals count since start, for FILA.STATS. They outlive recoveries in place, and those of a
// deleted queue are kept in queueSet.deletedTotals.
type totals struct {
	events    [countKinds]uint64
	rounds    uint64 // before the last purge
	durations Durations
	line      *timeline.Line // of the last ten minutes; nil: nothing has happened
}

// count adds events to the totals of a queue.
func (c *core) count(q *queue, what countKind, n uint64) {
	q.totals.events[what] += n
	c.queues.sums.events[what] += n
}

// messageCounts are numbers of messages. Those of a queue of which counted is false are
// differences to what the store held at the start, but for leased.
type messageCounts struct {
	total    int64 // of any status
	leased   int64 // and retrying
	delayed  int64
	retrying int64
}

func (n *messageCounts) add(o messageCounts) {
	n.total += o.total
	n.leased += o.leased
	n.delayed += o.delayed
	n.retrying += o.retrying
}

func (n *messageCounts) subtract(o messageCounts) {
	n.total -= o.total
	n.leased -= o.leased
	n.delayed -= o.delayed
	n.retrying -= o.retrying
}

// addTo adds these messages to counts, those that are neither delayed nor leased as dead or as
// ready ones.
func (n *messageCounts) addTo(to *Counts, dead bool) {
	to.Delayed += n.delayed + n.retrying
	to.Leased += n.leased - n.retrying
	if remainder := max(n.total-n.delayed-n.leased, 0); dead {
		to.Dead += remainder
	} else {
		to.Ready += remainder
	}
}

// sums are those of all queues. Events and rounds include deleted queues, like queueSet.totals.
type sums struct {
	events   [countKinds]uint64
	rounds   uint64
	messages [2]messageCounts // of dead-letter queues in the second
	// waiters are places in the lines of queues, those of deleted queues included until they
	// are answered.
	waiters   int64
	uncounted int64 // queues of which counted is false
	awaited   int64 // requests that wait for results, those of deleted queues likewise
}

// reset keeps what counts since the start of the broker.
func (s *sums) reset() { *s = sums{events: s.events, rounds: s.rounds} }

// of returns the sum that a queue is in, by whether it is a dead-letter queue.
func (s *sums) of(dead bool) *messageCounts {
	if dead {
		return &s.messages[1]
	}
	return &s.messages[0]
}

// addMessages changes the numbers of messages of a queue.
func (c *core) addMessages(q *queue, n messageCounts) {
	q.messageCounts.add(n)
	c.queues.sums.of(q.isDLQ()).add(n)
}

// clearMessages sets the numbers of a queue to 0, which is exact from now on.
func (c *core) clearMessages(q *queue) {
	c.queues.sums.of(q.isDLQ()).subtract(q.messageCounts)
	q.messageCounts = messageCounts{}
	c.setCounted(q)
}

// setCounted records that the numbers of a queue are exact.
func (c *core) setCounted(q *queue) {
	if !q.counted {
		q.counted = true
		c.queues.sums.uncounted--
	}
}

// moveMessages takes the messages of a queue from one sum to the other, before the queue becomes
// a dead-letter queue or ceases to be one.
func (s *sums) moveMessages(q *queue) {
	s.of(q.isDLQ()).subtract(q.messageCounts)
	s.of(!q.isDLQ()).add(q.messageCounts)
}

// counts returns those of all queues, deleted ones included, in constant time.
func (c *core) counts() Counts {
	s := &c.queues.sums
	t := totals{events: s.events, rounds: s.rounds}
	n := t.counts()
	for dead, messages := range s.messages {
		messages.addTo(&n, dead == 1)
	}
	n.Keys, n.Waiters, n.ResultWaits, n.Counting = int64(c.heads.keys), s.waiters, s.awaited, s.uncounted > 0
	return n
}

// check counts again.
func (s *sums) check(c *core, bad report) {
	want := c.queues.deletedTotals.counts()
	waiters, uncounted, awaited := int64(0), int64(0), int64(0)
	var messages [2]messageCounts
	for _, q := range c.queues.byName {
		want.Add(q.counts())
		waiters += int64(q.waiters.Len())
		awaited += q.awaited
		if !q.counted {
			uncounted++
		}
		if q.isDLQ() {
			messages[1].add(q.messageCounts)
		} else {
			messages[0].add(q.messageCounts)
		}
	}
	for _, q := range c.queues.deleted {
		waiters += int64(q.waiters.Len())
		awaited += q.awaited
	}
	if messages != s.messages || waiters != s.waiters || uncounted != s.uncounted {
		bad(33, "all queues have %+v messages, %d waiters and %d are not counted; the sums say %+v, %d and %d",
			messages, waiters, uncounted, s.messages, s.waiters, s.uncounted)
	}
	got := c.counts()
	want.Waiters, want.ResultWaits = waiters, awaited
	if uncounted > 0 { // a difference may be negative, which a queue alone does not show
		want.Ready, want.Dead = got.Ready, got.Dead
	}
	if got != want {
		bad(33, "all queues have %+v, the sums say %+v", want, got)
	}
}

// record sets the line from a step on.
func (t *totals) record(from uint32, n timeline.Numbers) {
	if t.line == nil {
		if n == (timeline.Numbers{}) {
			return
		}
		t.line = &timeline.Line{}
	}
	t.line.Set(from, n)
}

// sum returns the totals with the rounds since the last purge.
func (q *queue) sum() totals {
	t := q.totals
	t.rounds += uint64(q.order.Rounds())
	return t
}

// add adds the totals of a queue that is gone.
func (t *totals) add(o *totals) {
	for i, n := range o.events {
		t.events[i] += n
	}
	t.rounds += o.rounds
	t.durations.Add(&o.durations)
}

// Counts are the messages of a queue, or of all queues, and what has happened to them.
type Counts struct {
	Ready, Delayed, Leased, Dead int64 // messages by status
	Keys, Waiters, ResultWaits   int64 // fairness keys with messages, consumers that wait, requests for results that wait

	// Events since the start of the broker, none of which ever decreases. Expired counts leases,
	// TTLExpired messages. Undelivered are those of Delivered whose reply never reached the
	// client, and which were taken back.
	Enqueued, Delivered, Acked, Nacked, Expired, DeadLettered, Dropped, Released, Redriven uint64
	Cancelled, Purged, Deduplicated, TTLExpired, Undelivered, Results                      uint64 // Results: those stored

	DeadBy [deadReasons]uint64 // the parts of DeadLettered, by DeadReasons
	Rounds uint64              // of deficit round robin, see package dispatch

	// Counting reports that the messages in the store are still being counted after a start.
	// Until then, Ready, Delayed and Dead are too low.
	Counting bool
}

// counts returns the counts of a queue in constant time. In a dead-letter queue, messages that
// are neither delayed nor leased are dead, not ready.
func (q *queue) counts() Counts {
	n := q.totals.counts()
	n.Rounds += uint64(q.order.Rounds())
	n.Keys, n.Waiters, n.ResultWaits, n.Counting = int64(q.keys.n), int64(q.waiters.Len()), q.awaited, !q.counted
	q.addTo(&n, q.isDLQ())
	return n
}

// counts returns the events.
func (t *totals) counts() Counts {
	e := &t.events
	n := Counts{
		Enqueued: e[countEnqueued], Delivered: e[countDelivered], Acked: e[countAcked], Nacked: e[countNacked], Expired: e[countLeaseExpired],
		Dropped: e[countDropped], Released: e[countReleased], Redriven: e[countRedriven], Cancelled: e[countCancelled], Purged: e[countPurged],
		Deduplicated: e[countDeduplicated], TTLExpired: e[countTTLExpired], Undelivered: e[countUndelivered], Results: e[countResults], Rounds: t.rounds,
	}
	for i, died := range e[countDead:] {
		n.DeadBy[i] = died
		n.DeadLettered += died
	}
	return n
}

// numbersOf returns what history records.
func numbersOf(n Counts) timeline.Numbers {
	return timeline.Numbers{
		Enqueued: n.Enqueued, Delivered: n.Delivered, Acked: n.Acked, Nacked: n.Nacked, Expired: n.Expired,
		Ready: n.Ready, Delayed: n.Delayed, Leased: n.Leased, Dead: n.Dead,
	}
}

// Add adds the counts of another queue.
func (n *Counts) Add(o Counts) {
	n.Ready += o.Ready
	n.Delayed += o.Delayed
	n.Leased += o.Leased
	n.Dead += o.Dead
	n.Keys += o.Keys
	n.Waiters += o.Waiters
	n.ResultWaits += o.ResultWaits
	n.Enqueued += o.Enqueued
	n.Delivered += o.Delivered
	n.Acked += o.Acked
	n.Nacked += o.Nacked
	n.Expired += o.Expired
	n.DeadLettered += o.DeadLettered
	n.Dropped += o.Dropped
	n.Released += o.Released
	n.Redriven += o.Redriven
	n.Cancelled += o.Cancelled
	n.Purged += o.Purged
	n.Deduplicated += o.Deduplicated
	n.TTLExpired += o.TTLExpired
	n.Undelivered += o.Undelivered
	n.Results += o.Results
	for i, died := range o.DeadBy {
		n.DeadBy[i] += died
	}
	n.Rounds += o.Rounds
	n.Counting = n.Counting || o.Counting
}

// Outcome is how a lease has ended, where its consumer had the message until then.
type Outcome uint8

// The outcomes.
const (
	OutcomeAcked    Outcome = iota
	OutcomeNacked           // ended as failed by its consumer
	OutcomeExpired          // the visibility timeout has passed
	OutcomeReleased         // given back
	Outcomes        = 4     // the number of outcomes
)

// String returns the word for the outcome.
func (o Outcome) String() string {
	return [...]string{OutcomeAcked: "acked", OutcomeNacked: "nacked", OutcomeExpired: "expired", OutcomeReleased: "released"}[o]
}

// Durations are how long the messages of a queue waited and how long they were leased, since the
// start of the broker. A histogram is nil while it has no duration.
type Durations struct {
	Wait *histogram.Histogram           // from being ready until the delivery
	Work [Outcomes]*histogram.Histogram // from the delivery until the end of the lease
}

// observe adds a duration to a histogram that is made when it is needed.
func observe(h **histogram.Histogram, d time.Duration) {
	if *h == nil {
		*h = new(histogram.Histogram)
	}
	(*h).Observe(d)
}

// observeWait counts how long a message was ready.
func (d *Durations) observeWait(waited time.Duration) { observe(&d.Wait, waited) }

// observeWork counts the lease of a message, which ends.
func (c *core) observeWork(m *message, o Outcome) {
	q, held := m.key.queue, time.Duration(max(c.now-m.since, 0))
	observe(&q.totals.durations.Work[o], held)
	if q.recordsSignals() {
		c.recordWork(m, o, held)
	}
}

// recordWork adds the end of a lease to the signals.
func (c *core) recordWork(m *message, o Outcome, held time.Duration) {
	switch o {
	case OutcomeAcked:
		c.recordSignal(m, signalAcked, 1)
	case OutcomeNacked, OutcomeExpired:
		c.recordSignal(m, signalFailed, 1)
	case OutcomeReleased:
		return
	}
	c.recordSignal(m, signalWork, float64(held)/float64(time.Millisecond))
}

// recordUsed adds what an ack or a nack settles to the signals: what it says, or the charge that
// budgets have reserved. used is nil where it says nothing.
func (c *core) recordUsed(m *message, used *int64) {
	if !m.key.queue.recordsSignals() {
		return
	}
	n := int64(0)
	switch {
	case used != nil:
		n = *used
	case m.reserved != 0:
		_, n = m.budgets()
	}
	if n > 0 {
		c.recordSignal(m, signalUsed, float64(n))
	}
}

// Add adds the durations of another queue.
func (d *Durations) Add(o *Durations) {
	add := func(to **histogram.Histogram, from *histogram.Histogram) {
		if from == nil {
			return
		}
		if *to == nil {
			*to = new(histogram.Histogram)
		}
		(*to).Add(from)
	}
	add(&d.Wait, o.Wait)
	for i := range o.Work {
		add(&d.Work[i], o.Work[i])
	}
}

// Quantile summarizes a histogram.
type Quantile struct {
	Count    uint64
	P50, P99 time.Duration // what half, and 99 %, of the durations do not exceed
}

func summary(h *histogram.Histogram) Quantile {
	if h == nil {
		return Quantile{}
	}
	return Quantile{Count: h.Count(), P50: h.Quantile(0.5), P99: h.Quantile(0.99)}
}

// summaries returns those of the waiting times, and of the leases of all outcomes together.
func (d *Durations) summaries() (wait, work Quantile) {
	var all histogram.Histogram
	for _, h := range d.Work {
		if h != nil {
			all.Add(h)
		}
	}
	return summary(d.Wait), summary(&all)
}

// Stats describe the engine as a whole. The counters count since the start of the broker, those
// of deleted queues included.
type Stats struct {
	Counts
	Queues     int64
	Crons      int64 // recurring messages
	DeadCrons  int64 // those without a next tick, as their time zone is gone
	Budgets    int64
	Held       int64     // fairness keys that have come up and that a budget did not cover
	Blocked    int64     // clients with a parked task
	Writable   bool      // the store takes writes
	Recoveries uint64    // in place, after failed commits
	Turns      uint64    // turns of the loop
	Tasks      uint64    // tasks applied
	Commits    uint64    // batches committed
	InMemory   int64     // messages in head caches
	BodyBytes  int64     // payloads and headers in memory outside the store
	Now        time.Time // of the turn
	Backup     BackupStatus
	// Ticks of recurring messages that enqueued a message, and that did not.
	Ticked, Missed uint64
	Topics         TopicStats
	// Backups that have ended well, and that have not.
	BackedUp, FailedToBackUp uint64
	Signals                  int64  // pairs of subject and name
	SignalsEvicted           uint64 // those that made room for others
	Memory                   Memory // of the process
	InUse                    int64  // bytes that keys, messages and bodies take, at least
	// By how much the system clock is behind the time of the broker; 0: at most a second.
	ClockBehind time.Duration
}

// Stats describes the engine, in constant time.
func (tx *Tx) Stats() Stats {
	c := tx.core
	n := &c.health.counters
	return Stats{
		Counts: c.counts(), Queues: int64(len(c.queues.byName)), Crons: int64(len(c.cron.entries)), DeadCrons: int64(c.cron.dead), Budgets: int64(c.accounts.Len()), Held: c.order.Held(), Blocked: int64(len(c.waits.parked)), Writable: c.storeTakesNew() == nil,
		Recoveries: n.recoveries, Turns: n.turns, Tasks: n.tasks, Commits: c.out.committed, InMemory: int64(c.heads.messages), BodyBytes: c.heads.bodyBytes,
		Now: tx.Now(), Backup: tx.Backups(), Ticked: n.ticked, Missed: n.missed, Topics: c.topics.stats(), BackedUp: n.backedUp, FailedToBackUp: n.failedToBackUp,
		Signals: int64(c.signals.pairs.Len()), SignalsEvicted: c.signals.evicted,
		ClockBehind: time.Duration(c.time.behind), Memory: c.health.memory, InUse: c.held(),
	}
}

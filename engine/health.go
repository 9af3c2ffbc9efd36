package engine

import (
	"fmt"
	"time"

	"github.com/faisca/fila/internal/histogram"
	"github.com/faisca/fila/internal/timeline"
)

// health is the engine's view of the store, and the counters of the loop. The states:
//
//	healthy    all commands are executed
//	full       the disk is full but for the reserve: commands that store something new are
//	           refused; those that free space, and leases, continue
//	read-only  a commit failed: all writes are refused with ErrMisconf, reads continue
//
//	healthy → full         recovery or the store finds that the disk is full (refreshFull)
//	full → healthy         relieve succeeds; it is tried every Config.RetryInterval
//	any → read-only        a commit fails: the memory is dropped and recovered (failOver)
//	read-only → healthy    reopen succeeds; it is tried every Config.RetryInterval
//
// A commit that neither fails nor returns is stalled; see stallAfter.
type health struct {
	failed     error // why the store is read-only; nil: it takes writes
	full       error // why the store takes only what frees space; nil: it takes all writes
	reclaiming bool  // Relieve is under way
	bootTime   int64 // time of the first turn in Unix nanoseconds
	counters   counters

	untimed
	unchecked
}

// counters count since the start of the process, for FILA.STATS.
type counters struct {
	turns, tasks, recoveries uint64
	ticked, missed           uint64 // ticks of recurring messages that enqueued a message, that did not
	backedUp, failedToBackUp uint64
}

// reset keeps the store's state: recovery does not repair it.
func (h *health) reset() { h.bootTime = 0 }

// writable returns ErrMisconf while the store is read-only. Every command that would change
// something calls it before its first change.
func (c *core) writable() error {
	if c.health.failed != nil {
		return fmt.Errorf("%w: %w; the store is read-only, writes resume when the disk recovers", ErrMisconf, c.health.failed)
	}
	return nil
}

// A store on a full disk still takes writes, into space that it has reserved, because to free
// space takes writes, too: an ack, a purge and the deletion of a queue are records. So
// commands that free space are executed, and those that they depend on (leases, releases,
// nacks); commands that store something new are refused.

// reliever is a store that can be full.
type reliever interface {
	// Full returns why only commits that free space are accepted, or nil.
	Full() error
	// Relieve frees space where it can, and makes the store accept all commits again if there
	// is enough. It may take long; until it returns, commits wait.
	Relieve() error
}

// prober is a store that can test whether Reopen may succeed.
type prober interface {
	// Probe returns why Reopen would fail, or nil if it may succeed. It changes nothing.
	Probe() error
}

// writableForNew is writable for commands that store something new: it also refuses them
// while the store is full.
func (c *core) writableForNew() error {
	if err := c.writable(); err != nil {
		return err
	}
	if c.health.full != nil {
		return fmt.Errorf("%w more: %w; until there is space only what frees some is done, as FILA.ACK, FILA.CANCEL, FILA.PURGE and FILA.QUEUE DELETE",
			ErrMisconf, c.health.full)
	}
	return nil
}

// Writable reports whether the store takes new messages.
func (tx *Tx) Writable() bool { return tx.core.writableForNew() == nil }

// refreshFull reads from the store whether it is full.
func (c *core) refreshFull() {
	c.health.full = nil
	if s, ok := c.store.(reliever); ok {
		c.health.full = s.Full()
	}
}

// relieve makes the store free space on a goroutine of its own, one call at a time.
func (e *Engine) relieve() {
	c := e.core
	s, ok := c.store.(reliever)
	if !ok || c.health.reclaiming {
		return
	}
	c.health.reclaiming = true
	e.background.Go(func() {
		err := s.Relieve()
		e.post(relieved{err})
	})
}

// relieved is the result of Relieve.
type relieved struct{ err error }

// Apply takes over whether the store is still full.
func (r relieved) Apply(tx *Tx) error {
	c := tx.core
	c.health.reclaiming = false
	before := c.health.full
	c.refreshFull()
	if before != nil && c.health.full == nil && c.health.failed == nil && r.err == nil {
		c.cfg.Log.Info().Msg("the disk has space again, the store takes all writes")
	}
	return nil
}

// A commit may stall: a frozen file system, a disk that does not respond. No reply that
// promises something may leave then. But operators need information just then, so commands
// that only read memory are answered without a commit once one has taken stallAfter. What
// they show may be ahead of the disk, as it is when a commit fails right after their reply.
//
// Read-only commands also pass the queues in which other commands are held up: Submit accepts
// them into a full inbox, and the loop takes them out of it while the open batch is full.

// stallAfter is the duration after which a commit counts as stalled.
const stallAfter = time.Second

// stalling returns how long the commit under way may still take before it counts as stalled,
// at most 0 if it does. Without a commit it returns an hour.
func (e *Engine) stalling(busy bool) time.Duration {
	if !busy {
		return time.Hour
	}
	return stallAfter - (e.Elapsed() - e.commitBegan)
}

// takeReadOnly takes the read-only tasks out of the inbox that do not follow another task of
// their client: the order within a client is kept. The caller holds the lock.
func (e *Engine) takeReadOnly(spare []*Task) []*Task {
	out, kept := spare, e.inbox[:0]
	before := map[*Client]bool{}
	for _, t := range e.inbox {
		if t.ReadOnly && !before[t.Client] {
			out = append(out, t)
			continue
		}
		before[t.Client] = true
		kept = append(kept, t)
	}
	clear(e.inbox[len(kept):])
	e.inbox = kept
	return out
}

// allReadOnly reports whether all tasks are read-only.
func allReadOnly(tasks []*Task) bool {
	for _, t := range tasks {
		if !t.ReadOnly {
			return false
		}
	}
	return true
}

// answerReadOnly makes early replies of the concluded read-only tasks, both of the open batch
// and of the one whose commit has stalled.
func (e *Engine) answerReadOnly(flight *work) {
	c := e.core
	c.out.released = c.splitReadOnly(c.out.released)
	e.mu.Lock()
	if e.busy && flight != nil {
		flight.tasks = c.splitReadOnly(flight.tasks)
	}
	e.mu.Unlock()
}

// splitReadOnly moves the read-only tasks to the early replies and returns the others.
func (c *core) splitReadOnly(tasks []*Task) []*Task {
	rest := tasks[:0]
	for _, t := range tasks {
		if t.ReadOnly {
			c.out.early = append(c.out.early, t)
		} else {
			rest = append(rest, t)
		}
	}
	clear(tasks[len(rest):])
	return rest
}

// Counts are the messages of a queue, or of all queues, and what has happened to them.
type Counts struct {
	Ready, Delayed, Leased, Dead int64 // messages by status
	Keys, Waiters                int64 // fairness keys with messages, consumers that wait

	// Events since the start of the broker, none of which ever decreases. Expired counts leases,
	// TTLExpired messages. Undelivered are those of Delivered whose reply never reached the
	// client, and which were taken back.
	Enqueued, Delivered, Acked, Nacked, Expired, DeadLettered, Dropped, Released, Redriven uint64
	Cancelled, Purged, Deduplicated, TTLExpired, Undelivered                               uint64

	DeadBy [deadReasons]uint64 // the parts of DeadLettered, by DeadReasons
	Rounds uint64              // of the scheduler

	// Counting reports that the messages in the store are still being counted after a start.
	// Until then, Ready, Delayed and Dead are too low.
	Counting bool
}

// counts returns the counts of a queue in constant time. In a dead-letter queue, messages that
// are neither delayed nor leased are dead, not ready.
func (q *queue) counts() Counts {
	n := q.totals.counts()
	n.Rounds += uint64(q.scheduler.round) //nolint:gosec // not negative
	n.Delayed, n.Leased, n.Keys, n.Waiters, n.Counting = q.delayed+q.order.retrying, q.leased-q.order.retrying, int64(q.keys.n), int64(q.waiters.n), !q.counted
	remainder := max(q.total-q.delayed-q.leased, 0)
	if q.isDLQ() {
		n.Dead = remainder
	} else {
		n.Ready = remainder
	}
	return n
}

// counts returns the events.
func (t *totals) counts() Counts {
	n := Counts{
		Enqueued: t.enqueued, Delivered: t.delivered, Acked: t.acked, Nacked: t.nacked, Expired: t.leaseExpired,
		Dropped: t.dropped, Released: t.released, Redriven: t.redriven, Cancelled: t.cancelled, Purged: t.purged,
		Deduplicated: t.deduplicated, TTLExpired: t.ttlExpired, Undelivered: t.undelivered, DeadBy: t.deadLettered, Rounds: t.rounds,
	}
	for _, died := range t.deadLettered {
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
}

// Stats describes the engine, in time proportional to the number of queues.
func (tx *Tx) Stats() Stats {
	c := tx.core
	s := tx.EngineStats()
	s.Add(c.queues.deletedTotals.counts())
	for _, q := range c.queues.byName {
		s.Add(q.counts())
	}
	return s
}

// EngineStats is Stats without the counts of queues, in constant time.
func (tx *Tx) EngineStats() Stats {
	c := tx.core
	n := &c.health.counters
	return Stats{
		Queues: int64(len(c.queues.byName)), Crons: int64(len(c.cron.entries)), Budgets: int64(c.accounts.byName.Len()), Held: c.accounts.held, Blocked: int64(len(c.waits.parked)), Writable: c.writableForNew() == nil,
		Recoveries: n.recoveries, Turns: n.turns, Tasks: n.tasks, Commits: c.out.committed, InMemory: int64(c.heads.messages), BodyBytes: c.heads.bodyBytes,
		Now: tx.Now(), Backup: tx.Backups(), Ticked: n.ticked, Missed: n.missed, Topics: c.topics.stats(), BackedUp: n.backedUp, FailedToBackUp: n.failedToBackUp,
		Signals: int64(c.signals.pairs.Len()), SignalsEvicted: c.signals.evicted,
	}
}

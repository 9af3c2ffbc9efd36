package engine

import "time"

// Counts are what a queue, or all of them together, hold and have done.
type Counts struct {
	Ready, Delayed, Leased, Dead int64
	Keys, Waiters                int64

	// Since the broker has started:
	Enqueued, Delivered, Acked, Nacked, Expired, DeadLettered, Dropped, Released, Redriven uint64
	Cancelled, Purged, Deduplicated, Outlived                                              uint64

	// Counting says that what the store held at start is still being counted:
	// Ready, Delayed and Dead are too low until then.
	Counting bool
}

// counts returns a queue's counts in constant time. The messages of a dead-letter
// queue that nobody has leased are dead.
func (q *queue) counts() Counts {
	t := &q.totals
	n := Counts{
		Delayed: q.delayed, Leased: q.leased, Keys: int64(q.keys.n), Waiters: int64(q.waiters.n), Counting: !q.counted,
		Enqueued: t.enqueued, Delivered: t.delivered, Acked: t.acked, Nacked: t.nacked, Expired: t.leaseExpired,
		DeadLettered: t.deadLettered, Dropped: t.dropped, Released: t.released, Redriven: t.redriven,
		Cancelled: t.cancelled, Purged: t.purged, Deduplicated: t.deduplicated, Outlived: t.ttlExpired,
	}
	rest := max(q.total-q.delayed-q.leased, 0)
	if q.isDLQ() {
		n.Dead = rest
	} else {
		n.Ready = rest
	}
	return n
}

func (n *Counts) add(o Counts) {
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
	n.Outlived += o.Outlived
	n.Counting = n.Counting || o.Counting
}

// Stats describe the engine as a whole.
type Stats struct {
	Counts
	Queues     int64
	Blocked    int64 // clients whose task waits
	Writable   bool  // the store takes writes
	Recoveries uint64
	Turns      uint64
	Tasks      uint64
	Commits    uint64
	InMemory   int64 // messages in windows
	BodyBytes  int64 // payloads and headers held beside the store
	Now        time.Time
	Backup     BackupStatus
}

// Stats describes the engine.
func (tx *Tx) Stats() Stats {
	c := tx.core
	s := Stats{
		Queues: int64(len(c.queues.byName)), Blocked: int64(len(c.waits.parked)), Writable: c.writableForNew() == nil, Recoveries: c.health.counters.recoveries,
		Turns: c.health.counters.turns, Tasks: c.health.counters.tasks, Commits: c.out.committed, InMemory: int64(c.heads.messages), BodyBytes: c.heads.bodyBytes, Now: tx.Now(), Backup: tx.Backups(),
	}
	for _, q := range c.queues.byName {
		s.add(q.counts())
	}
	return s
}

// QueueStats returns the counts of one queue.
func (tx *Tx) QueueStats(name string) (Counts, error) {
	q, err := tx.core.queueNamed(name)
	if err != nil {
		return Counts{}, err
	}
	return q.counts(), nil
}

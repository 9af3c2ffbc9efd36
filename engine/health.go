package engine

import (
	"fmt"
	"time"
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

	// Events since the start of the broker. Expired counts leases, TTLExpired messages.
	Enqueued, Delivered, Acked, Nacked, Expired, DeadLettered, Dropped, Released, Redriven uint64
	Cancelled, Purged, Deduplicated, TTLExpired                                            uint64

	// Counting reports that the messages in the store are still being counted after a start.
	// Until then, Ready, Delayed and Dead are too low.
	Counting bool
}

// counts returns the counts of a queue in constant time. In a dead-letter queue, messages that
// are neither delayed nor leased are dead, not ready.
func (q *queue) counts() Counts {
	t := &q.totals
	n := Counts{
		Delayed: q.delayed, Leased: q.leased, Keys: int64(q.keys.n), Waiters: int64(q.waiters.n), Counting: !q.counted,
		Enqueued: t.enqueued, Delivered: t.delivered, Acked: t.acked, Nacked: t.nacked, Expired: t.leaseExpired,
		DeadLettered: t.deadLettered, Dropped: t.dropped, Released: t.released, Redriven: t.redriven,
		Cancelled: t.cancelled, Purged: t.purged, Deduplicated: t.deduplicated, TTLExpired: t.ttlExpired,
	}
	remainder := max(q.total-q.delayed-q.leased, 0)
	if q.isDLQ() {
		n.Dead = remainder
	} else {
		n.Ready = remainder
	}
	return n
}

// add adds the counts of another queue.
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
	n.TTLExpired += o.TTLExpired
	n.Counting = n.Counting || o.Counting
}

// Stats describe the engine as a whole. The counters count since the start of the broker.
type Stats struct {
	Counts
	Queues     int64
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
}

// Stats describes the engine, in time proportional to the number of queues.
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

package engine

import (
	"fmt"
	"time"
)

// health says whether the store takes writes, and counts what the loop has done.
type health struct {
	failed error // why the store cannot be written, or nil
	full   error // why only what frees space may be written, or nil: see full.go
	// reclaiming says that the store is being asked for space.
	reclaiming bool
	bootTime   int64 // of the first turn
	counters   counters

	untimed
	unchecked
}

// counters count since start, for FILA.STATS.
type counters struct {
	turns, tasks, recoveries uint64
}

func (h *health) reset() { h.bootTime = 0 }

// writable refuses what would change something while the store takes no writes.
func (c *core) writable() error {
	if c.health.failed != nil {
		return fmt.Errorf("%w: %w; the broker goes on by itself when it can", ErrMisconf, c.health.failed)
	}
	return nil
}

// This file is about a store whose disk is full but for what it has kept in reserve.
//
// Such a store takes writes, and to free space takes some: an ack, a purge, the deletion
// of a queue are records, too. So what frees space is done, and what that needs (leases,
// releases, failures); commands that store something new are refused. Once a second the
// store is asked whether there is space again; until then it gives back what was freed.

// reliever is a store that can be full.
type reliever interface {
	// Full says why only what frees space may be committed, or nil.
	Full() error
	// Relieve makes the store take everything again if there is space, and frees some
	// if it can. It may take long; until it returns, commits wait.
	Relieve() error
}

// prober is a store that can tell whether Reopen has a chance.
type prober interface {
	Probe() error
}

// writableForNew is writable for commands that store something new.
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

// refreshFull takes over from the store whether it is full.
func (c *core) refreshFull() {
	c.health.full = nil
	if s, ok := c.store.(reliever); ok {
		c.health.full = s.Full()
	}
}

// relieve asks the store for space, beside the loop.
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

// relieved says what has become of a store that was full.
type relieved struct{ err error }

// Apply implements Call.
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

// This file is about a commit that does not end: a file system that is frozen, a disk
// that does not answer. No reply may leave that promises something. But who looks wants to
// know just then, so commands that only look at memory are answered all the same, as soon
// as a commit has taken stallAfter. What they show may be ahead of the disk, as it is when
// a commit fails right after their reply.
//
// Looking must not wait for those who cannot go on, either: it finds room in a full inbox,
// and is taken out of it while a full batch keeps everything else there.

// stallAfter is how long a commit takes that is taken to be stalled.
const stallAfter = time.Second

// stalling says how long the commit under way may still take before it counts as stalled,
// at most 0 if it does. Without one it is never.
func (e *Engine) stalling(busy bool) time.Duration {
	if !busy {
		return time.Hour
	}
	return stallAfter - (e.Elapsed() - e.commitBegan)
}

// takeReadOnly takes those out of the inbox that only look, and have nothing of their client
// before them. It is called with the lock held.
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

// allReadOnly says that tasks only look.
func allReadOnly(tasks []*Task) bool {
	for _, t := range tasks {
		if !t.ReadOnly {
			return false
		}
	}
	return true
}

// answerReadOnly answers what has only looked, of the open batch and of the one that is being
// committed.
func (e *Engine) answerReadOnly(flight *work) {
	c := e.core
	c.out.released = c.splitReadOnly(c.out.released)
	e.mu.Lock()
	if e.busy && flight != nil {
		flight.tasks = c.splitReadOnly(flight.tasks)
	}
	e.mu.Unlock()
}

// splitReadOnly moves tasks that only look to those that are told at once, and returns the
// others.
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

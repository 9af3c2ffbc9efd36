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
// While the process may use no more memory, commands that store something new are refused as well.
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
	memory     Memory
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

// lookAtMemory takes over what the process may use.
func (c *core) lookAtMemory() {
	if c.cfg.Memory == nil {
		return
	}
	was, now := c.health.memory.Full, c.cfg.Memory()
	// Where little of it is stored, connections take it, for a moment and within bounds of their own.
	now.Full = now.Full && c.held() >= now.Limit/4
	c.health.memory = now
	switch {
	case now.Full && !was:
		c.cfg.Log.Error().Int64("used", now.Used).Int64("limit", now.Limit).Int("keys", c.heads.keys).Int("messages", c.heads.messages).
			Int64("body_bytes", c.heads.bodyBytes).Int64("held_bytes", c.held()).
			Msg("no memory for more: what stores something new is refused with OOM until messages are acked, cancelled or purged, or the limit is raised")
	case was && !now.Full:
		c.cfg.Log.Info().Int64("used", now.Used).Int64("limit", now.Limit).Msg("there is memory again, everything is taken")
	}
}

// writableForNew is writable for commands that store something new: it also refuses them
// while the store is full, and while there is no memory for more.
func (c *core) writableForNew() error {
	if err := c.storeTakesNew(); err != nil {
		return err
	}
	if m := &c.health.memory; m.Full {
		return fmt.Errorf("%w: %d of %d MiB are used; FILA.ACK, FILA.CANCEL and FILA.PURGE free some, FILA.STATS shows what takes it", ErrMemory, m.Used>>20, m.Limit>>20)
	}
	return nil
}

// storeTakesNew returns why the store takes nothing new, or nil.
func (c *core) storeTakesNew() error {
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
func (tx *Tx) Writable() bool { return tx.core.storeTakesNew() == nil }

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

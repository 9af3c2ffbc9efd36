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
	e.side.Go(func() {
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
	return stallAfter - (e.Elapsed() - e.handed)
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

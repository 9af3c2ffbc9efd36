package engine

import "time"

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

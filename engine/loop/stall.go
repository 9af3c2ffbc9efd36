package loop

import (
	"time"

	"github.com/faisca/fila/engine"
)

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
func (e *Engine) takeReadOnly(spare []*engine.Task) []*engine.Task {
	out, kept := spare, e.inbox[:0]
	before := map[*engine.Client]bool{}
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
func allReadOnly(tasks []*engine.Task) bool {
	for _, t := range tasks {
		if !t.ReadOnly {
			return false
		}
	}
	return true
}

// takeAnswered appends to early the read-only tasks that are concluded, both of the open batch
// and of the one whose commit has stalled.
func (e *Engine) takeAnswered(early []*engine.Task) []*engine.Task {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.busy { // it has ended meanwhile
		return e.machine.TakeReadOnly(early, nil)
	}
	return e.machine.TakeReadOnly(early, e.inFlight)
}

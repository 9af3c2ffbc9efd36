package window

import (
	"fmt"
	"sort"
)

// Window is the head cache of a fairness key: its next ready messages, in the order of their positions.
// The engine embeds it in its key, where millions of them are in no CPU cache: an enqueue, a delivery
// and an ack read its 64 bytes, and of the edge and the messages only what they change. The zero value
// is complete.
type Window[M positioned[Place]] struct {
	list []M  // before the edge, in order; stored in few while it fits
	few  [3]M // the memory of short windows, which saves an allocation
	edge *edge[Place]
	// rankMax is at least the rank of every message in the window. It tells that a new message belongs
	// at the end without reading another one.
	rankMax uint8
}

// Len returns the number of messages in memory.
func (w *Window[M]) Len() int { return len(w.list) }

// First returns the message that is next. The window must have one.
func (w *Window[M]) First() M { return w.list[0] }

// All returns the messages in order. The slice must not be changed, and is valid until the next change.
func (w *Window[M]) All() []M { return w.list }

// More reports whether there may be more on disk only.
func (w *Window[M]) More() bool { return w.edge != nil }

// Awaiting reports whether what comes next is known only after a read.
func (w *Window[M]) Awaiting() bool { return w.edge != nil && len(w.list) == 0 }

// Before reports whether a position is before the edge: a ready message there is in memory.
func (w *Window[M]) Before(p Place) bool { return w.edge == nil || p.Less(w.edge.at) }

// StartAt leaves everything from a position on to the disk. The window must be empty.
func (w *Window[M]) StartAt(p Place) { w.edge = w.edge.retreat(p) }

// Add puts a ready message into the window and returns true, or leaves it to the disk, where a later
// read finds it, and returns false: behind the edge, or at the end of a window that has most messages.
// newest promises that no message has a greater id.
func (w *Window[M]) Add(m M, p Place, newest bool, most int) bool {
	if e := w.edge; e != nil && !p.Less(e.at) {
		e.added(p)
		return false
	}
	n := len(w.list)
	if n == 0 || newest && p.Rank >= w.rankMax || !p.Less(w.list[n-1].Position()) {
		if n >= most {
			w.edge = w.edge.retreat(p)
			return false
		}
		w.push(m, p.Rank)
		return true
	}
	i := sort.Search(n, func(i int) bool { return p.Less(w.list[i].Position()) })
	w.push(w.list[n-1], w.rankMax)
	copy(w.list[i+1:n], w.list[i:])
	w.list[i] = m
	return true
}

// push appends a message.
func (w *Window[M]) push(m M, rank uint8) {
	switch n := len(w.list); {
	case n == 0:
		w.list = w.few[:0]
	case n == cap(w.list) && n <= len(w.few): // few is outgrown: it must not retain messages
		w.list = append(make([]M, 0, 4*n), w.list...)
		w.few = [len(w.few)]M{}
	}
	w.list = append(w.list, m)
	w.rankMax = rank
}

// Pop removes the first message, which there must be, and returns it.
func (w *Window[M]) Pop() M {
	var zero M
	m := w.list[0]
	if n := len(w.list); n <= len(w.few) { // keep its beginning, so that few is not used up
		copy(w.list, w.list[1:])
		w.list[n-1] = zero
		w.list = w.list[:n-1]
		return m
	}
	w.list[0] = zero
	w.list = w.list[1:]
	return m
}

// search returns the index of the first message at a position or behind it, and whether it is at it.
func (w *Window[M]) search(p Place) (i int, found bool) {
	i = sort.Search(len(w.list), func(i int) bool { return !w.list[i].Position().Less(p) })
	return i, i < len(w.list) && w.list[i].Position() == p
}

// At returns the message at a position; the zero value if there is none.
func (w *Window[M]) At(p Place) (m M) {
	if i, found := w.search(p); found {
		return w.list[i]
	}
	return m
}

// Remove removes the message at a position and returns it; the zero value if there is none.
func (w *Window[M]) Remove(p Place) (m M) {
	i, found := w.search(p)
	if !found {
		return m
	}
	var zero M
	last := len(w.list) - 1
	m = w.list[i]
	copy(w.list[i:], w.list[i+1:])
	w.list[last] = zero
	w.list = w.list[:last]
	return m
}

// Cut leaves n messages in the window and returns the others, which are on disk only from now on.
func (w *Window[M]) Cut(n int) []M {
	if len(w.list) <= n {
		return nil
	}
	rest := w.list[n:]
	w.edge = w.edge.retreat(rest[0].Position())
	w.list = w.list[:n:n]
	return rest
}

// AddOnDisk adds a ready message that is not in memory. If its position is before the edge, the edge
// retreats to it. It returns the messages behind it, which are on disk only from now on.
func (w *Window[M]) AddOnDisk(p Place) []M {
	if !w.Before(p) {
		w.edge.added(p)
		return nil
	}
	i, _ := w.search(p)
	rest := w.Cut(i)
	w.edge = w.edge.retreat(p)
	return rest
}

// Changed must be called when a message of the key changes on disk other than by its enqueue.
func (w *Window[M]) Changed(p Place) {
	if w.edge != nil {
		w.edge.change(p, ChangedMax)
	}
}

// ChangedMax bounds the changed messages that a read of a window records. With more, it is repeated.
const ChangedMax = 10_000

// Clear drops all messages. The window must not be used any more.
func (w *Window[M]) Clear() { w.list, w.few = nil, [len(w.few)]M{} }

// Request is what a window asks for.
type Request uint8

// The requests. Of each, a window is in line at most once.
const (
	NoRead   Request = iota // it has asked already, or needs none
	Prefetch                // it runs low
	Urgent                  // it is empty
)

// Request asks for a read if the window has low messages or fewer and more are on disk.
func (w *Window[M]) Request(low int) Request {
	e, n := w.edge, len(w.list)
	switch {
	case e == nil:
	case n == 0 && e.stage < urgent:
		e.stage = urgent
		return Urgent
	case n <= low && e.stage == none:
		e.stage = requested
		return Prefetch
	}
	return NoRead
}

// Wants reports whether the window has asked for a read that is not issued.
func (w *Window[M]) Wants() bool {
	return w.edge != nil && w.edge.stage != none && w.edge.stage != issued
}

// Reading reports whether a read is asked for, under way or backed off.
func (w *Window[M]) Reading() bool { return w.edge != nil && w.edge.stage != none }

// Issue begins a read, and returns the edge, where it starts. More must be on disk.
func (w *Window[M]) Issue(r *Read[Place]) Place { return w.edge.issue(r) }

// End ends a read, and reports whether it was the one under way: Merge may follow then, or BackOff.
func (w *Window[M]) End(r *Read[Place]) bool { return w.edge.end(r) }

// Merge appends what a read that has ended found in order, and advances the edge behind it: to next,
// where the read stopped, if there may be more there. It returns the messages that have joined; ok is
// false if the read was stale.
func (w *Window[M]) Merge(r *Read[Place], found []M, next Place, more bool) (joined []M, ok bool) {
	w.edge, joined, ok = merge(w.edge, r, found, next, more)
	for _, m := range joined {
		w.push(m, m.Position().Rank)
	}
	w.noteEmpty()
	return joined, ok
}

// BackOff drops the read that is asked for or under way: none is until Resume is called with what it
// returns. More must be on disk.
func (w *Window[M]) BackOff() *Read[Place] {
	r := &Read[Place]{}
	w.edge.stage, w.edge.read = backedOff, r
	w.noteEmpty()
	return r
}

// Resume ends the state backed off, if the window has not been read or backed off since.
func (w *Window[M]) Resume(r *Read[Place]) bool { return w.edge.end(r) }

func (w *Window[M]) noteEmpty() {
	if w.edge != nil {
		w.edge.lastEmpty = len(w.list) == 0
	}
}

// LastReadEmpty reports whether the last read has left the window empty or has failed, and ReadAgain
// has not been called since: the next one may do the same, and is not worth waiting for.
func (w *Window[M]) LastReadEmpty() bool { return w.edge != nil && w.edge.lastEmpty }

// ReadAgain makes LastReadEmpty false.
func (w *Window[M]) ReadAgain() {
	if w.edge != nil {
		w.edge.lastEmpty = false
	}
}

// Check verifies that the messages are in order and before the edge, for tests.
func (w *Window[M]) Check() error {
	for i, m := range w.list {
		if p := m.Position(); !w.Before(p) || i > 0 && !w.list[i-1].Position().Less(p) || p.Rank > w.rankMax {
			return fmt.Errorf("message %s does not belong at %d of the window, the greatest rank is %d", p.ID, i, w.rankMax)
		}
	}
	return nil
}

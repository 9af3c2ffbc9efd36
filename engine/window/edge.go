package window

import (
	"bytes"

	"github.com/faisca/fila/storage"
)

// Place is the position of a message within its fairness key: priority first, then the time of
// enqueue. It never changes, so a retried message keeps its position.
type Place struct {
	Rank uint8 // 9 - priority
	ID   storage.ID
}

// PlaceOf returns the position of a message within its fairness key.
func PlaceOf(mk storage.MessageKey) Place { return Place{mk.Rank, mk.ID} }

// Less reports whether p precedes o.
func (p Place) Less(o Place) bool {
	if p.Rank != o.Rank {
		return p.Rank < o.Rank
	}
	return bytes.Compare(p.ID[:], o.ID[:]) < 0
}

// Next returns the smallest position after p.
func (p Place) Next() Place {
	for i := len(p.ID) - 1; i >= 0; i-- {
		p.ID[i]++
		if p.ID[i] != 0 {
			return p
		}
	}
	p.Rank++
	return p
}

// Due is the position of an entry in an index by time: the key of its record.
type Due string

// Less reports whether d precedes o.
func (d Due) Less(o Due) bool { return d < o }

// position is a total order of entries on disk.
type position[P any] interface {
	comparable
	Less(o P) bool
}

// positioned is an entry with a position that does not change.
type positioned[P any] interface{ Position() P }

// edge divides what is in memory from what is on disk only, which is at its position or behind it. nil is
// behind everything: nothing is on disk only.
type edge[P position[P]] struct {
	at    P
	stage stage
	// lastEmpty is true if the last read has left the head empty.
	lastEmpty bool
	read      *Read[P] // issued, or the reason for which the edge has backed off
}

// stage is the state of the next read, see the package comment.
type stage uint8

const (
	none stage = iota
	requested
	urgent
	issued
	backedOff
)

// Read is one read from the edge on, and what has changed since it was issued. The engine embeds it
// in what runs off the loop, where it must not be used.
type Read[P position[P]] struct {
	stale   bool           // the edge has retreated, or too much has changed
	bounded bool           // unseen is valid
	unseen  P              // the first position at which an entry was added behind the edge
	changed map[P]struct{} // behind the edge, in another way
}

// before reports whether a position is before the edge. Where entries are enqueued, Window compares
// itself: a method of a type parameter is not inlined.
func (e *edge[P]) before(p P) bool { return e == nil || p.Less(e.at) }

// issue begins a read at the edge.
func (e *edge[P]) issue(r *Read[P]) P {
	e.stage, e.read = issued, r
	return e.at
}

// end ends a read, and reports whether it was the one under way. Its result must be dropped otherwise.
func (e *edge[P]) end(r *Read[P]) bool {
	if e == nil || e.read != r {
		return false
	}
	e.stage, e.read = none, nil
	return true
}

// added records an entry that was added behind the edge. A read under way may have missed it.
func (e *edge[P]) added(p P) {
	if e.stage != issued {
		return
	}
	if r := e.read; !r.bounded || p.Less(r.unseen) {
		r.unseen, r.bounded = p, true
	}
}

// change records that an entry has changed on disk other than by being added. A read under way may
// have seen its former state. It becomes stale with more than most changes.
func (e *edge[P]) change(p P, most int) {
	if e == nil || e.stage != issued || e.read.stale || p.Less(e.at) {
		return
	}
	r := e.read
	if len(r.changed) >= most {
		r.stale, r.changed = true, nil
		return
	}
	if r.changed == nil {
		r.changed = map[P]struct{}{}
	}
	r.changed[p] = struct{}{}
}

// retreat moves the edge to an earlier position. The result of a read under way, which began at the
// former edge, would leave a gap.
func (e *edge[P]) retreat(p P) *edge[P] {
	if e == nil {
		return &edge[P]{at: p}
	}
	e.at = p
	if e.stage == issued {
		e.read.stale = true
	}
	return e
}

// merge advances the edge behind what a read has found, in order: to next, where the read stopped, or
// away if there was no more. It returns the edge and those of the entries that join the head; ok is
// false if the read was stale, and then nothing changes. No entry is lost and none is in memory twice:
//
//   - What was added behind the former edge meanwhile is behind the new one.
//   - What was found and has changed meanwhile is skipped: it is gone, or it is in memory in another
//     structure, or it was added again and is not before the new edge.
func merge[P position[P], E positioned[P]](e *edge[P], r *Read[P], found []E, next P, more bool) (_ *edge[P], joined []E, ok bool) {
	if r.stale {
		return e, nil, false
	}
	if r.bounded && (!more || r.unseen.Less(next)) {
		next, more = r.unseen, true
	}
	joined = found[:0]
	for _, f := range found {
		p := f.Position()
		if more && !p.Less(next) {
			break
		}
		if _, changed := r.changed[p]; !changed {
			joined = append(joined, f)
		}
	}
	if !more {
		return nil, joined, true
	}
	e.at = next
	return e, joined, true
}

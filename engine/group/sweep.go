package group

import "math"

// Sweep removes the members of cancelled groups from a queue that are not leased, page by page. The engine reads the pages.
// The states of a sweep:
//
//	none ──Cancel, Restored──▶ in line ──NextPage──▶ being read ──Swept──▶ in line, or none: that was the last page
//	                              ▲                      └─SweepAgain──▶ in line, for the same page
//	                              └── more groups are cancelled meanwhile: another pass follows
//	in line, being read ──SweptAway: the queue is gone──▶ none
//
// One page is read at a time, and each sweep has its turn.
type Sweep struct {
	Queue   uint32
	Members map[uint64]struct{} // groups of which it removes members; never changed, as pages read it
	Cursor  []byte              // where the next page begins; nil: the beginning

	more map[uint64]struct{} // groups of another pass, which follows; nil: none does
}

// sweeps are those of all queues.
type sweeps struct {
	byQueue map[uint32]*Sweep
	line    []*Sweep // the same, in the order of their next pages
	reading bool     // a page of the first one is being read
	at      int64    // no page before this time
}

// sweep has the members of a cancelled group removed from the queues that exist.
func (t *Table) sweep(g *Group) {
	s := &t.sweeps
	for _, p := range g.pairs {
		if p.Pending == 0 || p.list == nil || p.list != t.byQueue[p.queue] {
			continue // it has none, or its queue is gone
		}
		of := s.byQueue[p.queue]
		if of == nil {
			of = &Sweep{Queue: p.queue}
			s.byQueue[p.queue] = of
			s.line = append(s.line, of)
		}
		if of.more == nil {
			of.more = map[uint64]struct{}{}
		}
		of.more[g.number] = struct{}{}
	}
}

// Sweeping reports whether a queue may have members of cancelled groups that are not leased.
func (t *Table) Sweeping(queue uint32) bool { return t.sweeps.byQueue[queue] != nil }

// SweepAt returns when the next page is read: the end of time if none is, or while one is being read.
func (t *Table) SweepAt() int64 {
	if len(t.sweeps.line) == 0 || t.sweeps.reading {
		return math.MaxInt64
	}
	return t.sweeps.at
}

// NextPage returns the sweep whose next page is to be read, at SweepAt or later. Swept, SweepAgain or SweptAway
// follows.
func (t *Table) NextPage() *Sweep {
	s := t.sweeps.line[0]
	if s.Members == nil {
		s.Members, s.more = s.more, nil
	}
	t.sweeps.reading = true
	return s
}

// Swept says that the members are removed which a page has found, and where the next page begins; nil: it was the last.
func (t *Table) Swept(next []byte) {
	s := t.sweeps.line[0]
	if s.Cursor = next; next == nil {
		if s.Members = nil; s.more == nil {
			t.SweptAway()
			return
		}
	}
	t.nextInLine()
}

// SweepAgain says that a page could not be read, or that what it has found cannot be used: it is read again, after those
// of the other sweeps, and none before a time.
func (t *Table) SweepAgain(at int64) {
	t.sweeps.at = at
	t.nextInLine()
}

func (t *Table) nextInLine() {
	l := &t.sweeps
	l.line, l.reading = append(l.line[1:], l.line[0]), false
}

// SweptAway ends the sweep of the page that was to be read.
func (t *Table) SweptAway() {
	l := &t.sweeps
	delete(l.byQueue, l.line[0].Queue)
	l.line[0] = nil
	l.line, l.reading = l.line[1:], false
}

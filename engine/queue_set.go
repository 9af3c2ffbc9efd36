package engine

import (
	"maps"
	"math"
	"slices"

	"github.com/faisca/fila/engine/figures"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/storage"
)

// queueSet is all queues.
type queueSet struct {
	byName     map[string]*queue
	byNumber   map[uint32]*queue
	byDLQ      map[string]*intrusive.List[queue, *queue] // those that name a dead-letter queue, by its name
	names      []string                                  // in order; nil: to be built anew. Shared with replies: never changed
	nextNumber uint32
	deleted    []*queue // waiters of theirs have to be answered

	figures figures.All

	untimed
}

// reset keeps the figures, which recoverQueues takes over: they count since the start of the
// broker, whatever has failed since.
func (s *queueSet) reset() {
	s.figures.Reset(func(yield func(string, *figures.Queue) bool) {
		for name, q := range s.byName {
			if !yield(name, &q.figures) {
				return
			}
		}
	})
	*s = queueSet{
		byName: map[string]*queue{}, byNumber: map[uint32]*queue{}, byDLQ: map[string]*intrusive.List[queue, *queue]{}, nextNumber: s.nextNumber,
		figures: s.figures,
	}
}

// set gives a queue its settings, and keeps byDLQ.
func (s *queueSet) set(q *queue, set storage.Queue) {
	if set.DLQ != q.set.DLQ {
		s.leaveDLQ(q)
		if set.DLQ != "" {
			l := s.byDLQ[set.DLQ]
			if l == nil {
				l = &intrusive.List[queue, *queue]{}
				s.byDLQ[set.DLQ] = l
			}
			l.PushBack(q)
		}
	}
	q.set = set
	q.order.Free(set.DeadLetter)
	q.figures.SetDead(set.DeadLetter)
}

// leaveDLQ makes a queue one without a dead-letter queue.
func (s *queueSet) leaveDLQ(q *queue) {
	if l := s.byDLQ[q.set.DLQ]; l != nil {
		if l.Remove(q); l.Head() == nil {
			delete(s.byDLQ, q.set.DLQ)
		}
	}
	q.set.DLQ = ""
}

// Queues returns the names of all queues in order. The list is shared, by replies that
// wait too, and must not be changed: however many ask for it, there is one. Its only refusal
// is that of a transaction that has looked at too much.
func (tx *Tx) Queues() ([]string, error) {
	c := tx.core
	if c.queues.names == nil {
		if err := tx.afford(len(c.queues.byName) / queuesPerUnit); err != nil {
			return nil, err
		}
	}
	return c.queueNames(), nil
}

// queueNames is Queues for the engine itself.
func (c *core) queueNames() []string {
	if c.queues.names == nil {
		c.queues.names = slices.Sorted(maps.Keys(c.queues.byName))
	}
	return c.queues.names
}

// queuesPerUnit is the number of queues that a unit of work pays for when they are sorted, or
// compared with a definition.
const queuesPerUnit = 8

// ScanQueues returns the names of queues that match, in the order of their creation, and the
// cursor of the next page, 0 at the end; the first page has cursor 0. Recovery does not change
// the order, so a cursor is valid across restarts. A page has at most count names. It may have
// fewer, or none, before the end: it passes a bounded number of gaps that deleted queues have
// left. Its only refusal is that of a transaction that has looked at too much.
func (tx *Tx) ScanQueues(cursor uint64, count int, match func(string) bool) (next uint64, names []string, err error) {
	c := tx.core
	const gaps = 4096
	if err := tx.afford(1); err != nil {
		return 0, nil, err
	}
	most := count + gaps
	steps := most
	defer func() { c.spend((most - steps) / gapsPerUnit) }()
	for ; cursor < uint64(c.queues.nextNumber); cursor++ {
		if count <= 0 || steps <= 0 {
			return cursor, names, nil
		}
		steps--
		if q := c.queues.byNumber[uint32(min(cursor, math.MaxUint32))]; q != nil {
			count--
			if match(q.name) {
				names = append(names, q.name)
			}
		}
	}
	return 0, names, nil
}

// HasQueue reports whether a queue of that name exists.
func (tx *Tx) HasQueue(name string) bool { return tx.core.queues.byName[name] != nil }

// gapsPerUnit is how many numbers without a queue a unit of the budget pays for.
const gapsPerUnit = 16

package metrics

import (
	"time"

	"github.com/faisca/fila/engine"
)

// queues decides which queues have series of their own, and keeps every count from going back
// while queues come and go. The series without a name count what no named queue shows:
//
//	rest = all queues there are or were - what named queues have counted under their names
//	     = deleted + sum of the others + offsets - departed
//
// So nothing is counted twice and nothing is lost when a queue gets a name, goes, or is made
// again under its name:
//
//	gets a name   it counts from then on: what it had is in its offset, and stays with the rest
//	is deleted    the engine adds it to deleted; what was shown under its name goes to departed
//	made again    the same, and the new queue goes on counting from what was shown (base)
//
// All of it belongs to the loop of the engine.
type queues struct {
	most  int
	named map[string]*namedQueue
	round uint64    // number of the last reading
	read  time.Time // when the last reading ended; zero: there was none

	offsets, departed, rest tally
	keyRoom                 int // places for keys that are left, of all queues
}

// namedQueue is a queue with series of its own. It shows base + last - offset.
type namedQueue struct {
	created            time.Time
	base, offset, last tally
	seen               uint64 // round
	keys               places
}

// shown returns the counts under the queue's name.
func (q *namedQueue) shown() tally {
	own := q.last.minus(&q.offset)
	return q.base.plus(&own)
}

// choice returns the test that a reading sums queues by: those without a name, beyond as many
// as there are names left for.
func (s *queues) choice() func(queue string) bool {
	left := s.most - len(s.named)
	return func(queue string) bool {
		if s.named[queue] != nil {
			return false
		}
		left--
		return left < 0
	}
}

// see takes over the figures of a queue with a name, which it gets now if it has none.
func (s *queues) see(f *engine.QueueFigures) *namedQueue {
	now := tallyOf(f)
	q := s.named[f.Name]
	switch {
	case q == nil:
		q = &namedQueue{created: f.CreatedAt}
		if !f.CreatedAt.After(s.read) { // it was among the others
			q.offset = now
			s.offsets = s.offsets.plus(&now)
		}
		s.named[f.Name] = q
	case !q.created.Equal(f.CreatedAt):
		s.renew(q, f.CreatedAt)
	}
	q.last, q.seen = now, s.round
	return q
}

// renew makes a queue that was created again under the same name go on from what was shown.
func (s *queues) renew(q *namedQueue, created time.Time) {
	q.base = q.shown()
	s.depart(q)
	q.created, q.offset, q.last = created, tally{}, tally{}
}

// depart moves what a queue that is gone has shown to the departed.
func (s *queues) depart(q *namedQueue) {
	own := q.last.minus(&q.offset)
	s.departed = s.departed.plus(&own)
	s.offsets = s.offsets.minus(&q.offset)
}

// missing returns the names of queues that the present reading has not found.
func (s *queues) missing() []string {
	var names []string
	for name, q := range s.named {
		if q.seen != s.round {
			names = append(names, name)
		}
	}
	return names
}

// miss decides what becomes of a missing queue. created is when the queue was created that has
// the name now; zero: there is none, and the name is free. A queue that was there before and
// still is was purged while the queues were listed.
func (s *queues) miss(name string, created time.Time) {
	q := s.named[name]
	switch {
	case created.IsZero():
		s.depart(q)
		s.keyRoom += len(q.keys.by)
		delete(s.named, name)
	case !q.created.Equal(created):
		s.renew(q, created)
	}
}

// others takes over the figures of all other queues together, and returns what to show.
func (s *queues) others(page *engine.FiguresPage) tally {
	sum, deleted := tallyOf(&page.Sum), tallyOf(&page.Deleted)
	all := sum.plus(&deleted)
	all = all.plus(&s.offsets)
	s.rest = s.rest.grow(&all, &s.departed)
	return s.rest
}

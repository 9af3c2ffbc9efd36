package events

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/glob"
)

// A client with patterns gets its events from a queue of its own, those by name as well, so that they stay
// in order. Queues take turns, and a turn is bounded by its work, whatever the number and the form of the
// patterns. The dispatcher does the work of about one turn; what is left is matched on one goroutine, which
// runs while any queue has events. So the patterns of one client delay the events of this client alone, and
// those of all clients take one processor at most.
//
// A client whose queue is full loses the events that come, and is told how many.

const (
	// queuedMax bounds the events that wait for the patterns of one client; the queues share them.
	queuedMax = 1 << 16
	// turnWork ends the turn of a client: steps of matching and bytes of messages.
	turnWork = 1 << 14
)

// queue is a client's events that are not matched yet, and its patterns.
type queue struct {
	patterns []*subscription
	waiting  []*message
	named    bool   // waiting[0] has been matched with the channels by name
	next     int    // the pattern that waiting[0] is matched with next
	lost     uint64 // events that found the queue full
}

// turns is the state of the goroutine that matches. The lock of the hub guards it.
type turns struct {
	newest  uint64        // number of the newest event
	clients []*Subscriber // whose queues have events, in order of their turns
	running bool
}

func (q *queue) add(p *subscription) {
	p.at = len(q.patterns)
	q.patterns = append(q.patterns, p)
}

// remove removes a pattern and keeps those apart that the first event has been matched with.
func (q *queue) remove(p *subscription) {
	if len(q.patterns) == 0 {
		return // cleared
	}
	free := p.at
	if free < q.next {
		q.next--
		q.move(q.next, free)
		free = q.next
	}
	last := len(q.patterns) - 1
	q.move(last, free)
	q.patterns[last] = nil
	q.patterns = q.patterns[:last]
}

func (q *queue) move(from, to int) {
	q.patterns[to] = q.patterns[from]
	q.patterns[to].at = to
}

func (q *queue) clear() { *q = queue{} }

// enqueue puts an event into the queue of a client. The hub's lock is held, as for all that follow.
func (h *Hub) enqueue(s *Subscriber, m *message) {
	q := &s.queue
	if len(q.waiting) == queuedMax {
		q.lost++
		return
	}
	if q.waiting = append(q.waiting, m); len(q.waiting) == 1 {
		h.turns.clients = append(h.turns.clients, s)
	}
}

// matchQueued matches what the dispatcher has put into queues, or has it matched.
func (h *Hub) matchQueued() {
	if h.turns.running {
		return
	}
	for work := 0; len(h.turns.clients) > 0; work += h.turn() {
		if work >= turnWork {
			h.turns.running = true
			go h.match()
			return
		}
	}
}

// dequeue has a client without patterns get its events at once again, when none waits.
func (h *Hub) dequeue(s *Subscriber) {
	if len(s.queue.patterns)+len(s.queue.waiting) == 0 {
		delete(h.queued, s)
	}
}

// match takes turns until no queue has events.
func (h *Hub) match() {
	for more := true; more; {
		h.mu.Lock()
		if more = len(h.turns.clients) > 0; more {
			h.turn()
		}
		h.turns.running = more
		h.mu.Unlock()
	}
}

// turn does the work of one client's turn and returns how much it was.
func (h *Hub) turn() (work int) {
	s := h.turns.clients[0]
	h.turns.clients[0] = nil
	h.turns.clients = h.turns.clients[1:]
	for len(s.queue.waiting) > 0 && work < turnWork {
		work += s.matchNext()
	}
	if len(s.queue.waiting) > 0 {
		h.turns.clients = append(h.turns.clients, s)
	} else {
		h.dequeue(s)
	}
	return work
}

// matchNext matches the client's first event with one pattern more, after its name, and returns the work.
func (s *Subscriber) matchNext() (work int) {
	q := &s.queue
	m := q.waiting[0]
	if !q.named {
		q.named = true
		if named := s.topics[Topic{Name: m.channel}]; named != nil && m.number > named.since {
			work += s.push(m.rendered(s.to.Proto()))
		}
	}
	if q.next < len(q.patterns) {
		p := q.patterns[q.next]
		q.next++
		matches, steps := glob.Count(p.name, m.channel)
		if work += 1 + steps; matches && m.number > p.since {
			work += s.push(m.matched(p.name, s.to.Proto()))
		}
	}
	if q.next >= len(q.patterns) {
		q.pop()
	}
	return work + 1
}

// push returns the work that it was.
func (s *Subscriber) push(b []byte) int {
	s.to.PushAsync(b)
	return len(b)
}

// pop removes the first event, which has been matched with all patterns.
func (q *queue) pop() {
	newest := q.waiting[len(q.waiting)-1]
	q.waiting[0] = nil
	q.waiting, q.named, q.next = q.waiting[1:], false, 0
	if q.lost > 0 {
		m := newMessage(&engine.Event{Kind: engine.EventLost, Time: newest.event.Time, Count: q.lost})
		m.number = newest.number
		q.waiting, q.lost = append(q.waiting, m), 0
	}
	if len(q.waiting) == 0 {
		q.waiting = nil
	}
}

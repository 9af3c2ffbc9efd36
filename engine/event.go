package engine

import (
	"strings"
	"time"

	"github.com/faisca/fila/internal/hook"
)

// EventKind is what an event says has happened, or several of them together.
type EventKind uint32

// The kinds of events. All but the last are of a queue.
const (
	EventEnqueued EventKind = 1 << iota // a message was stored
	EventReady                          // a queue that could deliver nothing has something that nobody waited for
	EventEmpty                          // a queue's last message has gone
	EventAcked                          // a message is done
	EventFailed                         // a delivery failed, and the message is tried again
	EventDead                           // a message was moved to the dead-letter queue, or dropped where there is none
	EventCreated                        // a queue was made
	EventAltered                        // a queue's settings were changed
	EventDeleted                        // a queue was deleted
	EventBreaker                        // the breaker of a hook has opened or closed
	EventLost                           // events that nobody was told of: the listener was too slow
)

// EventKinds lists all kinds in the order of their numbers.
func EventKinds() []EventKind {
	return []EventKind{
		EventEnqueued, EventReady, EventEmpty, EventAcked, EventFailed, EventDead, EventCreated, EventAltered, EventDeleted, EventBreaker, EventLost,
	}
}

func (k EventKind) String() string {
	names := map[EventKind]string{
		EventEnqueued: "enqueued", EventReady: "ready", EventEmpty: "empty", EventAcked: "acked", EventFailed: "failed", EventDead: "dead",
		EventCreated: "created", EventAltered: "altered", EventDeleted: "deleted", EventBreaker: "breaker", EventLost: "lost",
	}
	if name, one := names[k]; one {
		return name
	}
	var all []string
	for _, one := range EventKinds() {
		if k&one != 0 {
			all = append(all, names[one])
		}
	}
	return strings.Join(all, "|")
}

// Event is something that has happened and, but for EventBreaker and EventLost,
// is as durable as a reply that tells of it. Fields that say nothing about its
// kind are zero.
type Event struct {
	Kind  EventKind
	Time  time.Time // of the turn
	Queue string

	ID      ID // of a message, with its Key
	Key     string
	Attempt uint32    // the delivery that has failed: 1 is the first
	Error   string    // why it has
	ReadyAt time.Time // when it is tried again
	Reason  string    // why it is dead: attempts, nack, on_failure
	DLQ     string    // where it went; "": it was dropped

	Hook  hook.Kind
	State hook.BreakerState

	Count uint64 // of the events lost
}

// eventsMax bounds the events that the listener has yet to be told of. They are
// not worth more memory: who needs every message uses a queue.
const eventsMax = 1 << 16

// events is what core knows about who listens. It is not state: nothing depends on it.
type events struct {
	wanted EventKind
	open   []Event  // of the open batch
	ready  []*queue // that have gained an open class, or a key in one, since the last turn's end
	shrunk []*queue // that have lost a message since then
}

// want is the task that says which kinds are listened for. It goes through the
// inbox, so that what is submitted after it is told.
type listenFor struct{ kinds EventKind }

// Apply changes which kinds are listened for.
func (w listenFor) Apply(tx *Tx) error {
	tx.core.out.events.wanted = w.kinds
	return nil
}

// wants asks first whether anybody listens: an event that nobody hears costs no
// more than that.
func (c *core) listened(kinds EventKind) bool { return c.out.events.wanted&kinds != 0 }

// emit adds an event to the open batch: it is told after its commit, if that
// succeeds.
func (c *core) emit(ev Event) {
	if c.listened(ev.Kind) {
		ev.Time = unix(c.now)
		c.out.events.open = append(c.out.events.open, ev)
	}
}

// emitMessage tells of a message. It must be called while m.key is the one that
// the event is about.
func (c *core) emitMessage(kind EventKind, m *message) {
	if c.listened(kind) {
		c.emit(Event{Kind: kind, Queue: m.key.queue.name, ID: m.id, Key: m.key.name})
	}
}

// emitFailure tells that a delivery has failed: the message is ready again at a
// time, or dead for a reason and in a dead-letter queue or dropped.
func (c *core) emitFailure(m *message, ev Event) {
	if !c.listened(ev.Kind) {
		return
	}
	ev.Queue, ev.ID, ev.Key, ev.Attempt = m.key.queue.name, m.id, m.key.name, m.attempt-1
	if m.failure != nil {
		ev.Error = m.failure.text
	}
	c.emit(ev)
}

// emitQueue tells of a queue.
func (c *core) emitQueue(kind EventKind, q *queue) { c.emit(Event{Kind: kind, Queue: q.name}) }

// announceReady remembers a queue that may be able to deliver again.
func (c *core) announceReady(q *queue) {
	if c.listened(EventReady) && !q.scheduler.announced && !q.becameReady {
		q.becameReady = true
		c.out.events.ready = append(c.out.events.ready, q)
	}
}

// noteShrunk remembers a queue that may be empty now.
func (c *core) noteShrunk(q *queue) {
	if c.listened(EventEmpty) && q.total <= 0 && q.counted && !q.shrunk {
		q.shrunk = true
		c.out.events.shrunk = append(c.out.events.shrunk, q)
	}
}

// notice tells, at the end of a turn, which queues have become ready or empty.
// What was there in the middle of the turn only is nobody's business, but for
// one thing: a queue with no open class for a moment has sent a consumer away.
func (c *core) notice() {
	for _, q := range c.out.events.ready {
		q.becameReady = false
		if q.scheduler.hasOpen() && !q.scheduler.announced && c.queues.byName[q.name] == q {
			q.scheduler.announced = true
			c.emitQueue(EventReady, q)
		}
	}
	for _, q := range c.out.events.shrunk {
		q.shrunk = false
		if q.total == 0 && c.queues.byName[q.name] == q {
			c.emitQueue(EventEmpty, q)
		}
	}
	c.out.events.ready, c.out.events.shrunk = c.out.events.ready[:0], c.out.events.shrunk[:0]
}

// drop forgets the events of a batch that has failed.
func (e *events) drop() { e.open, e.ready, e.shrunk = nil, nil, nil }

// turned is the task that says that the breaker of a hook has opened or closed.
type turned struct {
	hook  hook.Hook
	state hook.BreakerState
}

// Apply tells of the queue that has the hook, if one has it still.
func (t turned) Apply(tx *Tx) error {
	c := tx.core
	if !c.listened(EventBreaker) {
		return nil
	}
	for name, hooks := range c.out.snapshot.hooks.from("") {
		if hooks[t.hook.Kind()] == t.hook { // a compiled hook is in one queue
			c.emit(Event{Kind: EventBreaker, Queue: name, Hook: t.hook.Kind(), State: t.state})
		}
	}
	return nil
}

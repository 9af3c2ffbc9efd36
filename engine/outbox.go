package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// outbox is what turns have produced and the loop carries on: the open batch, the replies
// that wait for its commit, early replies, off-loop jobs and events.
type outbox struct {
	batch     *storage.Batch // open: turns add to it until it is cut
	spare     *storage.Batch // committed: its memory is reused for the next one; nil: none is free
	sync      bool           // a reply of the open batch promises durability
	batchNo   uint64
	committed uint64  // all batches up to this one are in the store
	released  []*Task // done when the open batch is committed
	early     []*Task // done before any commit, see early_reply.go
	jobs      []job
	events    events

	snapshot *Snapshot // what connections see
	key      []byte    // scratch for keys of the store

	untimed
	unchecked
}

func (o *outbox) reset() {
	o.batch.Reset()
	o.sync, o.jobs = false, nil
	o.events.drop()
}

// work is what a cut takes from the core and carries to the store.
type work struct {
	no     uint64
	batch  *storage.Batch // nil: nothing to write
	sync   bool
	tasks  []*Task
	jobs   []job // to be done after the commit: they see it
	events []Event
}

// job is work off the loop: a read of the store, a hook. It runs after the commit of the
// batch in which it was asked for, and its result comes back through the inbox as a call.
type job interface {
	Call
	do(store Store)
}

// cut ends the open batch and opens the next; nil if there is nothing to carry.
func (c *core) cut() *work {
	if c.out.batch.Len() == 0 && len(c.out.released) == 0 && len(c.out.jobs) == 0 && len(c.out.events.open) == 0 {
		return nil
	}
	w := &work{no: c.out.batchNo, sync: c.out.sync, tasks: c.out.released, jobs: c.out.jobs, events: c.out.events.open}
	if c.out.batch.Len() > 0 {
		w.batch = c.out.batch
		c.out.batch, c.out.spare = c.out.spare, nil
		if c.out.batch == nil {
			c.out.batch = &storage.Batch{}
		}
	}
	c.out.batchNo++
	c.out.sync, c.out.released, c.out.jobs, c.out.events.open = false, nil, nil, nil
	c.tasks.budget.sliced = 0
	return w
}

// messageKey builds a message's key in the scratch buffer.
func (c *core) messageKey(m *message) []byte {
	c.out.key = storage.AppendMessageKey(c.out.key[:0], m.key.queue.no, m.key.name, m.rank, m.id)
	return c.out.key
}

// refuse answers everything of the open batch after a failed commit: it was not
// written, and what it built upon was not either.
func (c *core) refuse(cause error) {
	c.health.failed = cause
	c.loseBackups(c.out.jobs)
	refuse(c.out.released, cause)
}

// refuse makes tasks end with ErrMisconf that would have ended well.
func refuse(tasks []*Task, cause error) {
	for _, t := range tasks {
		if t.err == nil {
			t.err = fmt.Errorf("%w: %w", ErrMisconf, cause)
		}
	}
}

// A lease whose messages are all in the store is told at the end of its turn, and
// does not wait for the commit of its batch, nor for those before it. Why nobody
// can see the difference:
//
//  1. It promises nothing that has to be written: its record comes when the lease
//     has lasted for the lag, if it does. A crash before that forgets the lease,
//     whether the batch of its turn was committed or not.
//  2. What it tells of is in the store: the message was put there by a batch that
//     is committed, and as durably as the sync mode promises. So no crash and no
//     failed commit can make a message unwritten that somebody works on.
//  3. Nothing else it tells of is still to be written: it is the first hand-out, so
//     there is no failure, number of attempts or earlier lease of the message in
//     an open batch. Other leases wait for the commit that ends the one before.
//  4. Its delivery number is of this start, whose own number was written before
//     the first lease. A start or a recovery after it gives greater ones.
//  5. A failed commit in between drops the memory, and the lease with it, as it
//     does with every lease that was told before and is younger than the lag.
//     The receipt is then worth nothing: see 4.
//
// Replies of one client stay in order: the connection sees to that.

// mayReplyEarly says that the lease of a message that was just handed out may be told
// before the commit.
func (c *core) mayReplyEarly(m *message) bool {
	return c.cfg.LeaseLag > 0 && m.batch <= c.out.committed && m.deliveries == 1 && !m.retried && m.failure == nil
}

// takeEarly returns what is to be told before the commit, and keeps spare in its
// place, which is empty.
func (c *core) takeEarly(spare []*Task) []*Task {
	completed := c.out.early
	c.out.early = spare
	return completed
}

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
func (c *core) subscribed(kinds EventKind) bool { return c.out.events.wanted&kinds != 0 }

// emit adds an event to the open batch: it is told after its commit, if that
// succeeds.
func (c *core) emit(ev Event) {
	if c.subscribed(ev.Kind) {
		ev.Time = unix(c.now)
		c.out.events.open = append(c.out.events.open, ev)
	}
}

// emitMessage tells of a message. It must be called while m.key is the one that
// the event is about.
func (c *core) emitMessage(kind EventKind, m *message) {
	if c.subscribed(kind) {
		c.emit(Event{Kind: kind, Queue: m.key.queue.name, ID: m.id, Key: m.key.name})
	}
}

// emitFailure tells that a delivery has failed: the message is ready again at a
// time, or dead for a reason and in a dead-letter queue or dropped.
func (c *core) emitFailure(m *message, ev Event) {
	if !c.subscribed(ev.Kind) {
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
	if c.subscribed(EventReady) && !q.scheduler.announced && !q.becameReady {
		q.becameReady = true
		c.out.events.ready = append(c.out.events.ready, q)
	}
}

// noteShrunk remembers a queue that may be empty now.
func (c *core) markShrunk(q *queue) {
	if c.subscribed(EventEmpty) && q.total <= 0 && q.counted && !q.shrunk {
		q.shrunk = true
		c.out.events.shrunk = append(c.out.events.shrunk, q)
	}
}

// notice tells, at the end of a turn, which queues have become ready or empty.
// What was there in the middle of the turn only is nobody's business, but for
// one thing: a queue with no open class for a moment has sent a consumer away.
func (c *core) emitQueueStates() {
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
type breakerChange struct {
	hook  hook.Hook
	state hook.BreakerState
}

// Apply tells of the queue that has the hook, if one has it still.
func (t breakerChange) Apply(tx *Tx) error {
	c := tx.core
	if !c.subscribed(EventBreaker) {
		return nil
	}
	for name, hooks := range c.out.snapshot.hooks.from("") {
		if hooks[t.hook.Kind()] == t.hook { // a compiled hook is in one queue
			c.emit(Event{Kind: EventBreaker, Queue: name, Hook: t.hook.Kind(), State: t.state})
		}
	}
	return nil
}

package engine

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/engine/internal/writes"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// outbox collects what turns produce and the loop delivers: the open batch with the replies,
// events and off-loop jobs that follow its commit, and early replies that do not. A batch
// goes through these states, one batch in each of the first three at most:
//
//	open       turns add writes, concluded tasks, jobs and events
//	cut        the batch, as a work, is with the committer; a new batch is open
//	committed  the batch is in the store, as durable as Config.Sync promises
//	released   its tasks are done and their clients woken, then its events are sent and its
//	           jobs start, so that they read its writes
//	refused    the commit failed: its tasks end with ErrMisconf, and the loop recovers
//
//	open → cut            cut, when the committer is free
//	cut → committed       Work.Commit succeeds
//	cut → refused         Work.Commit fails; the batch that is open then is refused as well,
//	                      since turns have built on the failed one
//	committed → released  Release, by the driver
//
// Only the order of these steps makes replies durable: no component replies by itself.
type outbox struct {
	batch     *storage.Batch // the open batch
	spare     *storage.Batch // empty, of a committed batch, for reuse; nil: none is free
	sync      bool           // a reply of the open batch promises durability: commit with sync
	batchNo   uint64         // number of the open batch
	committed uint64         // all batches up to this number are in the store
	durable   *atomic.Uint64 // the same for connections, which learn it before the next turn
	released  []*Task        // concluded; done once the open batch is committed
	early     []*Task        // concluded; done at the end of the turn, see mayReplyEarly
	jobs      []job          // start once the open batch is committed
	events    events

	snapshot *Snapshot // what connections read without the loop: hooks and configuration
	key      []byte    // scratch for keys of the store

	untimed
	unchecked
}

// reset empties the open batch and drops its jobs and events. Concluded tasks remain: refuse
// has given them their error, and they are released with the next batch.
func (o *outbox) reset() {
	o.batch.Reset()
	o.sync, o.jobs = false, nil
	o.events.drop()
}

// awaitRead parks the task for a read that sees all batches up to the open one, and returns
// ErrWouldBlock. read runs off the loop. What it returns gives the result to the request, on the loop.
func (tx *Tx) awaitRead(read func(store Store) (give func())) error {
	tx.core.out.jobs = append(tx.core.out.jobs, &taskRead{task: tx.task, read: read})
	return tx.await()
}

// taskRead is the job of awaitRead.
type taskRead struct {
	task *Task
	read func(store Store) (give func())
	give func()
}

func (r *taskRead) do(store Store) { r.give = r.read(store) }

// Apply resumes the task with the result. After a recovery, the task has begun another read: the
// request decides whether it can use this one.
func (r *taskRead) Apply(tx *Tx) error {
	if r.task.wait != nil { // else it was concluded meanwhile, and the request is the client's
		r.give()
		r.task.resume(tx.core)
	}
	return nil
}

// writes returns the open batch as rooms see it, with the time of the turn.
func (o *outbox) writes(now int64) writes.Batch {
	return writes.Batch{Batch: o.batch, Number: o.batchNo, Now: now}
}

// cut closes the open batch, opens the next one and returns the closed one as a work, or nil
// if there is nothing to commit, reply, send or start.
func (c *core) cut() *Work {
	c.writeAccounts()
	c.groups.Records(c.out.batch)
	if c.out.batch.Len() == 0 && len(c.out.released) == 0 && len(c.out.jobs) == 0 && len(c.out.events.open) == 0 {
		return nil
	}
	w := &Work{
		no: c.out.batchNo, sync: c.out.sync && c.cfg.Sync == SyncAlways, confirm: c.cfg.Confirm != nil, durable: c.out.durable,
		tasks: c.out.released, jobs: c.out.jobs, events: c.out.events.open,
	}
	if c.out.batch.Len() > 0 {
		c.time.stamp(c)
		w.batch = c.out.batch
		c.out.batch, c.out.spare = c.out.spare, nil
		if c.out.batch == nil {
			c.out.batch = &storage.Batch{}
		}
	}
	c.out.batchNo++
	c.out.sync, c.out.released, c.out.jobs, c.out.events.open = false, nil, nil, nil
	c.tasks.budget.Cut()
	return w
}

// messageKey returns the storage key of a message in the scratch buffer: it is valid until
// the next call. Batches copy keys.
func (c *core) messageKey(m *message) []byte {
	c.out.key = storage.AppendMessageKey(c.out.key[:0], m.key.queue.no, m.key.name, m.rank, m.id)
	return c.out.key
}

// Early replies. The reply to a lease whose messages are all in the store leaves at the end
// of the turn and waits for no commit. This breaks no guarantee:
//
//  1. The reply promises no write. The lease record is deferred: it is written when the
//     lease has lasted Config.LeaseWriteDelay. A crash before that loses the lease, whether or not
//     the batch of its turn is committed.
//  2. The message is in the store: the batch that wrote it is committed, as durably as
//     Config.Sync promises. No crash and no failed commit can remove a message that a
//     consumer is processing.
//  3. The reply contains nothing else that is not committed: this is the first delivery, so
//     no failure, attempt or earlier lease of the message is in an open batch. All other
//     leases wait for the commit of the batch that ends the previous one.
//  4. The delivery number belongs to this start, whose number was committed before its first
//     lease. A later start or recovery gives greater numbers.
//  5. Credits that it was delivered on have been committed, so no crash takes back what the
//     budget had when the consumer got the message.
//  6. A failed commit in between drops the memory and the lease with it, like every lease
//     that is younger than Config.LeaseWriteDelay. By 4, its receipt is then invalid.
//
// The connection keeps the replies of one client in the order of its requests.

// mayReplyEarly reports whether the reply with this delivery of a message may leave before
// the commit of its batch.
func (c *core) mayReplyEarly(m *message) bool {
	return c.cfg.LeaseWriteDelay > 0 && m.batch <= c.out.committed && m.deliveries == 1 && !m.retried && m.failure == nil && (m.reserved == 0 || c.creditsCommitted(m))
}

// EventKind is the kind of an event, or a set of kinds.
type EventKind uint32

// The kinds of events. All but EventBudgetLow, EventBudgetEmpty and EventLost refer to a queue. Nodes of a cluster send
// each other the bits: a new kind comes last.
const (
	EventEnqueued    EventKind = 1 << iota // a message was stored
	EventReady                             // a queue that could deliver nothing has a message that no waiting consumer took
	EventEmpty                             // the last message of a queue is gone
	EventAcked                             // a message was acked
	EventFailed                            // a delivery failed, and the message will be delivered again
	EventDead                              // a message was moved to the dead-letter queue, or dropped if there is none
	EventCreated                           // a queue was created
	EventAltered                           // the settings of a queue were changed
	EventDeleted                           // a queue was deleted
	EventBound                             // a queue was bound to a topic
	EventUnbound                           // a queue is no longer bound to a topic
	EventBreaker                           // the breaker of a hook changed its state
	EventBudgetLow                         // the balance of a budget has fallen below its LOW
	EventBudgetEmpty                       // a key waits for a budget that does not cover its next message
	EventLost                              // events were dropped because the listener was too slow
	EventProgress                          // a consumer has said how far its work on a message is
)

// EventKinds lists all kinds in the order of their bits.
func EventKinds() []EventKind {
	return []EventKind{
		EventEnqueued, EventReady, EventEmpty, EventAcked, EventFailed, EventDead, EventCreated, EventAltered, EventDeleted, EventBound, EventUnbound, EventBreaker, EventBudgetLow, EventBudgetEmpty, EventLost, EventProgress,
	}
}

// String returns the name of a kind, or the names of a set joined by "|".
func (k EventKind) String() string {
	names := map[EventKind]string{
		EventEnqueued: "enqueued", EventReady: "ready", EventEmpty: "empty", EventAcked: "acked", EventFailed: "failed", EventDead: "dead",
		EventCreated: "created", EventAltered: "altered", EventDeleted: "deleted", EventBound: "bound", EventUnbound: "unbound",
		EventBreaker: "breaker", EventBudgetLow: "budget_low", EventBudgetEmpty: "budget_empty", EventLost: "lost",
		EventProgress: "progress",
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

// Event reports something that has happened. It is sent after the commit of its batch and is
// then as durable as a reply, except for EventBreaker, EventProgress and EventLost, which are not stored.
// Fields that do not apply to the kind are zero.
type Event struct {
	Kind  EventKind
	Time  time.Time // time of the turn
	Queue string

	ID      ID        // of the message
	Fence   uint64    // number of the last delivery; 0: there was none
	Key     string    // fairness key of the message
	Attempt uint32    // number of the attempt that failed, from 1
	Error   string    // error text of the failure
	ReadyAt time.Time // when the message is ready again
	Reason  string    // why the message is dead: attempts, nack, on_failure, ttl
	DLQ     string    // queue that a dead message was moved to; "": it was dropped

	Hook  hook.Kind
	State hook.BreakerState

	Count uint64 // number of dropped events

	Progress string // how far the work on the message is

	Topic string // that the queue was bound to

	Budget             string
	Balance, Available int64 // of the budget
}

// events holds the kinds of events that have subscribers, and the events of the open batch.
// No decision of a turn depends on it.
type events struct {
	wanted EventKind
	open   []Event  // of the open batch, in order
	ready  []*queue // have gained a key in an open class in this turn
	shrunk []*queue // have lost a message in this turn, and may be empty
}

// Want is the call that sets the kinds of events that are emitted, in place of earlier ones. It goes through the
// inbox, so it applies to everything that is submitted after it.
type Want struct{ Kinds EventKind }

// Apply sets the kinds of events that are emitted.
func (w Want) Apply(tx *Tx) error {
	tx.core.out.events.wanted = w.Kinds
	return nil
}

// subscribed reports whether one of the kinds has a subscriber. An event without subscribers
// costs only this test.
func (c *core) subscribed(kinds EventKind) bool { return c.out.events.wanted&kinds != 0 }

// emit adds an event to the open batch. It is sent after the commit; a failed commit drops it.
func (c *core) emit(ev Event) {
	if c.subscribed(ev.Kind) {
		ev.Time = unix(c.now)
		c.out.events.open = append(c.out.events.open, ev)
	}
}

// emitMessage emits an event of a message. The caller calls it while m.key is the key that
// the event refers to, before a move to another queue.
func (c *core) emitMessage(kind EventKind, m *message) {
	if c.subscribed(kind) {
		c.emit(Event{Kind: kind, Queue: m.key.queue.name, ID: m.id, Key: m.key.name})
	}
}

// emitFailure completes and emits an event of a failed delivery: EventFailed with ReadyAt, or
// EventDead with Reason and DLQ.
func (c *core) emitFailure(m *message, ev Event) {
	if !c.subscribed(ev.Kind) {
		return
	}
	ev.Queue, ev.ID, ev.Fence, ev.Key, ev.Attempt = m.key.queue.name, m.id, m.fence, m.key.name, m.attempt-1
	if m.failure != nil {
		ev.Error = m.failure.text
	}
	c.emit(ev)
}

// emitQueue emits an event of a queue.
func (c *core) emitQueue(kind EventKind, q *queue) { c.emit(Event{Kind: kind, Queue: q.name}) }

// announceReady marks a queue that may be able to deliver again, for emitQueueStates.
func (c *core) announceReady(q *queue) {
	if c.subscribed(EventReady) && !q.order.Announced && !q.becameReady {
		q.becameReady = true
		c.out.events.ready = append(c.out.events.ready, q)
	}
}

// markShrunk marks a queue that may be empty now, for emitQueueStates.
func (c *core) markShrunk(q *queue) {
	if c.subscribed(EventEmpty) && q.figures.Total <= 0 && q.figures.Counted && !q.shrunk {
		q.shrunk = true
		c.out.events.shrunk = append(c.out.events.shrunk, q)
	}
}

// emitQueueStates emits, at the end of a turn, which queues have become ready or empty.
// States within the turn are not reported, with one exception: a queue that had no open
// class for a moment may have returned no message to a consumer, so it is announced again.
func (c *core) emitQueueStates() {
	for _, q := range c.out.events.ready {
		q.becameReady = false
		if q.order.HasOpen() && !q.order.Announced && c.queues.byName[q.name] == q {
			q.order.Announced = true
			c.emitQueue(EventReady, q)
		}
	}
	for _, q := range c.out.events.shrunk {
		q.shrunk = false
		if q.figures.Total == 0 && c.queues.byName[q.name] == q {
			c.emitQueue(EventEmpty, q)
		}
	}
	c.out.events.ready, c.out.events.shrunk = c.out.events.ready[:0], c.out.events.shrunk[:0]
}

// drop drops the events of a batch that is not committed.
func (e *events) drop() { e.open, e.ready, e.shrunk = nil, nil, nil }

// HookTurned is the call that reports a new state of a hook's breaker.
type HookTurned struct {
	Hook  hook.Hook
	State hook.BreakerState
}

// Apply emits the event for the queue that has the hook, if there still is one.
func (t HookTurned) Apply(tx *Tx) error {
	c := tx.core
	if !c.subscribed(EventBreaker) {
		return nil
	}
	for name, hooks := range c.out.snapshot.hooks.From("") {
		if hooks.by[t.Hook.Kind()] == t.Hook { // each queue has compiled its own
			c.emit(Event{Kind: EventBreaker, Queue: name, Hook: t.Hook.Kind(), State: t.State})
		}
	}
	return nil
}

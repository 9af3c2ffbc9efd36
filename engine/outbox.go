package engine

import (
	"sync/atomic"

	"github.com/faisca/fila/engine/event"
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
	if c.out.batch.Len() == 0 && len(c.out.released) == 0 && len(c.out.jobs) == 0 && c.out.events.Len() == 0 {
		return nil
	}
	w := &Work{
		no: c.out.batchNo, sync: c.out.sync && c.cfg.Sync == SyncAlways, confirm: c.cfg.Confirm != nil, durable: c.out.durable,
		tasks: c.out.released, jobs: c.out.jobs, events: c.out.events.Take(),
	}
	if c.out.batch.Len() > 0 {
		c.time.PutAlong(c.now, c.cfg.KeepTime, c.out.batch)
		w.batch = c.out.batch
		c.out.batch, c.out.spare = c.out.spare, nil
		if c.out.batch == nil {
			c.out.batch = &storage.Batch{}
		}
	}
	c.out.batchNo++
	c.out.sync, c.out.released, c.out.jobs = false, nil, nil
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

type (
	// Event reports something that has happened, see package event.
	Event = event.Event
	// EventKind is the kind of an event, or a set of kinds.
	EventKind = event.Kind
)

// The kinds of events.
const (
	EventEnqueued    = event.Enqueued
	EventReady       = event.Ready
	EventEmpty       = event.Empty
	EventAcked       = event.Acked
	EventFailed      = event.Failed
	EventDead        = event.Dead
	EventCreated     = event.Created
	EventAltered     = event.Altered
	EventDeleted     = event.Deleted
	EventBound       = event.Bound
	EventUnbound     = event.Unbound
	EventBreaker     = event.Breaker
	EventBudgetLow   = event.BudgetLow
	EventBudgetEmpty = event.BudgetEmpty
	EventLost        = event.Lost
	EventProgress    = event.Progress
)

// EventKinds lists all kinds in the order of their bits.
func EventKinds() []EventKind { return event.Kinds() }

// events holds the events of the open batch, and queues whose state may have changed in a turn.
type events struct {
	event.Open

	ready  []*queue // have gained a key in an open class in this turn
	shrunk []*queue // have lost a message in this turn, and may be empty
}

// Want is the call that sets the kinds of events that are emitted, in place of earlier ones. It goes through the
// inbox, so it applies to everything that is submitted after it.
type Want struct{ Kinds EventKind }

// Apply sets the kinds of events that are emitted.
func (w Want) Apply(tx *Tx) error {
	tx.core.out.events.Want(w.Kinds)
	return nil
}

// subscribed reports whether one of the kinds has a subscriber. An event without subscribers
// costs only this test.
func (c *core) subscribed(kinds EventKind) bool { return c.out.events.Subscribed(kinds) }

// emit adds an event to the open batch. It is sent after the commit; a failed commit drops it.
func (c *core) emit(ev Event) {
	if c.subscribed(ev.Kind) {
		ev.Time = unix(c.now)
		c.out.events.Add(ev)
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
		ev.Error = m.failure.Text
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
func (e *events) drop() {
	e.Take()
	e.ready, e.shrunk = nil, nil
}

// BreakerChanged is the call that reports a new state of a hook's breaker.
type BreakerChanged struct {
	Hook  hook.Hook
	State hook.BreakerState
}

// Apply emits the event for the queue that has the hook, if there still is one.
func (t BreakerChanged) Apply(tx *Tx) error {
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

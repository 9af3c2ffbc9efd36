package engine

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/faisca/fila/engine/consumers"
	"github.com/faisca/fila/engine/internal/intrusive"
	"github.com/faisca/fila/engine/internal/rotation"
)

// waitSet holds the parked tasks. A call that cannot continue parks its task with the kind of
// its wait and returns ErrWouldBlock. Every parked task continues by Task.resume, which applies
// the call again, from its beginning:
//
//	running ──park──▶ parked ──resume──▶ running ──▶ concluded, or parked again
//	                    │
//	                    └─────end──────▶ concluded
//
// What resumes a task, and what ends its wait without its call being applied again:
//
//	kind           in lines  resumed by                            ended by
//	waitMessages   yes       serveQueue, for a message             its time, Unblock, leave, stop,
//	                                                               a deleted queue
//	waitEnd        no        nothing                               the end of the message (tell),
//	                                                               its time, Unblock, leave, stop,
//	                                                               a deleted queue
//	waitReads      yes       serveQueue, for a message or when     a failed read, leave, stop,
//	                         nothing is being read any more        a deleted queue
//	waitPreflight  yes       as waitReads, and by a deleted queue  a failed read, stop
//	waitResult     no        the result: an off-loop job, the      stop
//	                         census, the end of a backup or of
//	                         a redrive
//	waitTurn       no        resumeYielded, in the next turn       stop
//
// The last three are waits of a command in progress: when its client leaves it is completed,
// and a stop refuses it with ErrStopped. The others end without a message.
//
// A task may be resumed although what it waits for has not happened, and then waits again:
// Apply decides by what it finds. A task that is parked again for the same keeps its place in
// the lines and its end; parked for something else it leaves them. A parked task blocks the
// later tasks of its client. A recovery queues all of them again (unparkAll).
type waitSet struct {
	timed     intrusive.Heap[*wait]      // waits with an end
	parked    map[uint64]*Task           // by id of the client
	rotations rotation.Rotations[*queue] // of the lists of queues that leases have named
	key       []byte                     // scratch

	unblocked []*Task // were queued behind a task that is no longer blocked

	unchecked
}

// reset does nothing: recover queues the parked tasks again.
func (s *waitSet) reset() {}

// next returns the end of the wait that ends first.
func (s *waitSet) next(*core) int64 {
	if w, ok := s.timed.First(); ok {
		return w.until
	}
	return never
}

// expire ends the waits whose end has come, without a message and without an error.
func (s *waitSet) expire(c *core) {
	for c.room() {
		w, ok := s.timed.First()
		if !ok || w.until > c.now {
			break
		}
		c.spend(1)
		c.finish(w.task, nil)
	}
}

// waitKind is what a parked task waits for. See waitSet.
type waitKind uint8

const (
	waitMessages  waitKind = iota // a lease that blocks, for messages of its queues
	waitEnd                       // a request for a result that blocks, for the end of the message
	waitReads                     // a lease that does not block, for the window reads of its queues
	waitPreflight                 // a transaction, for the window reads of a lease in it
	waitResult                    // a read, a decision or the end of an operation
	waitTurn                      // the budget of a later turn
)

// idle reports whether the task waits for what other clients do, as long as its client likes.
func (k waitKind) idle() bool { return k <= waitEnd }

// inProgress reports whether the command has begun: it must not end as if it had been
// completed without a message.
func (k waitKind) inProgress() bool { return k >= waitPreflight }

// forReads reports whether the wait is over once nothing is being read for its queues.
func (k waitKind) forReads() bool { return k == waitReads || k == waitPreflight }

// wait is the wait of a parked task.
type wait struct {
	task  *Task
	kind  waitKind
	nodes []waiter    // its places in the lines of its queues
	one   [1]waiter   // memory of nodes for a single queue, which so needs no allocation
	ends  *resultWait // requests that the ends of messages answer; nil: none
	until int64       // end in Unix nanoseconds, of idle waits only; 0: none
	timer int         // index in waitSet.timed, or -1
}

func (w *wait) Before(o *wait) bool { return w.until < o.until }
func (w *wait) Index() *int         { return &w.timer }

// waiter is the place of a wait in the line of one queue.
type waiter struct {
	wait     *wait
	queue    *queue
	consumer *consumers.Consumer // that waits; nil: none does, as the task waits for something else than messages, or has no client
	intrusive.Links[waiter]
}

// waiters is the line of the waits for a queue, first come first served. A wait costs nothing
// while it is in the line: serve looks only at the first, and only when the queue may deliver.
// The list is linked through the waits, so leaving takes O(1) and no allocation.
type waiters struct {
	intrusive.List[waiter, *waiter]
}

// park makes the task of tx wait, in the lines of queues if there are any, and returns
// ErrWouldBlock. until is the end of a wait for messages, 0 for none.
func (tx *Tx) park(kind waitKind, queues []*queue, until int64) error {
	c, t := tx.core, tx.task
	w := t.wait
	switch {
	case w == nil:
		w = &wait{task: t, kind: kind, timer: -1}
		t.wait = w
		if t.Client != nil {
			t.Client.blocked = t
			c.waits.parked[t.Client.ID] = t
		}
	case w.kind == kind && (kind != waitPreflight || w.waitsIn(queues)): // calls of a transaction wait for different queues
		return ErrWouldBlock
	default:
		c.leaveLines(w)
		w.kind = kind
	}
	c.joinLines(w, queues)
	if w.until = until; until > 0 {
		c.waits.timed.Push(w)
	}
	if kind.idle() {
		c.markHeldUp(t)
	}
	if t.Client != nil {
		t.Client.waits.Store(kind.idle())
	}
	return ErrWouldBlock
}

// parkConsumer parks the task of a consumer that waits for messages of queues. See park.
func (tx *Tx) parkConsumer(name string, queues []*queue, until int64) error {
	err := tx.park(waitMessages, queues, until)
	c, w := tx.core, tx.task.wait
	for i := range w.nodes {
		if n := &w.nodes[i]; n.consumer == nil && tx.task.Client != nil { // else it has waited before
			n.consumer = c.leases.consumerOf(tx.task.Client, n.queue, name)
			c.leases.register.Wait(n.consumer, 1)
		}
	}
	return err
}

// await parks the task until the result that it waits for resumes it.
func (tx *Tx) await() error { return tx.park(waitResult, nil, 0) }

// resume applies the call of a parked task again. It does nothing if the wait has ended
// meanwhile: see waitSet.
func (t *Task) resume(c *core) {
	if t.wait != nil {
		c.run(t)
	}
}

// joinLines appends a wait to the lines of queues.
func (c *core) joinLines(w *wait, queues []*queue) {
	if w.nodes = w.one[:0]; len(queues) > len(w.one) {
		w.nodes = make([]waiter, 0, len(queues)) // the lines point to nodes: they must not move
	}
	for _, q := range queues {
		w.nodes = append(w.nodes, waiter{wait: w, queue: q})
		q.waiters.PushBack(&w.nodes[len(w.nodes)-1])
		q.figures.Wait(1)
		if q.waiters.Len() == 1 {
			q.order.Demand(true)
		}
		if q.order.Loaded() {
			q.order.Offer() // it may have become able to deliver while the other queues were tried
		}
	}
}

// waitsIn reports whether the wait is in the lines of exactly these queues, in this order.
func (w *wait) waitsIn(queues []*queue) bool {
	return slices.EqualFunc(w.nodes, queues, func(n waiter, q *queue) bool { return n.queue == q })
}

// leaveLines removes a wait from the lines of its queues and from the timers. A queue without a
// waiting consumer reserves no capacity of throttles.
func (c *core) leaveLines(w *wait) {
	for i := range w.nodes {
		q := w.nodes[i].queue
		q.waiters.Remove(&w.nodes[i])
		if who := w.nodes[i].consumer; who != nil {
			c.leases.register.Wait(who, -1)
		}
		q.figures.Wait(-1)
		if q.waiters.Head() == nil {
			q.order.Demand(false)
		}
	}
	w.nodes = nil
	if w.timer >= 0 {
		c.waits.timed.Remove(w)
	}
}

// blockUntil returns the end of a wait of a duration that begins now, at most Config.MaxBlock
// long. A duration of 0 has no end, and neither has the result 0. A task that had a wait
// before a recovery keeps its end.
func (tx *Tx) blockUntil(block time.Duration) int64 {
	c := tx.core
	if tx.task.deadline > 0 {
		return tx.task.deadline
	}
	if most := c.cfg.MaxBlock; most > 0 && (block == 0 || block > most) {
		block = most
	}
	if block == 0 {
		return 0
	}
	return c.now + int64(block)
}

// unpark ends the wait of a task: it leaves every line, and the tasks of its client that were
// queued behind it are unblocked.
func (c *core) unpark(t *Task) {
	w := t.wait
	t.wait = nil
	c.leaveLines(w)
	w.leaveMessages()
	if cl := t.Client; cl != nil {
		cl.blocked = nil
		cl.waits.Store(false)
		delete(c.waits.parked, cl.ID)
		c.waits.unblocked = append(c.waits.unblocked, cl.queued...)
		cl.queued = nil
	}
}

// loading reports whether messages are being read for a queue of the wait.
func (w *wait) loading() bool {
	for i := range w.nodes {
		if w.nodes[i].queue.awaitingRead > 0 {
			return true
		}
	}
	return false
}

// Unblock ends the wait of a client for messages or for the end of one: without it, or with
// ErrUnblocked. It returns whether the client had such a wait; other waits are not ended.
func (tx *Tx) Unblock(clientID uint64, withError bool) bool {
	t := tx.core.waits.parked[clientID]
	if t == nil || !t.wait.kind.idle() {
		return false
	}
	var err error
	if withError {
		err = ErrUnblocked
	}
	tx.core.finish(t, err)
	return true
}

// Leave is the call that reports that a client has disconnected.
type Leave struct{ Client *Client }

// Apply ends the client's wait for messages, and refuses the tasks queued behind it, as Redis
// does. A command in progress is completed, and so are the tasks behind that.
func (l Leave) Apply(tx *Tx) error {
	cl := l.Client
	cl.gone = true
	if cl.blocked == nil || cl.blocked.wait.kind.inProgress() {
		return nil
	}
	behind := cl.queued
	cl.queued, cl.dropped = nil, true
	tx.core.finish(cl.blocked, ErrClientGone)
	for _, t := range behind {
		tx.core.finish(t, ErrClientGone)
	}
	return nil
}

// A lease of several queues takes messages from them in rotation. The rotation belongs to the
// list of queues, not to a connection: a lease continues where the last lease of the same
// list has ended, whichever client made it. Leases of different lists that share a queue do
// not affect each other's rotation.

// rotation returns the rotation of a list of queues, nil for a single queue.
func (s *waitSet) rotation(queues []*queue) *rotation.Rotation[*queue] {
	if len(queues) < 2 {
		return nil
	}
	s.key = s.key[:0]
	for _, q := range queues {
		s.key = binary.BigEndian.AppendUint32(s.key, q.no)
	}
	return s.rotations.Of(s.key)
}

// waitingTasks returns the parked tasks: first those in the lines of queues, the oldest
// first in each, then those that wait for a read, a hook or a transaction, by client, then
// the engine's own that have yielded. The order is the same for the same state.
func (c *core) waitingTasks() []*Task {
	var all []*Task
	seen := map[*Task]bool{}
	for _, name := range c.queueNames() {
		for n := c.queues.byName[name].waiters.Head(); n != nil; n = n.Next() {
			if t := n.wait.task; !seen[t] {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.waits.parked)) {
		if t := c.waits.parked[id]; !seen[t] {
			all = append(all, t)
		}
	}
	for _, t := range c.tasks.yielded {
		if t.Client == nil && t.wait != nil {
			all = append(all, t)
		}
	}
	return all
}

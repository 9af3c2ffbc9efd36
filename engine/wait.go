package engine

import (
	"encoding/binary"
	"slices"
	"time"
)

// waitSet is the parked tasks, and what may let them go on.
type waitSet struct {
	timed     timers[*wait]    // those with an end
	parked    map[uint64]*Task // by client
	rotations rotations

	offers    []*queue // have something to deliver, and waiters
	resumed   []*queue // had too much to look at for one turn
	unblocked []*Task  // were queued behind a task that is no longer blocked

	unchecked
}

// reset forgets which queues have something to deliver. Parked tasks are put in line again
// by recover.
func (s *waitSet) reset() { s.offers, s.resumed = nil, nil }

func (s *waitSet) next(*core) int64 {
	if w, ok := s.timed.next(); ok {
		return w.until
	}
	return never
}

// expire ends the waits whose time is over, empty-handed.
func (s *waitSet) expire(c *core) {
	for c.room() {
		w, ok := s.timed.next()
		if !ok || w.until > c.now {
			break
		}
		c.spend(1)
		c.finish(w.task, nil)
	}
}

// wait is what is known of a parked task: where and until when it waits.
type wait struct {
	task  *Task
	nodes []waiter // one for each queue
	until int64    // 0: for ever
	timer int
	// onlyLoading says that the task does not block: it waits for messages that
	// are on their way from the disk, and gives up when there are none.
	untilLoaded bool
	// atomic says that the task is several calls in one, see Exec.
	atomic bool
}

// begun says that the task does not wait for messages to lease but for something
// to be read or decided, in the middle of what it does: it must not end as if it
// had been done.
func (w *wait) inProgress() bool { return len(w.nodes) == 0 || w.atomic }

func (w *wait) before(o *wait) bool { return w.until < o.until }
func (w *wait) index() *int         { return &w.timer }

// waiter is a wait's entry in the line of one queue.
type waiter struct {
	wait       *wait
	queue      *queue
	prev, next *waiter
}

// waiters is the line of those who wait for a queue, first come first served.
// It costs nothing to stand in: only the head is looked at, and only when the
// queue has something.
type waiters struct {
	first, last *waiter
	n           int
}

func (l *waiters) add(w *waiter) {
	w.prev = l.last
	if l.last != nil {
		l.last.next = w
	} else {
		l.first = w
	}
	l.last = w
	l.n++
}

func (l *waiters) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		l.last = w.prev
	}
	w.prev, w.next = nil, nil
	l.n--
}

// park makes the task of tx wait for the queues until a time, 0: for ever. A
// task that waits already keeps its place in each line and its end.
//
// The calls of Exec wait one after the other, each for something of its own.
func (tx *Tx) park(queues []*queue, until int64, untilLoaded bool) {
	c, t := tx.core, tx.task
	if w := t.wait; w != nil {
		if w.atomic && !w.waitsIn(queues) { // where it does, it keeps its place
			c.leaveLines(w)
			c.joinLines(w, queues)
			w.untilLoaded = untilLoaded
		}
		return
	}
	w := &wait{task: t, until: until, untilLoaded: untilLoaded, atomic: tx.atomic, timer: -1}
	c.joinLines(w, queues)
	if t.resume > 0 {
		w.until = t.resume
	}
	if w.until > 0 {
		c.waits.timed.push(w)
	}
	t.wait = w
	if !untilLoaded && !w.inProgress() {
		c.markHeldUp(t)
	}
	if t.Client != nil {
		t.Client.blocked = t
		t.Client.waits.Store(!untilLoaded && !w.inProgress())
		c.waits.parked[t.Client.ID] = t
	}
}

// standInLine puts a wait into the lines of queues.
func (c *core) joinLines(w *wait, queues []*queue) {
	w.nodes = make([]waiter, 0, len(queues))
	for _, q := range queues {
		w.nodes = append(w.nodes, waiter{wait: w, queue: q})
		q.waiters.add(&w.nodes[len(w.nodes)-1])
		if q.scheduler.loaded() {
			c.offer(q) // a key has joined while another queue was asked
		}
	}
}

// standsIn says that the wait stands in the lines of just these queues.
func (w *wait) waitsIn(queues []*queue) bool {
	return slices.EqualFunc(w.nodes, queues, func(n waiter, q *queue) bool { return n.queue == q })
}

// leaveLines takes a wait out of the lines of its queues. A queue without a consumer
// keeps no room in throttles.
func (c *core) leaveLines(w *wait) {
	for i := range w.nodes {
		q := w.nodes[i].queue
		q.waiters.remove(&w.nodes[i])
		if q.waiters.first == nil {
			c.unreserveQueue(q)
		}
	}
	w.nodes = nil
}

// blockUntil is when a wait of a duration ends that begins now; 0 is for ever.
func (c *core) blockUntil(block time.Duration) int64 {
	if most := c.cfg.MaxBlock; most > 0 && (block == 0 || block > most) {
		block = most
	}
	if block == 0 {
		return 0
	}
	return c.now + int64(block)
}

// unpark takes a task out of every line and lets those behind it go on.
func (c *core) unpark(t *Task) {
	w := t.wait
	t.wait = nil
	c.leaveLines(w)
	if w.timer >= 0 {
		c.waits.timed.remove(w)
	}
	if cl := t.Client; cl != nil {
		cl.blocked = nil
		cl.waits.Store(false)
		delete(c.waits.parked, cl.ID)
		c.waits.unblocked = append(c.waits.unblocked, cl.queued...)
		cl.queued = nil
	}
}

// serve gives what became ready to those who wait. It runs after apply and
// before the cut: what it leases is in the same batch as what made it ready, or
// a crash could lose one and keep the other.
func (c *core) serve() {
	if c.health.failed != nil {
		c.throttles.notified = nil // nothing is delivered, and recovery makes all throttles anew
	}
	for c.room() {
		switch {
		case len(c.throttles.notified) > 0:
			c.wakeAll() // before anything else could take the room
		case len(c.waits.offers) > 0:
			q := c.waits.offers[0]
			c.waits.offers = c.waits.offers[1:]
			q.offered = false
			c.serveQueue(q)
		case len(c.waits.unblocked) > 0:
			c.applyUnblocked()
		default:
			c.waits.offers, c.waits.unblocked = nil, nil
			return
		}
	}
}

// serveQueue runs the tasks that wait for a queue for as long as it can deliver. A lease
// that asks may wake throttles, and so come here while it is the first in line: then it
// takes the next message itself, and the queue is served again after it.
func (c *core) serveQueue(q *queue) {
	for q.scheduler.hasOpen() && q.waiters.first != nil && c.health.failed == nil {
		if !c.room() {
			c.offer(q)
			return
		}
		first := q.waiters.first
		if first.wait.task.running {
			c.offer(q)
			return
		}
		c.run(first.wait.task)
		if q.waiters.first == first {
			break // it could take nothing after all
		}
	}
	if q.awaitingRead > 0 {
		return
	}
	for n := q.waiters.first; n != nil; {
		w := n.wait
		n = n.next
		if w.untilLoaded && w.task.wait == w && !w.task.running && !w.loading() {
			c.run(w.task) // there is nothing to wait for: it ends, or goes on without
		}
	}
}

// loading says that a queue of the wait may still get messages from the disk.
func (w *wait) loading() bool {
	for i := range w.nodes {
		if w.nodes[i].queue.awaitingRead > 0 {
			return true
		}
	}
	return false
}

// Unblock ends the wait of another client's task: empty-handed, or with
// ErrUnblocked. It reports whether that client was blocked.
func (tx *Tx) Unblock(clientID uint64, withError bool) bool {
	t := tx.core.waits.parked[clientID]
	if t == nil || t.wait.untilLoaded || t.wait.inProgress() {
		return false // it does not wait for messages
	}
	var err error
	if withError {
		err = ErrUnblocked
	}
	tx.core.finish(t, err)
	return true
}

// leave is the task that says that a client has gone.
type leave struct{ client *Client }

// Apply ends the client's wait for messages. What it had sent behind that is not
// executed, as in Redis. A command that has begun is finished, and so is what
// stands behind it.
func (l leave) Apply(tx *Tx) error {
	cl := l.client
	cl.gone = true
	if cl.blocked == nil || cl.blocked.wait.inProgress() {
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

// A lease of several queues takes messages from them in turns. The turn belongs to the
// set of queues, not to a connection and not to the broker: it goes on where the last
// lease of the same queues has ended, whichever client made it and whatever other calls
// came between. Each set of queues has its own turn; two sets that have a queue in common
// are served in the order in which their clients ask.

// rotationsMax bounds the sets of queues whose turn is known. Beyond it, the set that
// became known first starts again with its first queue.
const rotationsMax = 4096

// rotations are the turns of the sets of queues that leases have asked for.
type rotations struct {
	bySet map[string]*rotation
	sets  []string // the one that became known first is first
	key   []byte   // scratch
}

// rotation is whose turn it is in a set of queues.
type rotation struct{ last *queue } // that delivered last

// of returns the turn of a set of queues; nil for a single one.
func (r *rotations) of(queues []*queue) *rotation {
	if len(queues) < 2 {
		return nil
	}
	r.key = r.key[:0]
	for _, q := range queues {
		r.key = binary.BigEndian.AppendUint32(r.key, q.no)
	}
	if turn := r.bySet[string(r.key)]; turn != nil {
		return turn
	}
	if len(r.sets) >= rotationsMax {
		delete(r.bySet, r.sets[0])
		r.sets = r.sets[1:]
	}
	if r.bySet == nil {
		r.bySet = map[string]*rotation{}
	}
	set, turn := string(r.key), &rotation{}
	r.bySet[set], r.sets = turn, append(r.sets, set)
	return turn
}

// start returns the index of the queue whose turn it is.
func (r *rotation) start(queues []*queue) int {
	if r == nil || r.last == nil {
		return 0
	}
	return slices.Index(queues, r.last) + 1
}

// served notes that a queue has delivered.
func (r *rotation) served(q *queue) {
	if r != nil {
		r.last = q
	}
}

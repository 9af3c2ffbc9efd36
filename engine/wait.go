package engine

import (
	"slices"
	"time"
)

// wait is what is known of a parked task: where and until when it waits.
type wait struct {
	task  *Task
	nodes []waiter // one for each queue
	until int64    // 0: for ever
	timer int
	// onlyLoading says that the task does not block: it waits for messages that
	// are on their way from the disk, and gives up when there are none.
	onlyLoading bool
	// atomic says that the task is several calls in one, see Exec.
	atomic bool
}

// begun says that the task does not wait for messages to lease but for something
// to be read or decided, in the middle of what it does: it must not end as if it
// had been done.
func (w *wait) begun() bool { return len(w.nodes) == 0 || w.atomic }

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
func (tx *Tx) park(queues []*queue, until int64, onlyLoading bool) {
	c, t := tx.core, tx.task
	if w := t.wait; w != nil {
		if w.atomic && !w.standsIn(queues) { // where it does, it keeps its place
			c.leaveLines(w)
			c.standInLine(w, queues)
			w.onlyLoading = onlyLoading
		}
		return
	}
	w := &wait{task: t, until: until, onlyLoading: onlyLoading, atomic: tx.atomic, timer: -1}
	c.standInLine(w, queues)
	if t.resume > 0 {
		w.until = t.resume
	}
	if w.until > 0 {
		c.waits.push(w)
	}
	t.wait = w
	if !onlyLoading && !w.begun() {
		c.holdBack(t)
	}
	if t.Client != nil {
		t.Client.blocked = t
		t.Client.waits.Store(!onlyLoading && !w.begun())
		c.parked[t.Client.ID] = t
	}
}

// standInLine puts a wait into the lines of queues.
func (c *core) standInLine(w *wait, queues []*queue) {
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
func (w *wait) standsIn(queues []*queue) bool {
	return slices.EqualFunc(w.nodes, queues, func(n waiter, q *queue) bool { return n.queue == q })
}

// leaveLines takes a wait out of the lines of its queues. A queue without a consumer
// keeps no room in throttles.
func (c *core) leaveLines(w *wait) {
	for i := range w.nodes {
		q := w.nodes[i].queue
		q.waiters.remove(&w.nodes[i])
		if q.waiters.first == nil {
			c.giveUpAll(q)
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
		c.waits.remove(w)
	}
	if cl := t.Client; cl != nil {
		cl.blocked = nil
		cl.waits.Store(false)
		delete(c.parked, cl.ID)
		c.again = append(c.again, cl.behind...)
		cl.behind = nil
	}
}

// serve gives what became ready to those who wait. It runs after apply and
// before the cut: what it leases is in the same batch as what made it ready, or
// a crash could lose one and keep the other.
func (c *core) serve() {
	if c.failed != nil {
		c.notified = nil // nothing is delivered, and recovery makes all throttles anew
	}
	for c.room() {
		switch {
		case len(c.notified) > 0:
			c.wakeAll() // before anything else could take the room
		case len(c.offers) > 0:
			q := c.offers[0]
			c.offers = c.offers[1:]
			q.offered = false
			c.serveQueue(q)
		case len(c.again) > 0:
			c.goOn()
		default:
			c.offers, c.again = nil, nil
			return
		}
	}
}

// serveQueue runs the tasks that wait for a queue for as long as it can deliver. A lease
// that asks may wake throttles, and so come here while it is the first in line: then it
// takes the next message itself, and the queue is served again after it.
func (c *core) serveQueue(q *queue) {
	for q.scheduler.hasOpen() && q.waiters.first != nil && c.failed == nil {
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
	if q.starved > 0 {
		return
	}
	for n := q.waiters.first; n != nil; {
		w := n.wait
		n = n.next
		if w.onlyLoading && w.task.wait == w && !w.task.running && !w.loading() {
			c.run(w.task) // there is nothing to wait for: it ends, or goes on without
		}
	}
}

// loading says that a queue of the wait may still get messages from the disk.
func (w *wait) loading() bool {
	for i := range w.nodes {
		if w.nodes[i].queue.starved > 0 {
			return true
		}
	}
	return false
}

// Unblock ends the wait of another client's task: empty-handed, or with
// ErrUnblocked. It reports whether that client was blocked.
func (tx *Tx) Unblock(clientID uint64, withError bool) bool {
	t := tx.core.parked[clientID]
	if t == nil || t.wait.onlyLoading || t.wait.begun() {
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
	if cl.blocked == nil || cl.blocked.wait.begun() {
		return nil
	}
	behind := cl.behind
	cl.behind, cl.dropped = nil, true
	tx.core.finish(cl.blocked, ErrClientGone)
	for _, t := range behind {
		tx.core.finish(t, ErrClientGone)
	}
	return nil
}

package resp

import (
	"sync"
	"sync/atomic"
)

// replyQueue is the unwritten replies of one connection, in order. The reader appends;
// the writer takes everything at once and returns the room after writing.
//
// The writer sleeps by this protocol, so that a burst costs one wake-up and a busy writer
// none:
//
//  1. The writer finds nothing to do and sets sleeping.
//  2. It checks again: replies that became ready before step 1 are seen here.
//  3. It waits on alarm.
//  4. Wake resets sleeping and, if it was set, sends to alarm. Only one caller
//     can reset it, so the send never blocks.
//
// The caller that has reset sleeping has the state of the writer for itself until it sends to alarm or sets
// sleeping again. Conn.Answer takes the steps of the writer meanwhile.
type replyQueue struct {
	mu       sync.Mutex
	queue    *replyList  // pushed and not taken by the writer
	pending  int         // commands with replies in queue or at the writer
	busy     int         // entries in queue or at the writer
	pushes   [][]byte    // PushAsync bytes not taken by the writer
	async    int64       // PushAsync bytes here or at the writer
	held     int64       // bytes of finished replies among the entries
	reserved Reservation // reservations of replies, pushed or to be pushed
	closing  bool        // a closeReply is queued: later replies are dropped
	readDone bool        // the reader has ended
	waiting  bool        // the reader waits for room

	total *Budget // budget of all connections, from which reserved is taken

	pushed   atomic.Bool // pushes is not empty
	sleeping atomic.Bool
	alarm    chan struct{} // wakes the writer; capacity 1
	wider    chan struct{} // wakes the reader: there may be room; capacity 1
}

// replyList is one burst of replies and, once rendered, their ends in the stream.
type replyList struct {
	replies []Reply
	ends    []int64
}

// windowBytesMax is the size of finished replies at which the reader pauses.
const windowBytesMax = 1 << 20

// reservedFree is the allowance of a connection outside of the shared budget: short
// replies never wait for other connections.
const reservedFree = 32 << 10

// replyListKeep bounds the list that is kept in the pool.
const replyListKeep = 4096

func (p *pools) getList() *replyList {
	if l, ok := p.lists.Get().(*replyList); ok {
		return l
	}
	return &replyList{}
}

// putList returns a list, whose replies are cleared, to the pool.
func (p *pools) putList(l *replyList) {
	if cap(l.replies) > replyListKeep {
		return
	}
	l.replies, l.ends = l.replies[:0], l.ends[:0]
	p.lists.Put(l)
}

func (w *replyQueue) init(total *Budget) {
	w.total = total
	w.alarm = make(chan struct{}, 1)
	w.wider = make(chan struct{}, 1)
}

// push appends replies of commands. It reports whether the writer must be woken: only if
// the queue was empty, because otherwise the writer is running or waits for an earlier
// reply.
func (w *replyQueue) push(p *pools, replies []Reply) (alone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	alone = w.busy == 0
	if w.queue == nil {
		w.queue = p.getList()
	}
	w.queue.replies = append(w.queue.replies, replies...)
	for _, r := range replies {
		if b, ok := r.(bytesReply); ok {
			w.held += int64(len(b))
		}
	}
	w.pending += len(replies)
	w.busy += len(replies)
	return alone
}

// pushAsync appends bytes that answer no command. taken is false if the connection is
// ending or more than limit bytes would be pending (over). They are kept apart from the
// replies, so that a reply that is not ready does not block them.
func (w *replyQueue) pushAsync(b []byte, limit int64) (taken, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return false, false
	}
	if w.async+int64(len(b)) > limit {
		return false, true
	}
	w.pushes = append(w.pushes, b)
	w.async += int64(len(b))
	w.pushed.Store(true)
	return true, false
}

// takePushes returns the bytes of pushAsync and stores spare, which is empty, in their
// place.
func (w *replyQueue) takePushes(spare [][]byte) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.pushes
	w.pushes = spare
	w.pushed.Store(false)
	return taken
}

// pushesSent returns the room of n bytes from takePushes.
func (w *replyQueue) pushesSent(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.async -= n
}

// finish queues the end of the connection. Only the first call has an effect.
func (w *replyQueue) finish(p *pools) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return
	}
	w.closing = true
	if w.queue == nil {
		w.queue = p.getList()
	}
	w.queue.replies = append(w.queue.replies, closeReply{})
	w.busy++
}

// take returns everything that was pushed, or nil, and whether it is the last.
func (w *replyQueue) take() (l *replyList, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l = w.queue
	w.queue = nil
	return l, l == nil && w.readDone
}

// settled clears entries that were written or dropped, and returns their room.
func (w *replyQueue) settled(entries []Reply) {
	if len(entries) == 0 {
		return
	}
	commands := len(entries)
	var held int64
	var reserved Reservation
	for _, r := range entries {
		switch r := r.(type) {
		case bytesReply:
			held += int64(len(r))
		case *reservedReply:
			reserved.bytes += r.room.bytes
			reserved.shared += r.room.shared
		case closeReply:
			commands--
		}
	}
	w.mu.Lock()
	w.busy -= len(entries)
	w.pending -= commands
	w.held -= held
	w.add(Reservation{-reserved.bytes, -reserved.shared})
	wake := w.waiting
	w.waiting = false
	w.mu.Unlock()
	if reserved.shared > 0 {
		w.total.Give(reserved.shared)
	}
	clear(entries)
	if wake {
		w.wider <- struct{}{} // waiting was reset: only this send
	}
}

// awaitRoom returns how many commands the queue has room for. It blocks while there is
// none, or while windowBytesMax of finished replies are pending, until stop is set.
func (w *replyQueue) awaitRoom(windowMax int, stop *atomic.Bool) int {
	for {
		w.mu.Lock()
		room := windowMax - w.pending
		if room > 0 && w.held < windowBytesMax || stop.Load() {
			w.mu.Unlock()
			return room
		}
		w.waiting = true
		w.mu.Unlock()
		<-w.wider
	}
}

// Reservation is memory reserved for a reply.
type Reservation struct {
	bytes  int64
	shared int64 // the part taken from the shared budget
}

// Need is a request for memory.
type Need struct {
	Bytes int64
	// Own requests memory outside of the shared budget, for commands that may hold it as
	// long as the client likes.
	Own bool
	// Alone requests that no reply precedes the command.
	Alone bool
}

// reserve reserves memory for a reply that is not pushed yet, if it is available.
func (w *replyQueue) reserve(need Need, most int64) (Reservation, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fits(need, most) {
		return Reservation{}, false
	}
	r := w.room(need)
	if r.shared > 0 && !w.total.Try(r.shared) {
		return Reservation{}, false
	}
	w.add(r)
	return r, true
}

// fits reports whether the connection may reserve the memory. The caller holds mu.
func (w *replyQueue) fits(need Need, most int64) bool {
	return w.busy == 0 && w.reserved.bytes == 0 || !need.Alone && w.held+w.reserved.bytes+need.Bytes <= most
}

// room returns the memory for a need. The caller holds mu.
func (w *replyQueue) room(need Need) Reservation {
	r := Reservation{bytes: need.Bytes}
	if !need.Own {
		r.shared = max(0, min(need.Bytes, w.reserved.bytes+need.Bytes-reservedFree))
	}
	return r
}

func (w *replyQueue) add(r Reservation) {
	w.reserved.bytes += r.bytes
	w.reserved.shared += r.shared
}

// awaitReserve reserves memory and blocks until it is available; false: stop was set. The
// connection's own limit comes first: while it queues for the shared budget, earlier
// replies may still be written, and they need nothing that this call holds.
func (w *replyQueue) awaitReserve(need Need, most int64, stop *atomic.Bool) (Reservation, bool) {
	var r Reservation
	for {
		w.mu.Lock()
		if stop.Load() {
			w.mu.Unlock()
			return r, false
		}
		if w.fits(need, most) {
			r = w.room(need)
			w.add(r)
			w.mu.Unlock()
			break
		}
		w.waiting = true
		w.mu.Unlock()
		<-w.wider
	}
	if r.shared == 0 || w.total.Try(r.shared) || w.awaitTotal(w.total.enter(r.shared), stop) {
		return r, true
	}
	w.mu.Lock()
	w.add(Reservation{-r.bytes, -r.shared})
	w.mu.Unlock()
	return Reservation{}, false
}

// awaitTotal waits for a ticket; false: stop was set, and the ticket was returned.
func (w *replyQueue) awaitTotal(t *ticket, stop *atomic.Bool) bool {
	for {
		w.mu.Lock()
		w.waiting = !stop.Load()
		stopped := !w.waiting
		w.mu.Unlock()
		if stopped {
			w.total.leave(t)
			return false
		}
		select {
		case <-w.wider:
		case <-t.ready:
			w.mu.Lock()
			wake := w.waiting
			w.waiting = false
			w.mu.Unlock()
			if !wake {
				<-w.wider // consume the pending wake-up
			}
			return true
		}
	}
}

// release returns reserved memory.
func (w *replyQueue) release(r Reservation) {
	w.mu.Lock()
	w.add(Reservation{-r.bytes, -r.shared})
	w.mu.Unlock()
	if r.shared > 0 {
		w.total.Give(r.shared)
	}
}

// interrupt ends awaitRoom and awaitReserve after their stop was set.
func (w *replyQueue) interrupt() {
	w.mu.Lock()
	wake := w.waiting
	w.waiting = false
	w.mu.Unlock()
	if wake {
		w.wider <- struct{}{}
	}
}

// readerLeft records that nothing will be pushed any more.
func (w *replyQueue) readerLeft() {
	w.mu.Lock()
	w.readDone = true
	w.mu.Unlock()
}

// wake wakes the writer if it sleeps.
func (w *replyQueue) wake() {
	if w.rouse() {
		w.alarm <- struct{}{}
	}
}

// rouse resets sleeping and reports whether it was set.
func (w *replyQueue) rouse() bool { return w.sleeping.Load() && w.sleeping.CompareAndSwap(true, false) }

// sleep waits for a wake-up unless found returns true after sleeping is set.
func (w *replyQueue) sleep(found func() bool) {
	if w.fallAsleep(found) {
		<-w.alarm
	}
}

// fallAsleep sets sleeping unless found returns true then, and reports whether it has: the state of the
// writer is that of the next caller of rouse then.
func (w *replyQueue) fallAsleep(found func() bool) bool {
	w.sleeping.Store(true)
	return !found() || !w.rouse()
}

// length returns the number of commands with unwritten replies, and the bytes of finished
// ones.
func (w *replyQueue) length() (commands int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending, w.async + w.held
}

// any reports whether take would return something.
func (w *replyQueue) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue != nil || w.readDone
}

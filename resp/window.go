package resp

import (
	"sync"
	"sync/atomic"
)

// window is the replies of one connection that were not written yet, in order.
// The reader appends, the writer takes everything at once and gives the room
// back when it has written.
//
// How the writer sleeps, so that a burst costs one wake and a busy writer none:
//
//  1. The writer finds nothing to do and sets sleeping.
//  2. It looks once more: what became ready before 1 is seen here.
//  3. It waits on alarm.
//  4. Who makes a reply ready and sees sleeping takes it back and sounds the
//     alarm. Only one can take it back, so the send never blocks.
type window struct {
	mu       sync.Mutex
	queue    *replyList // pushed and not taken
	pending  int        // commands whose replies are in queue or with the writer
	busy     int        // entries in queue or with the writer
	pushes   [][]byte   // of PushAsync, not taken
	async    int64      // bytes of PushAsync here or with the writer
	held     int64      // bytes of finished replies among them
	reserved Room       // set aside for replies, pushed or to be pushed
	closing  bool       // a closeReply was queued: what comes later is dropped
	readDone bool       // nothing will be pushed any more
	waiting  bool       // the reader waits for room

	total *Budget // that reserved is taken from, with those of all connections

	pushed   atomic.Bool // pushes is not empty
	sleeping atomic.Bool
	alarm    chan struct{} // to the writer; capacity 1
	wider    chan struct{} // to the reader: there may be room; capacity 1
}

// replyList is one burst of replies and, once rendered, where in the stream
// each of them ends.
type replyList struct {
	replies []Reply
	ends    []int64
}

// windowBytesMax is how much of finished replies makes the reader pause.
const windowBytesMax = 1 << 20

// reservedFree is what a connection may set aside however much the others have: what is
// short never waits for them.
const reservedFree = 32 << 10

// replyListKeep bounds what a list may hold on to in the pool.
const replyListKeep = 4096

func (p *pools) getList() *replyList {
	if l, ok := p.lists.Get().(*replyList); ok {
		return l
	}
	return &replyList{}
}

// putList takes a list back; its replies are forgotten already.
func (p *pools) putList(l *replyList) {
	if cap(l.replies) > replyListKeep {
		return
	}
	l.replies, l.ends = l.replies[:0], l.ends[:0]
	p.lists.Put(l)
}

func (w *window) init(total *Budget) {
	w.total = total
	w.alarm = make(chan struct{}, 1)
	w.wider = make(chan struct{}, 1)
}

// push appends replies of commands. It tells whether the writer must be woken:
// only if nothing was in front of them, else it comes by anyway or waits for a
// reply before them.
func (w *window) push(p *pools, replies []Reply) (alone bool) {
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

// pushAsync appends bytes that are no command's reply. Not taken: the connection
// is ending, or more than limit would wait (over). They stand beside the replies,
// not among them: one that is not ready must not hold them back.
func (w *window) pushAsync(b []byte, limit int64) (taken, over bool) {
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

// takePushes returns what pushAsync has appended and keeps spare, which is empty,
// in its place.
func (w *window) takePushes(spare [][]byte) [][]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.pushes
	w.pushes = spare
	w.pushed.Store(false)
	return taken
}

// pushesSent gives back the room of bytes that takePushes has returned.
func (w *window) pushesSent(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.async -= n
}

// finish queues the end of the connection. Only the first call does.
func (w *window) finish(p *pools) {
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

// take returns everything that was pushed, or nil, and whether that was the
// last of it.
func (w *window) take() (l *replyList, last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l = w.queue
	w.queue = nil
	return l, l == nil && w.readDone
}

// settled gives back the room of entries that were written or dropped, and
// forgets them.
func (w *window) settled(entries []Reply) {
	if len(entries) == 0 {
		return
	}
	commands := len(entries)
	var held int64
	var reserved Room
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
	w.add(Room{-reserved.bytes, -reserved.shared})
	wake := w.waiting
	w.waiting = false
	w.mu.Unlock()
	if reserved.shared > 0 {
		w.total.Give(reserved.shared)
	}
	clear(entries)
	if wake {
		w.wider <- struct{}{} // waiting was taken back: nobody else sends
	}
}

// awaitRoom returns how many commands the window has room for; it waits while
// there is none, or while finished replies wait that make up windowBytesMax, and
// stop is not set.
func (w *window) awaitRoom(windowMax int, stop *atomic.Bool) int {
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

// Room is memory that is set aside for a reply.
type Room struct {
	bytes  int64
	shared int64 // of these, what is taken from the total of all connections
}

// Need is the memory that a command asks for.
type Need struct {
	Bytes int64
	// Own needs nothing of what all connections share: for what may be set aside for
	// as long as a client likes.
	Own bool
	// Alone waits until no reply is before it.
	Alone bool
}

// reserve sets memory aside for a reply that is not pushed yet, if it is there.
func (w *window) reserve(need Need, most int64) (Room, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fits(need, most) {
		return Room{}, false
	}
	r := w.room(need)
	if r.shared > 0 && !w.total.Try(r.shared) {
		return Room{}, false
	}
	w.add(r)
	return r, true
}

// fits says whether the connection may have so much more. The caller holds mu.
func (w *window) fits(need Need, most int64) bool {
	return w.busy == 0 && w.reserved.bytes == 0 || !need.Alone && w.held+w.reserved.bytes+need.Bytes <= most
}

// room returns what a need takes. The caller holds mu.
func (w *window) room(need Need) Room {
	r := Room{bytes: need.Bytes}
	if !need.Own {
		r.shared = max(0, min(need.Bytes, w.reserved.bytes+need.Bytes-reservedFree))
	}
	return r
}

func (w *window) add(r Room) {
	w.reserved.bytes += r.bytes
	w.reserved.shared += r.shared
}

// awaitReserve sets memory aside and waits until it is there. False: stop was set. The
// connection's own room comes first: in the line for the total, the replies before this
// one may still be leaving, and need nothing that this one has.
func (w *window) awaitReserve(need Need, most int64, stop *atomic.Bool) (Room, bool) {
	var r Room
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
	w.add(Room{-r.bytes, -r.shared})
	w.mu.Unlock()
	return Room{}, false
}

// awaitTotal waits for a ticket. False: stop was set, and the ticket is given back.
func (w *window) awaitTotal(t *ticket, stop *atomic.Bool) bool {
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
				<-w.wider // a wake is on its way
			}
			return true
		}
	}
}

// release gives back memory that was set aside.
func (w *window) release(r Room) {
	w.mu.Lock()
	w.add(Room{-r.bytes, -r.shared})
	w.mu.Unlock()
	if r.shared > 0 {
		w.total.Give(r.shared)
	}
}

// interrupt ends awaitRoom and awaitReserve after their stop was set.
func (w *window) interrupt() {
	w.mu.Lock()
	wake := w.waiting
	w.waiting = false
	w.mu.Unlock()
	if wake {
		w.wider <- struct{}{}
	}
}

// readerLeft tells that nothing will be pushed any more.
func (w *window) readerLeft() {
	w.mu.Lock()
	w.readDone = true
	w.mu.Unlock()
}

// wake sounds the alarm if the writer sleeps.
func (w *window) wake() {
	if w.sleeping.Load() && w.sleeping.CompareAndSwap(true, false) {
		w.alarm <- struct{}{}
	}
}

// sleep waits for the alarm unless found answers true once sleeping is set.
func (w *window) sleep(found func() bool) {
	w.sleeping.Store(true)
	if found() && w.sleeping.CompareAndSwap(true, false) {
		return
	}
	<-w.alarm
}

// length is the number of commands that wait for their reply to be written, and
// the bytes that wait in finished form.
func (w *window) length() (commands int, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending, w.async + w.held
}

// any tells whether take would find something.
func (w *window) any() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queue != nil || w.readDone
}

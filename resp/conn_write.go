package resp

import (
	"math"
	"net"
	"time"

	"github.com/faisca/fila/internal/rawio"
	"github.com/faisca/fila/internal/yield"
)

// writeBytesMax is the number of bytes written under one deadline: a slow client of a
// long reply is tolerated while it makes progress.
const writeBytesMax = 256 << 10

// briefBytes is how much Conn.Answer renders before it leaves the rest to the writer, beside a reply.
const briefBytes = 8 << 10

// outputKeepBytes is the largest buffer that is kept in the pool.
const outputKeepBytes = 2 * flushBytes

// outputBuffer is a pooled rendering buffer.
type outputBuffer struct{ b []byte }

// connWriter is the state of a connection's writer goroutine, and of Conn.Answer while that sleeps.
//
// Invariant: list.replies[:settled] are written or dropped; [settled:done] are rendered
// and end at list.ends in the stream; the rest is untouched.
type connWriter struct {
	c        *Conn
	w        Writer
	out      *outputBuffer // memory of w.buf; nil while nothing is rendered
	list     *replyList
	settled  int
	done     int
	sent     int64        // bytes of the stream that the socket accepted
	pushes   [][]byte     // spare slice for takePushes
	pushed   int64        // PushAsync bytes that are rendered and not settled
	breaks   yield.Breaks // of long replies
	failed   bool         // the connection failed: nothing more can be written
	finished bool         // the closeReply was reached
	deadline time.Time
	wrote    time.Time // the last write
	late     [recallMax]lateReply
	lates    int
	socket   *rawio.Sink // nil: write through the connection
	parts    [2][]byte
	vector   net.Buffers
}

func newConnWriter(c *Conn) *connWriter {
	cw := &connWriter{c: c, socket: rawio.NewSink(c.nc)}
	cw.w.sink, cw.w.pushes = cw.flushLong, cw.takePushes
	return cw
}

// run is the writer goroutine.
func (cw *connWriter) run() {
	if !cw.c.guard("reply", cw.loop) {
		cw.panicked()
	}
	cw.breaks.End()
	cw.recall()
	cw.dropAll()
}

// panicked ends the connection after a reply has panicked.
func (cw *connWriter) panicked() {
	cw.failed = true
	cw.c.Close()
	cw.settle()
}

const (
	// recallMax is how many written replies a connection remembers, see Recallable.
	recallMax = 4
	// unackedMin is how long bytes have to be unacknowledged for the client not to have them: the
	// acknowledgement of what was read just before a client ended may be on its way, or go with it.
	unackedMin = time.Second
)

// lateReply is a reply that was written and may not have reached the client.
type lateReply struct {
	reply Reply
	end   int64 // in the stream
	at    time.Time
}

// remember keeps a reply that was written, if it may be recalled.
func (cw *connWriter) remember(r Reply, end int64) {
	if p, ok := r.(Recallable); ok && p.Retain() {
		cw.late[cw.lates%recallMax] = lateReply{r, end, cw.wrote}
		cw.lates++
	}
}

// recall drops the replies that were written and have not reached the client.
func (cw *connWriter) recall() {
	c := cw.c
	missing := c.unacked.Load()
	if c.Secure() {
		missing = min(missing, 1) // the bytes are encrypted ones: only that the last is missing is known
	}
	for i := range cw.late {
		if l := &cw.late[i]; l.reply != nil && l.end > cw.sent-missing && time.Since(l.at) >= c.server.unackedMin {
			c.guard("drop", l.reply.Drop)
		}
	}
	clear(cw.late[:])
}

// loop renders and writes until the connection ends.
func (cw *connWriter) loop() {
	for !cw.failed && !cw.finished {
		if cw.list == nil {
			if cw.list, _ = cw.c.replies.take(); cw.list == nil {
				cw.takePushes()
				cw.flush()
				cw.sleep(nil)
				continue
			}
		}
		cw.render()
	}
}

// answer does what the writer would do, on the goroutine of Conn.Answer, up to where the writer would
// sleep again: it reports whether it does. Else there is more to do than answer does: what may take long,
// and all that ends a connection.
func (cw *connWriter) answer() (asleep bool) {
	if cw.socket == nil || cw.failed || cw.finished {
		return false
	}
	if !cw.c.guard("reply", func() { asleep = cw.answerBrief() }) {
		cw.panicked()
		return false
	}
	return asleep
}

// answerBrief makes one pass, so that a client that goes on sending does not hold the caller.
func (cw *connWriter) answerBrief() (asleep bool) {
	c := cw.c
	if c.dead.Load() || c.peerGone.Load() {
		return false
	}
	if cw.list == nil {
		cw.list, _ = c.replies.take()
	}
	var head Reply // not ready
	if l := cw.list; l != nil {
		for cw.done < len(l.replies) {
			r, ok := l.replies[cw.done].(Brief)
			if !ok {
				return false
			}
			if !r.Ready() {
				head = r
				break
			}
			if c.replies.pushed.Load() || len(cw.w.buf) > briefBytes || !r.Brief() {
				return false
			}
			sink := cw.w.sink
			cw.w.sink = nil // the reply is rendered whole: what a sink writes is waited for
			cw.append(r)
			cw.w.sink = sink
		}
		if !cw.flushAtOnce() {
			return false
		}
		if head == nil {
			cw.putList()
		}
	}
	if c.replies.pushed.Load() {
		return false
	}
	cw.returnBuffer()
	return c.replies.fallAsleep(cw.found(head))
}

// append renders the next reply of the list.
func (cw *connWriter) append(r Reply) {
	cw.borrow()
	cw.w.Proto = 2
	r.Append(&cw.w)
	cw.done++
	end := cw.sent + int64(len(cw.w.buf))
	if cw.failed {
		end = math.MaxInt64 // never reached
	}
	cw.list.ends = append(cw.list.ends, end)
}

// render renders the ready replies at the head of the list, and writes. It returns after a sleep, during
// which Conn.Answer may have gone on with the list.
func (cw *connWriter) render() {
	c, l := cw.c, cw.list
	for cw.done < len(l.replies) && !cw.failed {
		cw.takePushes()
		r := l.replies[cw.done]
		if _, end := r.(closeReply); end {
			cw.flush()
			cw.finish()
			return
		}
		if !r.Ready() {
			if cw.flush(); !cw.failed {
				cw.sleep(r)
			}
			return
		}
		if c.peerGone.Load() {
			if p, ok := r.(Perishable); ok && p.Perishable() {
				if cw.flush(); !cw.failed {
					cw.drop()
				}
				continue
			}
		}
		cw.append(r)
	}
	cw.breaks.End()
	if cw.flush(); !cw.failed {
		cw.putList()
	}
}

// takePushes renders the queued PushAsync bytes. It runs between any two replies and
// before each sleep, so that bytes queued before a reply precede it.
func (cw *connWriter) takePushes() {
	if !cw.c.replies.pushed.Load() || cw.failed {
		return
	}
	taken := cw.c.replies.takePushes(cw.pushes)
	cw.borrow()
	for _, b := range taken {
		cw.pushed += int64(len(b))
		cw.w.Raw(b)
	}
	clear(taken)
	cw.pushes = nil
	if cap(taken) <= replyListKeep {
		cw.pushes = taken[:0]
	}
}

// borrow takes a rendering buffer from the pool.
func (cw *connWriter) borrow() {
	if cw.out != nil {
		return
	}
	out, ok := cw.c.server.pools.output.Get().(*outputBuffer)
	if !ok {
		out = &outputBuffer{b: make([]byte, 0, 4<<10)}
	}
	cw.out, cw.w.buf = out, out.b
}

// returnBuffer returns the empty buffer to the pool.
func (cw *connWriter) returnBuffer() {
	if cw.out == nil {
		return
	}
	cw.out.b = cw.w.buf[:0]
	if cap(cw.out.b) <= outputKeepBytes {
		cw.c.server.pools.output.Put(cw.out)
	}
	cw.out, cw.w.buf = nil, nil
}

// putList returns the settled list to the pool.
func (cw *connWriter) putList() {
	cw.c.server.pools.putList(cw.list)
	cw.list, cw.settled, cw.done = nil, 0, 0
}

// sleep waits until head is ready (or, if nil, until anything is pushed), PushAsync bytes
// are queued, or the connection is closed. It holds no buffer meanwhile.
func (cw *connWriter) sleep(head Reply) {
	c := cw.c
	cw.breaks.End() // what it has borrowed is not needed meanwhile
	cw.returnBuffer()
	c.replies.sleep(cw.found(head))
	cw.failed = cw.failed || c.dead.Load()
}

// found returns what ends the sleep of the writer.
func (cw *connWriter) found(head Reply) func() bool {
	c := cw.c
	return func() bool {
		if c.dead.Load() || c.replies.pushed.Load() {
			return true
		}
		if head != nil {
			return head.Ready()
		}
		return c.replies.any()
	}
}

// flushAtOnce writes the rendered bytes as far as the socket takes them at once, settles their replies,
// and reports whether that was all. An error is left to the writer, which meets it again.
func (cw *connWriter) flushAtOnce() bool {
	if len(cw.w.buf) > 0 {
		now := time.Now()
		if cw.arm(now) != nil {
			return false
		}
		n := cw.socket.TryWrite(cw.w.buf, rawio.WakesMonitor(now))
		cw.w.buf = cw.w.buf[:copy(cw.w.buf, cw.w.buf[n:])]
		cw.written(now, int64(n))
	}
	cw.settle()
	return len(cw.w.buf) == 0
}

// flush writes the rendered bytes and settles their replies.
func (cw *connWriter) flush() {
	cw.flushWith(&cw.w, nil)
	cw.settle()
}

// settle counts replies as delivered that the socket accepted entirely, even if it failed
// afterwards.
func (cw *connWriter) settle() {
	if cw.pushed > 0 && len(cw.w.buf) == 0 {
		cw.c.replies.pushesSent(cw.pushed)
		cw.pushed = 0
	}
	if cw.list == nil {
		return
	}
	upto := cw.settled
	for upto < len(cw.list.ends) && cw.list.ends[upto] <= cw.sent {
		upto++
	}
	for i := cw.settled; i < upto; i++ {
		cw.remember(cw.list.replies[i], cw.list.ends[i])
	}
	cw.c.replies.settled(cw.list.replies[cw.settled:upto])
	cw.settled = upto
}

// flushWith writes the rendered bytes and tail.
func (cw *connWriter) flushWith(w *Writer, tail []byte) {
	if cw.c.dead.Load() {
		cw.failed = true
	}
	if !cw.failed && len(w.buf)+len(tail) > 0 {
		first := min(len(tail), writeBytesMax)
		cw.send(w.buf, tail[:first])
		for tail = tail[first:]; len(tail) > 0 && !cw.failed; tail = tail[first:] {
			first = min(len(tail), writeBytesMax)
			cw.send(tail[:first], nil)
		}
	}
	w.buf = w.buf[:0]
}

// flushLong writes what there is of a long reply, and lets others run. It is the Writer's sink.
func (cw *connWriter) flushLong(w *Writer, tail []byte) {
	cw.flushWith(w, tail)
	cw.breaks.Take()
}

// send writes two pieces, in one system call if possible.
func (cw *connWriter) send(a, b []byte) {
	c := cw.c
	now := time.Now()
	if err := cw.arm(now); err != nil {
		cw.fail(err)
		return
	}
	var n int64
	var err error
	if len(b) == 0 {
		var written int
		if cw.socket != nil {
			written, err = cw.socket.Write(a, rawio.WakesMonitor(now))
		} else {
			written, err = c.nc.Write(a)
		}
		n = int64(written)
	} else {
		cw.parts = [2][]byte{a, b}
		cw.vector = cw.parts[:]
		n, err = cw.vector.WriteTo(c.nc)
		cw.parts = [2][]byte{}
	}
	if cw.written(now, n); err != nil {
		cw.fail(err)
	}
}

// arm sets the deadline of a write.
func (cw *connWriter) arm(now time.Time) error {
	limit := cw.c.server.cfg.WriteTimeout
	if cw.deadline.Sub(now) >= limit-limit/4 {
		return nil // moved only after a quarter has passed: setting a timer costs more than reading the clock
	}
	cw.deadline = now.Add(limit)
	return cw.c.nc.SetWriteDeadline(cw.deadline)
}

// written counts what the socket has accepted.
func (cw *connWriter) written(now time.Time, n int64) {
	c := cw.c
	cw.wrote = now
	cw.sent += n
	c.touch(now)
	c.bytesOut.Add(uint64(n))
	c.server.stats.bytesOut.Add(uint64(n))
}

// fail ends the connection: unwritten replies are dropped.
func (cw *connWriter) fail(err error) {
	cw.failed = true
	if !cw.c.peerGone.Load() {
		cw.c.server.cfg.Log.Debug().Uint64("conn", cw.c.id).Err(err).Msg("cannot write to a client: closing it")
	}
	cw.c.Close()
}

// finish closes after everything is written. A client that is still sending first gets
// time to read the error.
func (cw *connWriter) finish() {
	cw.finished = true
	if cw.failed {
		return
	}
	c := cw.c
	half, ok := c.nc.(interface{ CloseWrite() error })
	if c.linger.Load() && ok {
		now := time.Now()
		end := now.Add(lingerTime)
		c.lingerEnd.Store(&end)
		if half.CloseWrite() == nil && c.nc.SetReadDeadline(now.Add(lingerIdle)) == nil {
			return
		}
	}
	c.noteUnacked()
	if c.relayed && !c.broken.Load() {
		endRelayed(c.nc)
	}
	if err := c.nc.Close(); err != nil {
		c.server.cfg.Log.Debug().Uint64("conn", c.id).Err(err).Msg("cannot close properly")
	}
}

// dropAll drops unwritten replies until the reader has ended.
func (cw *connWriter) dropAll() {
	cw.returnBuffer()
	for {
		if cw.list == nil {
			var last bool
			if cw.list, last = cw.c.replies.take(); last {
				return
			}
			if cw.list == nil {
				cw.c.replies.sleep(cw.c.replies.any)
				continue
			}
		}
		for cw.settled < len(cw.list.replies) {
			cw.awaitEnd(cw.list.replies[cw.settled])
			cw.drop()
		}
		cw.putList()
	}
}

// awaitEnd waits until r is ready. After a panic of the session the reply may never
// become ready, so it is not waited for: a lease in it then ends by its timeout.
func (cw *connWriter) awaitEnd(r Reply) {
	over := func() bool { return cw.ready(r) || cw.c.broken.Load() }
	for !over() {
		cw.c.replies.sleep(over)
	}
}

// drop drops the first unsettled reply.
func (cw *connWriter) drop() {
	l := cw.list
	if r := l.replies[cw.settled]; cw.ready(r) {
		cw.c.guard("drop", r.Drop)
	}
	cw.c.replies.settled(l.replies[cw.settled : cw.settled+1])
	if len(l.ends) == cw.settled {
		l.ends = append(l.ends, cw.sent)
	}
	cw.settled++
	cw.done = max(cw.done, cw.settled)
}

// ready calls r.Ready, which may have panicked in the loop before.
func (cw *connWriter) ready(r Reply) (yes bool) {
	return !cw.c.guard("ready", func() { yes = r.Ready() }) || yes
}

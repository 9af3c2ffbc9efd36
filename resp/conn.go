package resp

import (
	"container/list"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// Conn is one connection. Its methods may be called from any goroutine unless
// they say otherwise.
type Conn struct {
	id      uint64
	nc      net.Conn
	server  *Server
	session Session
	created time.Time
	opened  atomic.Bool // session is set

	reader    *reader
	win       window
	stranger  *list.Element // among the server's strangers, whose lock guards it
	estranged time.Time     // since when the client is not known; zero: it is. Of the reading goroutine
	armed     bool          // there is a deadline for reading. Of the same

	proto      atomic.Int32
	lastActive atomic.Int64 // Unix nanoseconds of the last read or write
	stop       atomic.Bool  // the reader shall end
	dead       atomic.Bool  // closed at once: nothing can be read or written
	peerGone   atomic.Bool  // the client has ended its sending side, or is lost
	broken     atomic.Bool  // the session panicked: replies may never become ready
	linger     atomic.Bool  // the client is still sending what will not be read
	commands   atomic.Uint64
	bytesIn    atomic.Uint64
	bytesOut   atomic.Uint64
}

func newConn(id uint64, nc net.Conn, s *Server) *Conn {
	c := &Conn{id: id, nc: nc, server: s, created: time.Now()}
	c.proto.Store(2)
	c.lastActive.Store(c.created.UnixNano())
	c.win.init(s.replies)
	return c
}

// ID is the connection's number: from 1, never given twice.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr is the address the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// CreatedAt is when the connection was accepted.
func (c *Conn) CreatedAt() time.Time { return c.created }

// LastActive is when bytes were last read or written.
func (c *Conn) LastActive() time.Time { return time.Unix(0, c.lastActive.Load()) }

// Session is what the Handler opened for the connection.
func (c *Conn) Session() Session { return c.session }

// Proto is the protocol last chosen by SetProto; 2 at first.
func (c *Conn) Proto() int { return int(c.proto.Load()) }

// SetProto notes the protocol, 2 or 3, that the client chose. It changes no
// reply by itself: replies render what their command was handled under.
func (c *Conn) SetProto(proto int) {
	if proto == 3 {
		c.proto.Store(3)
		return
	}
	c.proto.Store(2)
}

// SetAuthenticated tells whether the client is known. For others commands are
// limited to 10 arguments of 16 KiB and handed over one by one, so that the
// command which authenticates counts for the one behind it; their number and
// their time are limited by the Config. Only from Handler.Open and
// Session.Handle.
func (c *Conn) SetAuthenticated(yes bool) {
	c.reader.authenticated = yes
	if c.opened.Load() {
		c.meet(yes)
		c.armIdle()
	}
}

// CertificateName is the common name in the certificate with which the client
// proved who it is; empty if it did not.
func (c *Conn) CertificateName() string {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return ""
	}
	chains := t.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return ""
	}
	return chains[0][0].Subject.CommonName
}

// Pending is the number of commands whose replies were not written yet.
func (c *Conn) Pending() int {
	n, _ := c.win.length()
	return n
}

// QueuedBytes is what waits for the writer in finished form: Bytes and
// PushAsync.
func (c *Conn) QueuedBytes() int64 {
	_, n := c.win.length()
	return n
}

// Commands is the number of commands read.
func (c *Conn) Commands() uint64 { return c.commands.Load() }

// BytesIn is the number of bytes read.
func (c *Conn) BytesIn() uint64 { return c.bytesIn.Load() }

// BytesOut is the number of bytes written.
func (c *Conn) BytesOut() uint64 { return c.bytesOut.Load() }

// Push appends replies to the window, in the order of their commands. Only from
// Session.Handle. It never waits: Handle is given no more commands than the
// window has room for. One call for all replies of a Handle call is cheapest.
// replies is not kept.
func (c *Conn) Push(replies ...Reply) {
	if len(replies) == 0 {
		return
	}
	if c.win.push(&c.server.pools, replies) && replies[0].Ready() {
		c.win.wake()
	}
}

// Reserve sets memory aside for the reply of a command, before the command is
// executed: what its result may take from then until it is written. The reply is then
// pushed as Reserved, which gives the memory back when it has been written or dropped.
// A connection has OutputBytesMax of it, or more for one command alone while no reply
// is before it; all connections together have ReplyBytesMax, and each a little that
// does not count there. Without wait, Reserve tells whether the memory is there. With
// wait, it waits for it, and false means that the connection is ending. Only from
// Session.Handle, and to wait only after every reply before it was pushed and every
// task handed on, or it waits for ever.
func (c *Conn) Reserve(need Need, wait bool) (Room, bool) {
	most := c.server.cfg.OutputBytesMax
	r, ok := c.win.reserve(need, most)
	if !ok && wait {
		return c.win.awaitReserve(need, most, &c.stop)
	}
	return r, ok
}

// Shrink gives back what is more than n bytes of what Reserve has set aside, and
// returns the rest.
func (c *Conn) Shrink(r Room, n int64) Room {
	if n >= r.bytes {
		return r
	}
	rest := Room{n, min(r.shared, n)}
	c.win.release(Room{r.bytes - rest.bytes, r.shared - rest.shared})
	return rest
}

// ReservedBytes is what is set aside for replies that were not written yet.
func (c *Conn) ReservedBytes() int64 {
	c.win.mu.Lock()
	defer c.win.mu.Unlock()
	return c.win.reserved.bytes
}

// PushAsync sends bytes in wire format that answer no command. They leave in the
// order of the calls, behind every reply whose Append has returned, before every
// reply pushed later, and never inside one; a reply that is not ready does not
// hold them back. It does not wait. If more than OutputBytesMax would be waiting
// the client is too slow for what it asked for, and the connection is closed.
// False: the bytes will not be sent. b must not change any more; connections may
// share it.
func (c *Conn) PushAsync(b []byte) bool {
	if c.dead.Load() {
		return false
	}
	taken, over := c.win.pushAsync(b, c.server.cfg.OutputBytesMax)
	if over {
		c.server.cfg.Log.Info().Uint64("conn", c.id).Str("addr", c.RemoteAddr().String()).
			Msg("closing a client that does not read what it subscribed to")
		c.Close()
	}
	if taken {
		c.win.wake()
	}
	return taken
}

// Wake tells the writer that a reply may have become ready. It never blocks and
// costs next to nothing when the writer is at work.
func (c *Conn) Wake() { c.win.wake() }

// CloseAfterFlush ends the connection once the replies pushed so far are
// written. No further command is handed to the session after the Handle call it
// is made from; replies pushed later are dropped.
func (c *Conn) CloseAfterFlush() {
	c.win.finish(&c.server.pools)
	c.stopReading()
	c.win.wake()
}

// Close ends the connection at once. Replies that were not written are dropped.
func (c *Conn) Close() {
	if c.dead.Swap(true) {
		return
	}
	c.peerGone.Store(true)
	c.stop.Store(true)
	c.closeSocket()
	c.win.interrupt()
	c.win.wake()
}

// stopReading ends the reader, also in the middle of a wait.
func (c *Conn) stopReading() {
	if c.stop.Swap(true) {
		return
	}
	c.expireRead()
	c.win.interrupt()
}

// expireRead ends a read that waits. An error means that the connection is
// closed, which ends it as well.
func (c *Conn) expireRead() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// closeSocket closes without TLS' farewell, which may wait for a client that
// does not read. The error tells nothing that could be acted on.
func (c *Conn) closeSocket() {
	if t, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close()
		return
	}
	_ = c.nc.Close()
}

// touch notes traffic.
func (c *Conn) touch(now time.Time) { c.lastActive.Store(now.UnixNano()) }

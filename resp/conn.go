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
	mode    Mode // of the listener
	local   bool // of ServeLocal
	relayed bool // of ServeRelayed

	localUser string
	opened    atomic.Bool // session is set

	reader               *reader
	replies              replyQueue
	writer               *connWriter   // set before the first read
	unauthenticated      *list.Element // in the server's list, whose lock guards it; nil: authenticated
	unauthenticatedSince time.Time     // zero: authenticated; used by the reader goroutine only
	readBy               time.Time     // the read deadline that is set, zero: none; used by the reader goroutine only

	proto      atomic.Int32
	lastActive atomic.Int64              // Unix nanoseconds of the last read or write
	stop       atomic.Bool               // tells the reader to end
	dead       atomic.Bool               // closed immediately: nothing can be read or written
	peerGone   atomic.Bool               // the client has closed its sending side, or is lost
	broken     atomic.Bool               // the session panicked: replies may never become ready
	linger     atomic.Bool               // the client is still sending bytes that are discarded
	lingerEnd  atomic.Pointer[time.Time] // until then at most, once all replies are written
	commands   atomic.Uint64
	bytesIn    atomic.Uint64
	bytesOut   atomic.Uint64
	unacked    atomic.Int64 // bytes that the system of the client had not acknowledged when the socket was closed
}

func newConn(id uint64, nc net.Conn, s *Server) *Conn {
	c := &Conn{id: id, nc: nc, server: s, created: time.Now()}
	c.proto.Store(2)
	c.lastActive.Store(c.created.UnixNano())
	c.replies.init(s.replies)
	return c
}

// ID returns the number of the connection: from 1, never reused.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// LocalAddr returns the address that the client connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// CreatedAt returns when the connection was accepted.
func (c *Conn) CreatedAt() time.Time { return c.created }

// LastActive returns when bytes were last read or written.
func (c *Conn) LastActive() time.Time { return time.Unix(0, c.lastActive.Load()) }

// Session returns the session that the Handler opened.
func (c *Conn) Session() Session { return c.session }

// Proto returns the protocol version set by SetProto, initially 2.
func (c *Conn) Proto() int { return int(c.proto.Load()) }

// SetProto records the protocol version, 2 or 3, that the client chose. It does not
// change pending replies: each renders the version under which its command was handled.
func (c *Conn) SetProto(proto int) {
	if proto == 3 {
		c.proto.Store(3)
		return
	}
	c.proto.Store(2)
}

// SetAuthenticated sets whether the client is authenticated. Until then commands are
// limited to 10 arguments of 16 KiB and passed to the session one by one, so that an
// authenticating command takes effect for the next one; number and duration of such
// connections are bounded by Config. To be called from Handler.Open and Session.Handle
// only.
func (c *Conn) SetAuthenticated(yes bool) {
	c.reader.authenticated = yes
	if c.opened.Load() {
		c.markAuthenticated(yes)
		c.armIdle()
	}
}

// CertificateName returns the common name of the verified client certificate, or "".
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

// LocalUser returns the user that the maker of a connection within this process has
// authenticated, see Server.ServeLocal; "" for any other connection.
func (c *Conn) LocalUser() string { return c.localUser }

// Relayed reports whether another node passes on the commands of a client on this connection, see
// Server.ServeRelayed.
func (c *Conn) Relayed() bool { return c.relayed }

// Mode returns that of the listener that accepted the connection, 0 if none did.
func (c *Conn) Mode() Mode { return c.mode }

// Secure reports whether the connection uses TLS.
func (c *Conn) Secure() bool {
	_, ok := c.nc.(*tls.Conn)
	return ok
}

// Pending returns the number of commands whose replies are not written yet.
func (c *Conn) Pending() int {
	n, _ := c.replies.length()
	return n
}

// QueuedBytes returns the bytes of finished replies (Bytes, PushAsync) that wait for the
// writer.
func (c *Conn) QueuedBytes() int64 {
	_, n := c.replies.length()
	return n
}

// Commands returns the number of commands read.
func (c *Conn) Commands() uint64 { return c.commands.Load() }

// BytesIn returns the number of bytes read.
func (c *Conn) BytesIn() uint64 { return c.bytesIn.Load() }

// BytesOut returns the number of bytes written.
func (c *Conn) BytesOut() uint64 { return c.bytesOut.Load() }

// Push appends replies to the reply queue, in the order of their commands. To be called
// from Session.Handle only. It never blocks: Handle gets no more commands than the queue
// has room for. One call for all replies of a Handle call is cheapest. replies is not
// retained.
func (c *Conn) Push(replies ...Reply) {
	if len(replies) == 0 {
		return
	}
	if c.replies.push(&c.server.pools, replies) && replies[0].Ready() {
		c.replies.wake()
	}
}

// Reserve reserves memory for the reply of a command before its execution: for its result
// from then until it is written. The reply is then pushed as Reserved, which returns the
// memory when it is written or dropped.
//
// A connection may reserve OutputBytesMax, or more for a single command while no reply
// precedes it. All connections together may reserve ReplyBytesMax, to which a small
// allowance per connection does not count.
//
// Without wait, Reserve reports whether the memory is available. With wait it blocks
// until it is, and false means that the connection is ending. To be called from
// Session.Handle only, and with wait only after all preceding replies were pushed and all
// tasks submitted, or it may block forever.
func (c *Conn) Reserve(need Need, wait bool) (Reservation, bool) {
	most := c.server.cfg.OutputBytesMax
	r, ok := c.replies.reserve(need, most)
	if !ok && wait {
		return c.replies.awaitReserve(need, most, &c.stop)
	}
	return r, ok
}

// Shrink returns all but n bytes of a reservation, and the rest of it.
func (c *Conn) Shrink(r Reservation, n int64) Reservation {
	if n >= r.bytes {
		return r
	}
	rest := Reservation{n, min(r.shared, n)}
	c.replies.release(Reservation{r.bytes - rest.bytes, r.shared - rest.shared})
	return rest
}

// ReservedBytes returns the memory reserved for replies that are not written yet.
func (c *Conn) ReservedBytes() int64 {
	c.replies.mu.Lock()
	defer c.replies.mu.Unlock()
	return c.replies.reserved.bytes
}

// PushAsync sends bytes in wire format that answer no command. They are sent in the order
// of the calls, after every reply whose Append has returned, before every reply pushed
// later, and never inside of one; a reply that is not ready does not block them. It never
// blocks. If more than OutputBytesMax would be pending, the client is too slow and the
// connection is closed. It returns false if the bytes will not be sent. b must not be
// modified afterwards; connections may share it.
func (c *Conn) PushAsync(b []byte) bool {
	if c.dead.Load() {
		return false
	}
	taken, over := c.replies.pushAsync(b, c.server.cfg.OutputBytesMax)
	if over {
		c.server.cfg.Log.Info().Uint64("conn", c.id).Str("addr", c.RemoteAddr().String()).
			Msg("closing a client that does not read what it subscribed to")
		c.Close()
	}
	if taken {
		c.replies.wake()
	}
	return taken
}

// Wake notifies the writer that a reply may have become ready. It never blocks, and is
// cheap while the writer is running.
func (c *Conn) Wake() { c.replies.wake() }

// Answer is Wake for a caller that has nothing better to do: while the writer sleeps, it renders and
// writes the replies that are ready itself, if they are Brief and the socket takes them at once, and
// leaves the rest to the writer. It never waits. To wake the writer takes longer than all of that.
func (c *Conn) Answer() {
	if c.replies.rouse() && !c.writer.answer() {
		c.replies.alarm <- struct{}{}
	}
}

// CloseAfterFlush closes the connection once the replies pushed so far are written. After
// the current Handle call the session gets no further commands, and replies pushed later
// are dropped.
func (c *Conn) CloseAfterFlush() {
	c.replies.finish(&c.server.pools)
	c.stopReading()
	c.replies.wake()
}

// Close closes the connection immediately. Unwritten replies are dropped.
func (c *Conn) Close() {
	if c.dead.Load() {
		return
	}
	c.noteUnacked() // before the writer sees that the connection is dead
	if c.dead.Swap(true) {
		return
	}
	c.peerGone.Store(true)
	c.stop.Store(true)
	c.closeSocket()
	c.replies.interrupt()
	c.replies.wake()
}

// stopReading ends the reader, also while it waits.
func (c *Conn) stopReading() {
	if c.stop.Swap(true) {
		return
	}
	c.expireRead()
	c.replies.interrupt()
}

// expireRead ends a blocked read. An error means that the connection is closed, which
// also ends it.
func (c *Conn) expireRead() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// closeSocket closes without the TLS close notification, which could block on a client
// that does not read. Its error is of no use.
func (c *Conn) closeSocket() {
	if t, ok := c.nc.(interface{ NetConn() net.Conn }); ok {
		_ = t.NetConn().Close()
		return
	}
	_ = c.nc.Close()
}

// touch records traffic.
func (c *Conn) touch(now time.Time) { c.lastActive.Store(now.UnixNano()) }

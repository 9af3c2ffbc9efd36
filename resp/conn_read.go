package resp

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"time"
)

const (
	handleMax      = 1024             // commands per Session.Handle call
	lingerIdle     = time.Second      // the close after an error waits so long for the next bytes of a client that is still sending
	lingerTime     = 30 * time.Second // and for all of them together
	lingerBytesMax = 64 << 20         // bytes discarded from such a client
	handshakeTime  = 10 * time.Second // TLS handshake
)

// run serves the connection and returns when both goroutines have ended.
func (c *Conn) run(h Handler) {
	defer c.closeSocket()
	c.reader = newReader(&countingSource{newSource(c.nc), c}, &c.server.pools, c.server.cfg.Limits)
	if !c.guard("open", func() { c.session = h.Open(c) }) || c.session == nil {
		return
	}
	c.opened.Store(true)
	c.markAuthenticated(c.reader.authenticated)
	c.writer = newConnWriter(c)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.writer.run()
	}()
	handled := c.guard("handle", c.read)
	if notified := c.guard("gone", c.session.Gone); !handled || !notified {
		c.broken.Store(true)
		c.Close()
		c.replies.wake()
	}
	c.replies.finish(&c.server.pools)
	c.replies.wake()
	if c.linger.Load() {
		c.discard()
	}
	c.reader.release()
	c.replies.readerLeft()
	c.replies.wake()
	<-written
	c.replies.release(c.replies.reserved) // reservations of replies that were never pushed
	c.dead.Store(true)                    // replies pushed from here on are dropped
}

// read passes commands to the session until the input ends.
func (c *Conn) read() {
	c.armIdle()
	for {
		room := c.replies.awaitRoom(c.server.cfg.WindowMax, &c.stop)
		if c.stop.Load() {
			return
		}
		cmds, err := c.reader.next(min(room, handleMax))
		if errors.Is(err, os.ErrDeadlineExceeded) && c.deadlinePassed() {
			if c.stop.Load() || c.idle() {
				return
			}
			continue
		}
		if err != nil {
			c.readFailed(err)
			return
		}
		n := uint64(len(cmds))
		c.commands.Add(n)
		c.server.stats.commands.Add(n)
		c.session.Handle(cmds)
	}
}

// readFailed decides which pending replies are still to be written after the end of the
// input.
func (c *Conn) readFailed(err error) {
	log := &c.server.cfg.Log
	var wrong protocolError
	switch {
	case errors.As(err, &wrong):
		log.Debug().Uint64("conn", c.id).Str("addr", c.RemoteAddr().String()).Err(err).Msg("closing a client")
		var w Writer
		w.Error("ERR", wrong.Error())
		c.linger.Store(true)
		c.Push(Bytes(w.Take()))
	case errors.Is(err, errInputMemory):
		log.Warn().Uint64("conn", c.id).Str("addr", c.RemoteAddr().String()).Err(err).Msg("closing a client")
		var w Writer
		w.Error("OOM", err.Error())
		c.linger.Store(true)
		c.Push(Bytes(w.Take()))
	case errors.Is(err, errHTTP):
		c.server.warnHTTP(c)
		c.Close()
	case errors.Is(err, io.EOF):
		// The client may be gone or have closed only its sending side: ready replies are
		// written, perishable ones are dropped.
		c.peerGone.Store(true)
	default:
		c.Close()
	}
}

// deadlinePassed reports whether a read may have ended at a deadline of this server. A timeout that comes from
// below, as of the link to another node, ends the connection like any other error: with the next read it would
// come again at once, and for ever.
func (c *Conn) deadlinePassed() bool {
	return c.stop.Load() || !c.readBy.IsZero() && !time.Now().Before(c.readBy)
}

// idle is called at the read deadline. It ends the connection after the idle timeout or
// the authentication timeout, and otherwise sets the next deadline.
func (c *Conn) idle() bool {
	if limit := c.server.cfg.AuthTimeout; limit > 0 && !c.unauthenticatedSince.IsZero() && time.Since(c.unauthenticatedSince) >= limit {
		var w Writer
		w.Error("ERR", "not authenticated in time")
		c.Push(Bytes(w.Take()))
		return true
	}
	limit := c.idleTimeout()
	quiet := time.Since(c.LastActive())
	if pending, bytes := c.replies.length(); limit > 0 && quiet >= limit && pending == 0 && bytes == 0 {
		c.Close()
		return true
	}
	c.armIdle()
	return c.stop.Load()
}

// idleTimeout returns after how long an idle connection is closed; 0: never.
func (c *Conn) idleTimeout() time.Duration {
	if c.local || c.relayed {
		return 0
	}
	return c.server.cfg.IdleTimeout
}

// armIdle sets the deadline of the next idle check. Reads do not move it: idle itself
// checks how long the connection has been quiet.
func (c *Conn) armIdle() {
	var at time.Time // none
	now := time.Now()
	if limit := c.idleTimeout(); limit > 0 {
		next := limit - now.Sub(c.LastActive())
		if next <= 0 { // a reply is pending
			next = limit
		}
		at = now.Add(next)
	}
	if limit := c.server.cfg.AuthTimeout; limit > 0 && !c.unauthenticatedSince.IsZero() {
		if by := c.unauthenticatedSince.Add(limit); at.IsZero() || by.Before(at) {
			at = by
		}
	}
	if at.IsZero() && c.readBy.IsZero() {
		return
	}
	c.readBy = at
	if err := c.nc.SetReadDeadline(at); err != nil {
		c.Close()
	}
	if c.stop.Load() { // stopReading ran in between: keep its deadline
		c.expireRead()
	}
}

// discard drains the input so that the close does not reset the connection and destroy
// the error on its way to a client that is still sending. The writer sets the first deadline,
// when the error is written; bytes that arrive move it, up to lingerEnd.
func (c *Conn) discard() {
	s := c.server.pools.getScratch()
	defer c.server.pools.scratch.Put(s)
	for n := 0; n < lingerBytesMax; {
		got, err := c.nc.Read(s.buf)
		if err != nil {
			if errors.Is(err, io.EOF) {
				c.peerGone.Store(true)
			}
			return
		}
		n += got
		if end := c.lingerEnd.Load(); end != nil {
			at := time.Now().Add(lingerIdle)
			if at.After(*end) {
				at = *end
			}
			if c.nc.SetReadDeadline(at) != nil {
				return
			}
		}
	}
}

// guard runs fn, logs a panic, and reports whether fn returned normally.
func (c *Conn) guard(doing string, fn func()) (ok bool) {
	defer func() {
		if ok {
			return
		}
		if v := recover(); v != nil {
			c.server.cfg.Log.Error().Uint64("conn", c.id).Str("doing", doing).Interface("panic", v).
				Bytes("stack", debug.Stack()).Msg("panic in a connection: closing it")
		}
	}()
	fn()
	return true
}

// countingSource counts bytes and records traffic.
type countingSource struct {
	source
	c *Conn
}

func (s *countingSource) fill(r *reader) (int, error) {
	n, err := s.source.fill(r)
	if n > 0 {
		s.c.touch(time.Now())
		s.c.bytesIn.Add(uint64(n))
		s.c.server.stats.bytesIn.Add(uint64(n))
	}
	return n, err
}

package resp

import (
	"errors"
	"io"
	"os"
	"runtime/debug"
	"time"
)

const (
	handleMax      = 1024             // commands of one Session.Handle call
	lingerTime     = time.Second      // how long a client may take to read why it is cut off
	lingerBytesMax = 64 << 20         // how much of what it still sends is thrown away
	handshakeTime  = 10 * time.Second // for TLS
)

// run is the life of a connection. It returns when both goroutines are done.
func (c *Conn) run(h Handler) {
	defer c.closeSocket()
	c.reader = newReader(&countingSource{newSource(c.nc), c}, &c.server.pools, c.server.cfg.Limits)
	if !c.guard("open", func() { c.session = h.Open(c) }) || c.session == nil {
		return
	}
	c.opened.Store(true)
	c.meet(c.reader.authenticated)
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.write()
	}()
	handled := c.guard("handle", c.read)
	if told := c.guard("gone", c.session.Gone); !handled || !told {
		c.broken.Store(true)
		c.Close()
		c.win.wake()
	}
	c.win.finish(&c.server.pools)
	c.win.wake()
	if c.linger.Load() {
		c.discard()
	}
	c.reader.release()
	c.win.readerLeft()
	c.win.wake()
	<-written
	c.win.release(c.win.reserved) // for replies that were never pushed
	c.dead.Store(true)            // nobody takes what is pushed from here on
}

// read hands commands to the session until there will be no more.
func (c *Conn) read() {
	c.armIdle()
	for {
		room := c.win.awaitRoom(c.server.cfg.WindowMax, &c.stop)
		if c.stop.Load() {
			return
		}
		cmds, err := c.reader.next(min(room, handleMax))
		if errors.Is(err, os.ErrDeadlineExceeded) {
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

// readFailed decides what the end of reading means for what is still to be
// written.
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
		// It may have died, or only closed its sending side: what is ready can
		// still be written, what is perishable will be dropped.
		c.peerGone.Store(true)
	default:
		c.Close()
	}
}

// idle is called when the read deadline has passed. It ends the connection if
// nothing happened for the idle timeout, or if the client has not said in time
// who it is, and else sets the next deadline.
func (c *Conn) idle() bool {
	if limit := c.server.cfg.AuthTimeout; limit > 0 && !c.estranged.IsZero() && time.Since(c.estranged) >= limit {
		var w Writer
		w.Error("ERR", "not authenticated in time")
		c.Push(Bytes(w.Take()))
		return true
	}
	limit := c.server.cfg.IdleTimeout
	quiet := time.Since(c.LastActive())
	if pending, bytes := c.win.length(); limit > 0 && quiet >= limit && pending == 0 && bytes == 0 {
		c.Close()
		return true
	}
	c.armIdle()
	return c.stop.Load()
}

// armIdle sets the deadline at which idle is to look next. It is not moved with
// each read: when it passes, idle looks how long it has been quiet.
func (c *Conn) armIdle() {
	var at time.Time // none
	now := time.Now()
	if limit := c.server.cfg.IdleTimeout; limit > 0 {
		next := limit - now.Sub(c.LastActive())
		if next <= 0 { // a reply is pending
			next = limit
		}
		at = now.Add(next)
	}
	if limit := c.server.cfg.AuthTimeout; limit > 0 && !c.estranged.IsZero() {
		if by := c.estranged.Add(limit); at.IsZero() || by.Before(at) {
			at = by
		}
	}
	if at.IsZero() && !c.armed {
		return
	}
	c.armed = !at.IsZero()
	if err := c.nc.SetReadDeadline(at); err != nil {
		c.Close()
	}
	if c.stop.Load() { // set in between: its deadline must not be undone
		c.expireRead()
	}
}

// discard reads on without looking, so that closing does not destroy the error
// on its way to a client that is still sending. The writer sets the deadline
// when it is done.
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
	}
}

// guard runs fn and tells whether it returned; a panic is logged.
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

// countingSource notes what was read.
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

package relay

import (
	"net"
	"sync"
)

// gatherMax bounds the bytes that wait for a link.
const gatherMax = 256 << 10

// gatherConn writes what several goroutines write in short succession with one call: the library of
// streams writes each frame with two, and with TLS each call is a record of its own. An error shows in
// a later Write, or in Read: the link is broken then.
type gatherConn struct {
	net.Conn

	mu      sync.Mutex
	changed sync.Cond // more bytes, fewer bytes, or an end
	bytes   []byte
	err     error // of a write
	closed  bool
	ended   chan struct{} // closed when the writer has ended
}

func newGatherConn(nc net.Conn) *gatherConn {
	c := &gatherConn{Conn: nc, ended: make(chan struct{})}
	c.changed.L = &c.mu
	go c.run()
	return c
}

// Write takes the bytes, and waits only while too many wait already.
func (c *gatherConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !c.closed && len(c.bytes) > 0 && len(c.bytes)+len(b) > gatherMax {
		c.changed.Wait()
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.closed:
		return 0, net.ErrClosed
	}
	if len(c.bytes) == 0 {
		c.changed.Broadcast()
	}
	c.bytes = append(c.bytes, b...)
	return len(b), nil
}

// Close closes the connection. Bytes that wait are lost, as they might be on their way.
func (c *gatherConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.changed.Broadcast()
	c.mu.Unlock()
	err := c.Conn.Close()
	<-c.ended
	return err
}

// run writes until the connection is closed or fails.
func (c *gatherConn) run() {
	defer close(c.ended)
	var spare []byte
	for {
		c.mu.Lock()
		for len(c.bytes) == 0 && !c.closed {
			c.changed.Wait()
		}
		if c.closed {
			c.mu.Unlock()
			return
		}
		b := c.bytes
		c.bytes = spare[:0]
		c.changed.Broadcast()
		c.mu.Unlock()
		if _, err := c.Conn.Write(b); err != nil {
			c.mu.Lock()
			c.err = err
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		if spare = b; cap(spare) > gatherMax {
			spare = nil
		}
	}
}

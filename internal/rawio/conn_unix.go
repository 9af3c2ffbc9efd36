//go:build unix

package rawio

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is a TCP connection whose Read and Write do not tell the scheduler.
type conn struct {
	*net.TCPConn

	raw syscall.RawConn
	try func(fd uintptr) bool // attempt, bound once to avoid allocations

	reading sync.Mutex // held while a goroutine reads; guards space, n and err
	space   []byte
	n       int
	err     error

	writing sync.Mutex // held while a goroutine writes; guards sink and writes
	sink    *Sink
	writes  int
}

// monitorWrites is how many writes of a connection there are before one that may tell the scheduler: a connection that does
// little, such as a heartbeat, needs no monitor, which costs more than all of that.
const monitorWrites = 32

// Conn returns a connection that does what nc does, and whose Read and Write do not tell the scheduler, but for a write now
// and then; nc itself if it is no TCP connection, or the build is plain. What io.Copy and net.Buffers use tells it, as do all
// other methods, which are those of nc. Any of them may be called at the same time and by several goroutines.
func Conn(nc net.Conn) net.Conn {
	raw := Raw(nc)
	if raw == nil {
		return nc
	}
	c := &conn{TCPConn: nc.(*net.TCPConn), raw: raw, sink: NewSink(nc)} //nolint:forcetypeassert // as Raw says
	c.try = c.attempt
	return c
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.space, c.n, c.err = b, 0, nil
	err := c.raw.Read(c.try)
	c.space = nil
	return c.n, c.failed("read", cmp.Or(err, c.err))
}

// failed returns an error as package net does.
func (c *conn) failed(op string, err error) error {
	if of, ok := errors.AsType[*net.OpError](err); ok {
		of.Op = op // in place of raw-read or raw-write
	} else if errno, ok := errors.AsType[*os.SyscallError](err); ok {
		return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: errno}
	}
	return err
}

// attempt reads once. It returns false to be called again when there is something to read.
func (c *conn) attempt(fd uintptr) bool {
	for {
		n, err := Read(fd, c.space)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			c.err = os.NewSyscallError("read", err)
		case n == 0:
			c.err = io.EOF
		default:
			c.n = n
		}
		return true
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.writes++
	n, err := c.sink.Write(b, c.writes%monitorWrites == 0 && WakesMonitor(time.Now()))
	return n, c.failed("write", err)
}

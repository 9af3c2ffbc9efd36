//go:build unix

package rawio

import (
	"cmp"
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/faisca/fila/internal/tuning"
)

// Sink writes to a connection. One goroutine at a time may use it.
type Sink struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // attempt, bound once to avoid allocations
	b   []byte                // unwritten bytes
	now bool                  // no wait for room
	say bool                  // the scheduler is told of the write, see WakesMonitor
	err error
}

// NewSink returns a sink for nc, or nil to use its own Write.
func NewSink(nc net.Conn) *Sink {
	raw := Raw(nc)
	if raw == nil {
		return nil
	}
	s := &Sink{raw: raw}
	s.try = s.attempt
	return s
}

// Raw returns what reads and writes nc, or nil to use its own methods.
func Raw(nc net.Conn) syscall.RawConn {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !tuning.Enabled {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// Write writes b until the connection's deadline, and returns how much was written.
func (s *Sink) Write(b []byte, say bool) (int, error) {
	s.now, s.say = false, say
	return s.send(b)
}

// TryWrite writes what there is room for, and returns how much that was: less than b also after an error, which the
// next write meets again.
func (s *Sink) TryWrite(b []byte, say bool) int {
	s.now, s.say = true, say
	n, _ := s.send(b)
	return n
}

func (s *Sink) send(b []byte) (int, error) {
	s.b, s.err = b, nil
	err := s.raw.Write(s.try)
	n := len(b) - len(s.b)
	s.b = nil
	return n, cmp.Or(err, s.err)
}

func tellingWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

// attempt writes as much as the socket accepts. It returns false to be called again when
// there is room, unless that is not to be waited for.
func (s *Sink) attempt(fd uintptr) bool {
	for len(s.b) > 0 {
		write := Write
		if s.say {
			write = tellingWrite
		}
		n, err := write(fd, s.b)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return s.now
		case err != nil:
			s.err = os.NewSyscallError("write", err)
			return true
		default:
			s.b = s.b[n:]
		}
	}
	return true
}

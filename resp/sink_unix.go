//go:build unix

package resp

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/faisca/fila/internal/tuning"
)

// pollSink writes to a socket through the netpoller.
type pollSink struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // attempt, bound once to avoid allocations
	b   []byte                // unwritten bytes
	now bool                  // no wait for room
	say bool                  // the scheduler is told of the write, see wakesMonitor
	err error
}

// newSink returns a sink for nc, or nil to use its own Write.
func newSink(nc net.Conn) *pollSink {
	tcp, ok := nc.(*net.TCPConn)
	if !ok || !tuning.Enabled {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &pollSink{raw: raw}
	s.try = s.attempt
	return s
}

// write writes b until the connection's deadline, and returns how much was written.
func (s *pollSink) write(b []byte) (int, error) {
	s.now, s.say = false, false
	return s.send(b)
}

// tryWrite writes what there is room for, and returns how much that was: less than b also after an error, which the
// next write meets again.
func (s *pollSink) tryWrite(b []byte, say bool) int {
	s.now, s.say = true, say
	n, _ := s.send(b)
	return n
}

func (s *pollSink) send(b []byte) (int, error) {
	s.b, s.err = b, nil
	err := s.raw.Write(s.try)
	n := len(b) - len(s.b)
	s.b = nil
	return n, errors.Join(err, s.err)
}

func tellingWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

// attempt writes as much as the socket accepts. It returns false to be called again when
// there is room, unless that is not to be waited for.
func (s *pollSink) attempt(fd uintptr) bool {
	for len(s.b) > 0 {
		write := rawWrite
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

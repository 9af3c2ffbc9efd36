//go:build unix

package resp

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// pollSink writes to a socket.
type pollSink struct {
	raw syscall.RawConn
	try func(fd uintptr) bool // attempt, bound once
	b   []byte                // still to be written
	err error
}

// newSink chooses how nc is written to; nil: by its own Write.
func newSink(nc net.Conn) *pollSink {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
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

// write writes b until the connection's deadline. It returns how much it wrote.
func (s *pollSink) write(b []byte) (int, error) {
	s.b, s.err = b, nil
	err := s.raw.Write(s.try)
	n := len(b) - len(s.b)
	s.b = nil
	return n, errors.Join(err, s.err)
}

// attempt writes as much as there is room for. False means that there is none: it
// is called again when there is.
func (s *pollSink) attempt(fd uintptr) bool {
	for len(s.b) > 0 {
		n, err := rawWrite(fd, s.b)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			s.err = os.NewSyscallError("write", err)
			return true
		default:
			s.b = s.b[n:]
		}
	}
	return true
}

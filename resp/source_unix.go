//go:build unix

package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/faisca/fila/internal/rawio"
)

// pollSource reads from a socket and takes a buffer only when data is available:
// thousands of idle connections share a few buffers.
type pollSource struct {
	raw syscall.RawConn
	r   *reader
	try func(fd uintptr) bool // attempt, bound once to avoid allocations
	n   int
	err error
}

// newSource returns the source for nc.
func newSource(nc net.Conn) source {
	raw := rawio.Raw(nc)
	if raw == nil {
		return newStreamSource(nc)
	}
	s := &pollSource{raw: raw}
	s.try = s.attempt
	return s
}

func (s *pollSource) fill(r *reader) (int, error) {
	s.r, s.n, s.err = r, 0, nil
	if err := s.raw.Read(s.try); err != nil {
		return 0, err
	}
	return s.n, s.err
}

// attempt reads once. It returns false to be called again when data is available.
func (s *pollSource) attempt(fd uintptr) bool {
	space := s.r.room(s.r.pools.getScratch)
	for {
		n, err := rawio.Read(fd, space)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			s.r.park()
			return false
		case err != nil:
			s.err = os.NewSyscallError("read", err)
		case n == 0:
			s.err = io.EOF
		default:
			s.n = n
		}
		return true
	}
}

package resp

import (
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlSocket sets an option that accepted sockets inherit: a connection ends if a
// reply is not acknowledged in time. Keep-alive does not cover unacknowledged bytes.
func controlSocket(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	if err == nil {
		err = set
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// socket returns the socket of the connection, nil without an error if it has none.
func (c *Conn) socket() (syscall.RawConn, error) {
	nc := c.nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn()
	}
	if s, ok := nc.(syscall.Conn); ok {
		return s.SyscallConn() //nolint:wrapcheck // that there is an error says all
	}
	return nil, nil //nolint:nilnil // see above
}

// noteUnacked notes how many bytes the system of the client has not acknowledged. It has no effect once
// the socket is closed.
func (c *Conn) noteUnacked() {
	raw, err := c.socket()
	if raw == nil || err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil { // SIOCOUTQ
			c.unacked.Store(int64(n))
		}
	})
}

// hungUp reports whether the client has closed its sending side or the connection is lost,
// whatever is still to be read.
func (c *Conn) hungUp() bool {
	raw, err := c.socket()
	if raw == nil {
		return err != nil
	}
	poll := []unix.PollFd{{Events: unix.POLLRDHUP}} // errors are always reported
	if err := raw.Control(func(fd uintptr) {
		poll[0].Fd = int32(fd)
		if _, err := unix.Poll(poll, 0); err != nil {
			poll[0].Revents = 0 // interrupted: it is examined again
		}
	}); err != nil {
		return true
	}
	return poll[0].Revents != 0
}

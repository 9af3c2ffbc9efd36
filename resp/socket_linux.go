package resp

import (
	"fmt"
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

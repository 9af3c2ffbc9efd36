package sqs

import (
	"crypto/tls"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether a client has closed its connection, or its sending side. It reads nothing, so it also holds while bytes
// that the client sent before have not been read.
func hungUp(conn net.Conn) bool {
	if t, is := conn.(*tls.Conn); is {
		conn = t.NetConn()
	}
	s, is := conn.(syscall.Conn)
	if !is {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	up := false
	err = raw.Control(func(fd uintptr) {
		events, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}, 0)
		up = err == nil && events > 0
	})
	return up || err != nil
}

//go:build !linux

package resp

import "syscall"

// controlSocket does nothing: only Linux bounds the time that bytes may stay
// unacknowledged. Elsewhere keep-alive and the write deadline apply.
func controlSocket(_, _ string, _ syscall.RawConn) error { return nil }

// hungUp reports nothing: only Linux tells that a client has left while bytes before that are
// still to be read.
func (c *Conn) hungUp() bool { return false }

// noteUnacked does nothing: only Linux tells which bytes are acknowledged.
func (c *Conn) noteUnacked() {}

//go:build !linux

package resp

import "syscall"

// controlSocket does nothing: only Linux bounds the time that bytes may stay
// unacknowledged. Elsewhere keep-alive and the write deadline apply.
func controlSocket(_, _ string, _ syscall.RawConn) error { return nil }

//go:build !linux

package resp

import "syscall"

// controlSocket has nothing to set: only Linux bounds how long a reply may stay
// unacknowledged. Elsewhere keep-alive and the write deadline must do.
func controlSocket(_, _ string, _ syscall.RawConn) error { return nil }

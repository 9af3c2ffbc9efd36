//go:build unix

package broker

import "syscall"

// raiseFileLimit raises the soft limit of open files to the hard limit and returns the
// limit in force.
func raiseFileLimit() (limit uint64, known bool) {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0, false
	}
	raised := l
	raised.Cur = l.Max
	if l.Cur < l.Max && syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
		l = raised
	}
	return uint64(l.Cur), true //nolint:unconvert // signed on some systems
}

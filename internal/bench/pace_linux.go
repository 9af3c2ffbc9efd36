package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// exactSleep disables timer slack for this thread, which delays the end of sleeps by up
// to 50 µs.
func exactSleep() {
	// If this fails, sleeps take slightly longer.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

// sleep may end early.
func sleep(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal ends it early
}

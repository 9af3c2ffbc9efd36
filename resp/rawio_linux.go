package resp

import (
	"syscall"
	"time"
	"unsafe"
)

// rawRead and rawWrite are read and write of a socket that never blocks, without
// telling Go's scheduler: who tells it wakes the scheduler's monitor, which then looks
// each 20 µs whether the call has lasted. Where a broker is busy and idle in turns,
// many times in a millisecond, that took an eighth of its processor time.
//
// The monitor is needed all the same, by whatever runs for long: see wakesMonitor.

func rawRead(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the call is over before b can move
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

func rawWrite(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the call is over before b can move
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// monitorEvery is how often the monitor is woken where there is traffic. It interrupts
// goroutines that run for 10 ms; asleep it would not see them.
const monitorEvery = 100 * time.Millisecond

// wakesMonitor tells, now and then, that this write is one to tell the scheduler of.
func (s *Server) wakesMonitor(now time.Time) bool {
	at := now.UnixNano()
	last := s.monitored.Load()
	return at-last >= int64(monitorEvery) && s.monitored.CompareAndSwap(last, at)
}

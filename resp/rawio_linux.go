package resp

import (
	"syscall"
	"time"
	"unsafe"
)

// rawRead and rawWrite are system calls on non-blocking sockets without notifying the Go
// scheduler. Notifying it wakes the scheduler's monitor, which then checks every 20 µs
// whether the call is still running. In a broker that alternates between busy and idle
// many times per millisecond, the monitor took an eighth of the processor time.
//
// Long-running goroutines need the monitor for preemption: see wakesMonitor.

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

// monitorEvery is how often the monitor is woken while there is traffic. It preempts
// goroutines after 10 ms, which it would miss while asleep.
const monitorEvery = 100 * time.Millisecond

// wakesMonitor reports whether this write must notify the scheduler.
func (s *Server) wakesMonitor(now time.Time) bool {
	at := now.UnixNano()
	last := s.monitored.Load()
	return at-last >= int64(monitorEvery) && s.monitored.CompareAndSwap(last, at)
}

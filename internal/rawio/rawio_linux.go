package rawio

import (
	"sync/atomic"
	"time"
)

// monitorEvery is how often the monitor is woken while there is traffic. It preempts
// goroutines after 10 ms, which it would miss while asleep.
const monitorEvery = 100 * time.Millisecond

var monitored atomic.Int64 //nolint:gochecknoglobals // the last wake-up of the monitor, of which a process has one; nanoseconds since began

var began = time.Now() //nolint:gochecknoglobals // the origin of a clock that is never set

// WakesMonitor reports whether a write of now, from the monotonic clock, must tell the scheduler, which wakes its monitor.
func WakesMonitor(now time.Time) bool {
	at := int64(now.Sub(began))
	last := monitored.Load()
	return at-last >= int64(monitorEvery) && monitored.CompareAndSwap(last, at)
}

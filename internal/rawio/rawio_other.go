//go:build !linux

package rawio

import "time"

// WakesMonitor reports false: every write tells the scheduler.
func WakesMonitor(time.Time) bool { return false }

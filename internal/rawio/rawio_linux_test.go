//go:build !plain

package rawio

import (
	"io"
	"testing"
	"time"
)

// The monitor is woken from time to time while there is traffic, and seldom.
func TestTheMonitorIsWokenSeldom(t *testing.T) {
	now := time.Now()
	for !WakesMonitor(now) { // an earlier run was ahead of the clock
		now = now.Add(time.Second)
	}
	woken := 0
	for range 1000 {
		if now = now.Add(time.Millisecond); WakesMonitor(now) {
			woken++
		}
	}
	if woken != 10 {
		t.Errorf("woken by %d of 1,000 writes in a second", woken)
	}
}

func TestAConnThatWritesMuchWakesTheMonitor(t *testing.T) {
	a, b := pair(t)
	go func() { _, _ = io.Copy(io.Discard, b) }()
	long := -int64(time.Hour)
	for i := range 2 * monitorWrites {
		if i == 1 || i == monitorWrites {
			monitored.Store(long)
		}
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if woken := monitored.Load() != long; i > 0 && woken != (i == monitorWrites-1 || i == 2*monitorWrites-1) {
			t.Fatalf("write %d: woken is %v", i, woken)
		}
	}
}

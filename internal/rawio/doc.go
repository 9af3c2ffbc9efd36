// Package rawio reads and writes descriptors that do not block, most of them sockets, without telling Go's scheduler of the
// system calls. Telling it wakes the scheduler's monitor, which then checks every 20 µs whether the call is still running. In a
// broker that alternates between busy and idle many times per millisecond, the monitor took an eighth of the processor time,
// and a third of what a leader without work does.
//
// Goroutines that compute for long need the monitor for preemption, so some writes tell, see WakesMonitor. Where Go has one
// processor and the monitor sleeps when such a goroutine begins, it wakes with the next timer or with a call of another kind:
// code that computes for more than a few milliseconds has to take breaks (package yield) either way.
//
// With the build tag plain, under the race detector, on systems other than Linux, and for connections that are not TCP,
// everything is as in package net.
package rawio

// Package telemetry keeps what INFO, LATENCY and SLOWLOG show of the commands that a server executes: how
// often each was called and how long it took, which errors were answered, what took longer than a
// threshold, and the newest slow commands.
//
// All of it is bounded, and may be used from any goroutine. Counting a command takes two atomic additions;
// adding the figures up is the work of the command that shows them.
package telemetry

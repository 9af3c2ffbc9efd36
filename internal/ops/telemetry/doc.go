// Package telemetry maintains the statistics behind INFO, LATENCY and SLOWLOG: calls, durations and
// errors by command, events above the latency threshold, and the newest slow commands.
//
// All of it is bounded and safe for concurrent use. Counting a command takes two atomic additions;
// the command that shows the statistics sums them up.
package telemetry

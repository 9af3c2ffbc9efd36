// Package client is a client of the broker: a connection that speaks RESP3. The command line
// and the HTTP listener use it; it knows neither queues nor what a command means.
//
// # Values
//
// A reply is one of:
//
//	string    a simple, bulk, verbatim or big-number reply; strings are binary safe
//	int64     an integer
//	float64   a double
//	bool      a boolean
//	nil       nothing
//	[]any     an array or a set
//	[Map]     a map, in the order of the wire
//
// An error reply is a [RefusalError]: the broker is well and has refused. Any other error
// says that the connection is of no more use; each later call returns it again.
//
// # Bounds
//
// A reply takes at most Options.ReplyBytesMax of memory and is at most 32 levels deep. Memory
// grows with the bytes that have arrived, not with the lengths that they announce.
//
// # Pushes
//
// A push message may come between any two replies. [Conn.Do] drops those that it meets, or
// hands them to Options.Push; [Conn.Next] waits for one.
package client

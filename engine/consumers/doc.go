// Package consumers lists the clients that wait for messages of a queue, and those that hold leases of it, by client,
// name and queue. It knows no messages, tasks, records or clock.
//
// A consumer is a client with a name, at one queue: its lease gives the name, and both may be missing. One message goes
// like this, each step in constant time and without an allocation once there were as many consumers and leases:
//
//	a lease waits   c = r.Of(q, client, name, c)  the consumer; the caller keeps it, so that the next call does not search
//	                r.Wait(c, 1)                  it waits
//	a delivery      r.Wait(c, -1), l = r.Lease(c, now)
//	an ack          r.End(l)
//	a listing       q.Walk(cursor, ...)           consumers that wait or hold leases, in the order in which they came
//
// A consumer that neither waits nor holds leases is idle: it is not listed, and kept for its next lease, up to a total.
//
//	idle → present    Wait, Lease
//	present → idle    Wait, End: it waits no more, and its last lease has ended
//	idle → forgotten  another one becomes idle, and there are more than idleMax
package consumers

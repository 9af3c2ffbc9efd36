// Package admin is the HTTP listener for operators: health, metrics, commands, events, live
// figures and sessions.
//
// It knows the broker by [Broker] alone: as a way to open connections that speak RESP, and
// by its state. Every request that concerns the broker is a command on such a connection of
// the request's user. Rights are therefore checked where those of every client are, and
// CLIENT LIST, ACL LOG and the audit log show the user with the address of its HTTP client.
//
// # Connections
//
// A request has a connection of its own, which ends with it. To open one costs as much as
// some twenty small commands, a fraction of a millisecond (BenchmarkConnection). A pool would
// save that, and would have to make sure that nothing of one request, such as its user or an
// open transaction, is left for the next. Their number is bounded by that of requests and
// streams.
//
// # Users
//
// A request speaks for the user of, in this order, its HTTP Basic authentication, its
// session, its client certificate; else for the default user, which is refused where
// clients have to authenticate. The connection that a session has authenticated on stays
// open for as long as the session lasts, and its end is that of the session. So whatever
// closes the connections of a user, as ACL DELUSER and CLIENT KILL do, ends its sessions,
// too.
//
// # Checks
//
// In the order in which a request meets them: the number of connections, the size and time
// of its header, its Host, its origin, the number of requests at once, its user, the size
// and time of its body, and then the rights of the command. Nothing of a body is read
// before the user is known, but for the form of a login.
package admin

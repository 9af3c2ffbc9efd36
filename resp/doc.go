// Package resp speaks the Redis protocol: it frames commands, keeps
// connections, and writes replies in RESP2 or RESP3. It knows no command.
//
// # A connection
//
// Each connection has two goroutines and one window.
//
//  1. The reader frames what one socket read delivered and hands all of it to
//     Session.Handle in one call.
//  2. The session pushes one Reply per command into the window, in order. A
//     reply need not be ready yet; that is what lets a pipeline share a commit.
//  3. Whoever makes a reply ready calls Conn.Wake.
//  4. The writer renders the ready replies at the head of the window into one
//     buffer and writes it once. A reply that is not ready holds back those
//     behind it, never those before it.
//
// The reader goes on while replies wait, so that a client that leaves is
// noticed at once: Session.Gone is called as soon as the reader ends. It only
// pauses while the window is full, or while a command waits for the memory that
// its reply may take (Conn.Reserve): these are the bounds on what a pipelining
// client can make the server hold.
//
// # Promises
//
//  1. Replies leave in the order of their commands, whatever the order in which
//     they become ready.
//  2. Memory follows the bytes received, never a length that was only declared.
//     A connection with nothing to do holds no buffer.
//  3. Every command framed before a protocol error is answered before the error.
//  4. A reply is appended, or dropped, or appended and then dropped when the
//     write failed; it is dropped at most once and never before it is ready.
//  5. Session.Gone is called exactly once for each session.
//  6. A panic in a session or a reply ends its connection, not the process.
//
// # What is taken from redcon
//
// Its append functions write the RESP2 pieces. Its reader and server are not
// used: the reader trusts declared lengths (one packet ends the process), and
// the server reads nothing while a handler runs, so a blocked command could not
// see its client leave.
package resp

// Package resp implements the Redis protocol: it frames commands, manages connections,
// and writes replies in RESP2 or RESP3. It does not know any command.
//
// # A connection
//
// Each connection has two goroutines and one reply queue.
//
//  1. The reader frames the commands of one socket read and passes all of them to
//     Session.Handle in one call.
//  2. The session pushes one Reply per command into the reply queue, in order.
//     Replies need not be ready yet, so a pipeline can share a commit.
//  3. The component that makes a reply ready calls Conn.Wake, or Conn.Answer, which does
//     the next step itself while the writer sleeps and the replies are brief.
//  4. The writer renders the ready replies at the head of the queue into one
//     buffer and writes it. A reply that is not ready blocks those behind it,
//     never those before it.
//
// The reader continues while replies are pending, so the loss of a client is noticed at
// once: Session.Gone is called as soon as the reader ends. The reader pauses only while
// the reply queue is full, or while a command waits for the memory of its reply
// (Conn.Reserve). These two bounds limit what a pipelining client can make the server
// hold. A session that waits for something else in Session.Handle uses Conn.Watch to
// notice the loss of its client.
//
// # Guarantees
//
//  1. Replies are sent in the order of their commands, in whatever order they
//     become ready.
//  2. Memory is proportional to the bytes received, never to a declared length.
//     An idle connection holds no buffer.
//  3. Every command framed before a protocol error is answered before the error.
//  4. A reply is appended, or dropped, or appended and then dropped because the
//     write failed. It is dropped at most once and never before it is ready.
//  5. Session.Gone is called exactly once for each session.
//  6. A panic in a session or a reply ends its connection, not the process.
//
// # Use of redcon
//
// The append functions of redcon encode RESP2. Its reader and server are not used: the
// reader trusts declared lengths, so one packet can end the process, and the server does
// not read while a handler runs, so a blocked command would not notice the loss of its
// client.
package resp

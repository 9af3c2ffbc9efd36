// Package relay takes the commands of a node that does not lead to the leader, and brings the replies
// back. It knows bytes, frames and links; what a command means, and which of them is sent, is decided
// in package commands (commands/relay.go).
//
//	client ─► resp.Conn ─► Session ─► Conn ═══ stream of a link ═══► resp.Conn ─► Session ─► engine
//	          └──────── follower ────────┘                            └───────── leader ─────────┘
//
// A link is one connection between two nodes. Each client has a stream in it, opened with the first
// command that is sent. At the leader a stream is a net.Conn that resp.Server serves as it serves
// the connection of a client: so waiting, backpressure, the order of replies, departures, the bound of
// connections and rights are those of a client of the leader.
//
// Streams are a few hundred lines of this package (mux.go, stream.go), and not hashicorp/yamux, which was tried: it
// writes each frame with two calls and has the sender wait for them, its windows are 256 KiB at least,
// which is 2.5 GiB for 10,000 clients that do not read, a stream cannot be closed for reading, and its
// pool of timers cannot be used in tests with simulated time.
//
// # The path of a forwarded command
//
//  1. The session of the follower checks rights and syntax, as always. It makes a Command: the bytes to
//     send, and whether they may be sent twice. The Command is put into the reply queue of the client's
//     connection, in its place between the replies of local commands.
//  2. Conn.Send writes the commands of one read of the client to the stream, in one write. If the
//     leader does not take them at once, a goroutine continues: the session never waits for longer
//     than a moment.
//  3. Before the first command of a stream, and before a command whose user, name or protocol differ
//     from those of the command before it, the Identity is sent, a command of its own.
//  4. The leader's session checks rights again, executes, and replies.
//  5. The reader of the stream, a goroutine for each client, finds the end of each reply (Scanner).
//     Replies come in the order of commands. It hands the reply to its Command and wakes the client's
//     writer once for all replies of a read.
//  6. The writer passes the bytes on. A reply of up to 64 KiB is in memory as a whole; of a longer one
//     there are a few pieces, and the leader waits until the client has taken them.
//
// # What can happen to it
//
//	there is no leader     it waits for Config.Wait, then LOADING
//	the leader refuses     with LOADING: it has had no effect. Nothing more is sent on this stream; the
//	                       replies to what was sent before are awaited, since commands before and after
//	                       it may have been executed. Then it goes to the next leader, with all those
//	                       that were refused, in order
//	the stream breaks      without that: those that were not sent, or may be sent twice (Command.Again), go to the
//	                       next leader; all others are answered MISCONF, may have happened or not.
//	                       A reply of which the client has a part cannot be completed: ErrCut
//	the leader stops       it answers what it has read, and ends the streams, then the link, before it closes them:
//	                       what has no reply then has had no effect, and goes to the next leader
//	another node leads     the link to the earlier leader ends after a moment, as if it broke
//	no leader is known     for longer than a moment, likewise
//	this node leads        what is left goes through a link of this process to itself; what the client
//	                       sends after the last reply need not be sent anywhere
//	the client is gone     the stream is closed for writing, and the leader sees that its client has no
//	                       more commands. A reply that came nevertheless is dropped (Command.Lost)
//
// # Bounds
//
// For each client: the window of its stream, 128 KiB, at either node, a reply of up to 64 KiB, and the
// commands without a reply. Those are bounded by the reply queue of the client's connection
// (resp.Config.WindowMax), and if they are long by its memory for replies.
package relay

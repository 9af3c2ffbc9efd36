// Package commands implements the commands: a table of their descriptions, and the session that executes
// the commands of a connection.
//
// A command is described once, by its Spec. Package internal/command derives arity, syntax, rights,
// COMMAND, HELP and redis-compat.md from it, package internal/broker/compat the table of costs in
// docs/explanation/guarantees.md. In this package:
//
//   - table.go lists the commands, by the file that holds them.
//   - handler.go opens a Session for each connection, session.go takes a command
//     through the steps below, rights.go refuses it, transaction.go queues it.
//   - relay.go passes a command on if another node leads.
//   - meta.go has what producers say about a message: their options, and the fields that show it.
//   - answers.go has the calls of most commands. room.go sets memory aside, fields.go writes maps,
//     reply.go renders and turns the errors of the engine into codes.
//
// Subscriptions, statistics of calls, the slow log and patterns are in internal/events,
// internal/ops/telemetry and internal/glob.
//
// The path of a command:
//
//  1. The session looks the command up in the table, scans its arguments and checks the user's rights.
//     A command that is refused here has had no effect. Then the session reserves the memory of the
//     reply (room.go), which may have to wait until earlier replies have been written.
//  2. A local command (PING, HELLO, CLIENT, ...) is executed immediately and its reply is rendered. It
//     uses the session, never the engine.
//  3. Any other command is parsed into a call, a value that holds all that the engine needs. Parsing has
//     no side effects. Slow work that needs no queue, such as encoding a message, is done here on the
//     connection, to relieve the loop.
//  4. The replies of all commands of one read enter the connection's reply queue in order, and their
//     tasks are submitted to the engine at once.
//  5. Apply runs on the loop. It calls a method of engine.Tx and stores the typed result in the call.
//  6. When the result is durable, the engine wakes the connection, whose writer renders it. A reply that
//     can no longer be delivered is dropped and its deliveries are taken back.
//
// Calls are independent of tasks, so a transaction applies many calls in one task.
//
// The package reads no clock, starts no goroutine and does no I/O.
//
// # Where a command is
//
// table.go lists every command under the name of the file that describes it: one file holds a family, as
// ack.go holds FILA.ACK, FILA.NACK, FILA.EXTEND and FILA.RELEASE. What a command decides is in the engine,
// in the file of the same verb.
//
// # Adding a command
//
//  1. A function that returns its Spec, and Parse with a call of answers.go or one of its own, or a Local
//     function: in the file of its family, or in a file of its own.
//  2. A row in table.go, under the name of that file.
//  3. A method of engine.Tx for its effect on queues. A new kind of refusal is an error in
//     engine/config.go and a row in reply.go here.
//  4. Room and Memory in its Spec if the reply may exceed 4 KiB.
//  5. testdata/<name>.txt: a session with its replies, including refusals.
//  6. make docs, make quick.
package commands

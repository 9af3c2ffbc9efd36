// Package commands is what Fila understands: one table of commands, and the
// session that reads them off a connection and answers.
//
// A command is described once, by its Spec; package internal/command makes arity,
// syntax, rights, COMMAND, HELP and redis-compat.md of the description. This
// package has the descriptions, and what the commands do:
//
//   - table.go lists the commands, by the file that holds them.
//   - handler.go opens a Session for each connection, session.go takes a command
//     through the steps below, rights.go refuses it, transaction.go queues it.
//   - room.go sets memory aside, reply.go renders, fields.go writes maps,
//     errors.go turns the errors of the engine into codes.
//
// Subscriptions, figures of calls, the slow log and patterns are services: they are
// in internal/events, internal/telemetry and internal/glob.
//
// The path of a command, for which the numbered steps hold:
//
//  1. The session finds the command in the table and scans its arguments. A
//     refusal here is final: nothing has happened.
//     What its reply may take is set aside before anything else happens (room.go),
//     which may have to wait until replies before it have left.
//  2. A local command (PING, HELLO, CLIENT, ...) is executed there and then; its
//     reply is rendered into bytes. It touches the session, never the engine.
//  3. Any other is parsed into a call: a value that holds everything the engine
//     needs. Parsing is pure. What is slow but needs no queue, such as encoding a
//     message, is done here too, on the connection and off the loop.
//  4. The replies of all commands of one read go into the connection's reply
//     queue in order, then their tasks go to the engine in one Submit.
//  5. Apply runs on the loop: one method of Tx, its typed result kept in the call.
//  6. When the turn is durable the engine wakes the connection, whose writer
//     renders the kept result. A reply that cannot be delivered any more is
//     dropped, and what its call delivered is taken back.
//
// A call is a value and its task is made apart from it: a transaction can hold
// many calls and apply them in one task.
//
// There is no clock, no goroutine and no I/O here: time is handed in, waiting is
// the engine's, bytes are resp's.
//
// # Where a command is
//
// table.go lists every command under the name of the file that describes it: one file holds a family, as
// ack.go holds FILA.ACK, FILA.NACK, FILA.EXTEND and FILA.RELEASE. What a command decides is in the engine,
// in the file of the same verb.
//
// # Adding a command
//
//  1. A function that returns its Spec, and a call with Apply and Render, or a Local function: in the file
//     of its family, or in a file of its own.
//  2. A row in table.go, under the name of that file.
//  3. What it does to queues: a method of engine.Tx. A new refusal is an error in
//     engine/errors.go and a row in errors.go here.
//  4. Its Spec says how much its reply may take, if that is more than 4 KiB, and
//     docs/guarantees.md what it costs; room_test.go has its worst form.
//  5. testdata/<name>.txt: a session that shows what it answers, refusals too.
//  6. make docs, make quick.
package commands

// Package commands is what Fila understands: one table of commands, and the
// session that reads them off a connection and answers.
//
// A command is described once, by its Spec. What the description says is what
// happens: arity, the syntax that scan accepts, the usage line of a refusal,
// COMMAND, COMMAND DOCS, HELP and redis-compat.md are all computed from it.
// Nothing else in the project knows how a command is written.
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
//  4. The replies of all commands of one read go into the connection's window
//     in order, then their tasks go to the engine in one Submit.
//  5. Apply runs on the loop: one method of Tx, its typed result kept in the call.
//  6. When the turn is durable the engine wakes the connection, whose writer
//     renders the kept result. A reply that cannot be delivered any more is
//     dropped, and what its call handed out is taken back.
//
// A call is a value and its task is made apart from it: a transaction can hold
// many calls and apply them in one task.
//
// There is no clock, no goroutine and no I/O here: time is handed in, waiting is
// the engine's, bytes are resp's.
//
// # Where a command is
//
// FILA.LEASE is in lease.go, FILA.QUEUE PAUSE in queue_pause.go, SLOWLOG in
// slowlog.go; FILA.CONFIG is in config_values.go, as CONFIG is Redis'. What a
// command decides is in the engine's file of the same verb.
//
// # Adding a command
//
//  1. A file of its own with a function that returns its Spec, and a call with
//     Apply and Render, or a Local function.
//  2. A row in table.go, in alphabetical place.
//  3. What it does to queues: a method of engine.Tx. A new refusal is an error in
//     engine/errors.go and a row in errors.go here.
//  4. Its Spec says how much its reply may take, if that is more than 4 KiB, and
//     docs/guarantees.md what it costs; room_test.go has its worst form.
//  5. testdata/<name>.txt: a session that shows what it answers, refusals too.
//  6. make docs, make quick.
package commands

package compat

// ErrorCode is the first word of an error and what it says. Clients may go by
// the code, never by the text behind it; once released it keeps its meaning.
type ErrorCode struct{ Code, When string }

// ErrorCodes are all of them.
func ErrorCodes() []ErrorCode {
	return []ErrorCode{
		{"BADRECEIPT", "An argument is no receipt, or no message id."},
		{"ERR", "The command is unknown, or its arguments are not what it takes. Nothing has happened."},
		{"EXECABORT", "A command was refused while it was queued: nothing of the transaction was executed."},
		{"INVALID", "An argument is well-formed, but not allowed: a weight of 0, a queue that is its own dead-letter queue."},
		{"LEASELOST", "The receipt's lease is over: it expired, was acked, nacked or released, or another delivery holds the message."},
		{"LOADING", "Fila is recovering its queues from disk, or stopping. Most client libraries try again by themselves."},
		{"LUA", "A script does not compile; in FILA.SCRIPT TEST also: it has failed."},
		{"MAXDEPTH", "The queue, or the fairness key, is full."},
		{"MISCONF", "The store cannot write. Reading goes on, and so does writing as soon as the store can."},
		{"NOAUTH", "The connection has to authenticate first."},
		{"NOMSG", "There is no such message."},
		{"NOPERM", "The user has no right to the command, the queue or the channel."},
		{"NOPROTO", "HELLO has asked for a protocol that is neither 2 nor 3."},
		{"NOQUEUE", "There is no queue of that name."},
		{"OOM", "The long commands that all connections are sending exceed server.input_bytes_max: the connection is closed. Or the commands that wait for EXEC in all connections do: the command is refused."},
		{"PAUSED", "The queue takes no messages for now."},
		{"QUEUEEXISTS", "There is a queue of that name already."},
		{"TOOBIG", "A payload, a header, a name or a list is over its limit."},
		{"UNBLOCKED", "CLIENT UNBLOCK has ended the wait for messages with an error."},
		{"WRONGPASS", "No user of that name has that password, or it is switched off."},
	}
}

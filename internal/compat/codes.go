package compat

// ErrorCode is the first word of an error and its meaning. Clients may rely on the code, but not on
// the text after it; a released code keeps its meaning.
type ErrorCode struct{ Code, When string }

// ErrorCodes returns all codes.
func ErrorCodes() []ErrorCode {
	return []ErrorCode{
		{"BADRECEIPT", "An argument is not a valid receipt or message id."},
		{"CLUSTERDOWN", "On a port for clients of Redis Cluster, what is LOADING on others: no node leads, or another one is taking over. Nothing was executed. Client libraries send the command again."},
		{"CREDIT", "The budget does not cover the charge."},
		{"ERR", "The command is unknown or its arguments are invalid. Nothing was executed."},
		{"EXECABORT", "A command was refused while it was queued; the transaction was not executed."},
		{"INVALID", "An argument is well-formed, but not allowed: a weight of 0, a queue that is its own dead-letter queue."},
		{"LEASELOST", "The receipt's lease is over: it expired, was acked, nacked or released, or another delivery holds the message."},
		{"LOADING", "Fila is recovering its queues from disk, or stopping, or another node of its cluster is taking over. Nothing was executed. Most client libraries retry by themselves."},
		{"LUA", "A script does not compile or, in FILA.SCRIPT TEST, has failed."},
		{"MAXDEPTH", "The queue, or the fairness key, is full."},
		{"MISCONF", "The store cannot write. Reads continue, and writes resume when the store recovers. Or the node has ceased to lead its cluster while it executed the command, which may have happened or not."},
		{"MOVED", "On a port for clients of Redis Cluster: another node leads. Slot and address follow. Nothing was executed. Client libraries send the command to that node."},
		{"NOAUTH", "The connection must authenticate first."},
		{"NOBUDGET", "The budget does not exist."},
		{"NOMSG", "The message does not exist."},
		{"NOPERM", "The user has no right to the command, the queue or the channel."},
		{"NOPROTO", "HELLO requested a protocol other than 2 and 3."},
		{"NOQUEUE", "The queue does not exist."},
		{"NOQUORUM", "SENTINEL CKQUORUM: too few nodes are up to elect a leader."},
		{"OOM", "The total size of the long commands being received exceeds server.input_bytes_max: the connection is closed. Or the total size of the commands queued for EXEC does: the command is refused."},
		{"PAUSED", "The queue is paused for enqueues."},
		{"QUEUEEXISTS", "A queue of that name exists already."},
		{"TOOBIG", "A payload, a header, a name or a list exceeds its limit."},
		{"UNBLOCKED", "CLIENT UNBLOCK ended the wait for messages with an error."},
		{"WRONGPASS", "The user name or the password is wrong, or the user is disabled."},
	}
}

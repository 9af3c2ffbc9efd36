package commands

import "github.com/faisca/fila/resp"

func multi() Spec {
	return Spec{
		Name: "MULTI", Group: "transactions", Since: "1.2.0", Complexity: "O(1)",
		Summary: "Begins a transaction: the commands that follow are kept and executed by EXEC as one atomic write, all or nothing across a crash.",
		Differs: "An argument that cannot be is refused when its command is queued, and discards the transaction, as an unknown command does in Redis.",
		Flags:   []string{"noscript", "fast"},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"MULTI", "OK"},
			{"FILA.ENQUEUE orders hello", "QUEUED"},
			{"FILA.LEASE orders", "QUEUED"},
			{"EXEC", "..."},
		},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if s.multi != nil {
				return &refusal{"ERR", "MULTI calls can not be nested"}
			}
			s.begin()
			w.OK()
			return nil
		},
	}
}

func exec() Spec {
	return Spec{
		Name: "EXEC", Group: "transactions", Since: "1.2.0", Complexity: "Depends on commands in the transaction; they are one write and are not divided",
		Summary: "Executes the commands since MULTI in one turn and one write: nothing happens between them, and a crash keeps all or none. " +
			"One that is refused answers its own error and changes nothing, the others apply. A lease does not wait in it.",
		Reply: "An array with the replies, in order.",
		Differs: "A hook of a queue, and the limits of a message, are applied to all of its messages before the first command: " +
			"what they refuse discards the transaction. FILA.BROWSE, FILA.REDRIVE, FILA.EXPLAIN of a message and FILA.PURGE of a key " +
			"read too much to be a part of one write: they answer an error in it.",
		Flags: []string{"noscript", "write"},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"MULTI", "OK"},
			{"FILA.ENQUEUE orders hello", "QUEUED"},
			{"PING", "QUEUED"},
			{"EXEC", `1) "<id>"
2) PONG`},
		},
		Immediate: true,
		Room:      execRoom,
		Parse:     func(in *input) (call, error) { return in.session.exec() },
	}
}

// execRoom is what the replies of a transaction take, and its arguments.
func execRoom(in *input) int {
	t := in.session.multi
	if t == nil {
		return tinyRoom
	}
	n := t.room + argumentCopies*t.bytes
	if t.shows {
		n += in.limits.ReplyBytes
	}
	return n
}

func discard() Spec {
	return Spec{
		Name: "DISCARD", Group: "transactions", Since: "2.0.0", Complexity: "O(N), when N is the number of queued commands",
		Summary: "Forgets the commands since MULTI.",
		Flags:   []string{"noscript", "loading", "stale", "fast"},
		Examples: []Example{
			{"MULTI", "OK"},
			{"PING", "QUEUED"},
			{"DISCARD", "OK"},
		},
		Immediate: true,
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if s.multi == nil {
				return &refusal{"ERR", "DISCARD without MULTI"}
			}
			s.end()
			w.OK()
			return nil
		},
	}
}

package commands

import "slices"

func mlease() Spec {
	return Spec{
		Name: "FILA.MLEASE", Group: "fila", Since: "0.1.0",
		Complexity: "O(N+M) where N is the number of messages returned and M the number of queues",
		Summary:    "Leases the next messages of several queues, which take turns.",
		Reply:      "As FILA.LEASE.",
		Flags:      []string{"write", "blocking", "movablekeys"},
		Access:     Consume, ACL: []string{"consume"},
		Args: append([]Arg{
			{Name: "numqueues", Type: Integer, Min: 1, Max: queuesMax},
			{Name: "queue", Type: Key, Multiple: true, CountedBy: "numqueues"},
		}, leaseOptions()...),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE CREATE mails", "OK"},
			{"FILA.MLEASE 2 orders mails COUNT 5", "(empty array)"},
			{"FILA.ENQUEUE mails hello", `"<id>"`},
			{"FILA.MLEASE 2 orders mails COUNT 5", "..."},
		},
		Room: leaseRoom,
		Parse: func(in *input) (call, error) {
			words := in.list("queue")
			queues := make([]string, 0, len(words))
			for _, word := range words {
				// A queue named twice has still one turn and one line to wait in.
				if name := in.names.get(word); !slices.Contains(queues, name) {
					queues = append(queues, name)
				}
			}
			c := &leaseCall{}
			err := c.parse(in, queues)
			return c, err
		},
	}
}

// queuesMax bounds the queues of one MLEASE: each is a place in a line while it
// blocks.
const queuesMax = 1024

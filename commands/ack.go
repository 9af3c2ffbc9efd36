package commands

import (
	"github.com/faisca/fila/engine"
)

func ack() Spec {
	return Spec{
		Name: "FILA.ACK", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of receipts and M that of leased messages, in slices",
		Summary: "Acks messages: their work is done, and they are removed. Returns how many of the leases still held. " +
			"Thousands of receipts are handled in slices: a crash before the reply may have kept a part of them. In a transaction they are one write.",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: receiptArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.ACK orders <receipt>", "(integer) 1"},
			{"FILA.ACK orders <receipt>", "(integer) 0"},
		},
		Tiny: true,
		Parse: func(in *input) (call, error) {
			c := &ackCall{}
			err := c.parse(in)
			return c, err
		},
	}
}

type ackCall struct{ receipts }

// Apply implements engine.Call.
func (c *ackCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Ack(c.queue, c.list)
	return err
}

package commands

import (
	"github.com/faisca/fila/engine"
)

func release() Spec {
	return Spec{
		Name: "FILA.RELEASE", Group: "fila", Since: "0.1.0", Complexity: "O(N*log(M)) where N is the number of receipts and M that of leased messages, in slices",
		Summary: "Ends leases without work done: the messages are ready again at once, and no failure is counted. Returns how many of the leases still held. " +
			"Thousands of receipts are handled in slices, as with FILA.ACK.",
		Flags:  []string{"write", "fast"},
		Access: Consume, ACL: []string{"consume"},
		Args: receiptArgs(),
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.RELEASE orders <receipt>", "(integer) 1"},
		},
		Tiny: true,
		Parse: func(in *input) (call, error) {
			c := &releaseCall{}
			err := c.parse(in)
			return c, err
		},
	}
}

type releaseCall struct{ receipts }

// Apply implements engine.Call.
func (c *releaseCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Release(c.queue, c.list)
	return err
}

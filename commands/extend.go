package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func extend() Spec {
	return Spec{
		Name: "FILA.EXTEND", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of leased messages",
		Summary: "Makes a lease end so many milliseconds from now, and returns when that is.",
		Flags:   []string{"write", "fast"},
		Access:  Consume, ACL: []string{"consume"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "receipt", Type: String},
			{Name: "ms", Type: Integer, Min: 1, Max: millisMax},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.EXTEND orders <receipt> 60000", "(integer) <time>"},
		},
		Tiny:  true,
		Parse: parseExtend,
	}
}

type extendCall struct {
	queue   string
	receipt engine.Receipt
	by      time.Duration
	until   time.Time
}

func parseExtend(in *input) (call, error) {
	r, err := engine.ParseReceipt(in.bytes("receipt"))
	if err != nil {
		return nil, err
	}
	return &extendCall{queue: in.text("queue"), receipt: r, by: in.millis("ms", 0)}, nil
}

// Apply implements engine.Call.
func (c *extendCall) Apply(tx *engine.Tx) (err error) {
	c.until, err = tx.Extend(c.queue, c.receipt, c.by)
	return err
}

// Render writes the new end of the lease.
func (c *extendCall) Render(_ *Handler, w *resp.Writer) error {
	writeTime(w, c.until)
	return nil
}

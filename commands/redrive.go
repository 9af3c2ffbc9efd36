package commands

import (
	"math"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func redrive() Spec {
	return Spec{
		Name: "FILA.REDRIVE", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of messages moved",
		Summary: "Moves dead messages back to where each came from; their attempts start again. Returns how many.",
		Flags:   []string{"write"},
		Access:  Consume, ACL: []string{"admin"},
		Args: []Arg{
			{Name: "dlq", Type: Key},
			{Name: "n", Type: Integer, Token: "COUNT", Optional: true, Min: 1, Max: math.MaxInt32},
			{Name: "fairness-key", Type: String, Token: "KEY", Optional: true},
			{Name: "queue", Type: Key, Token: "TO", Optional: true, Access: Produce},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello", `"<id>"`},
			{"FILA.LEASE orders", "..."},
			{"FILA.NACK orders <receipt> DEAD", "..."},
			{"FILA.REDRIVE orders.dlq COUNT 100", "(integer) 1"},
		},
		Parse: func(in *input) (call, error) {
			return &redriveCall{req: engine.Redrive{
				DLQ: in.text("dlq"), Count: int(in.integer("count", 0)), Key: in.text("key"), To: in.text("to"),
			}}, nil
		},
	}
}

type redriveCall struct {
	req engine.Redrive
	n   int
}

// Apply implements engine.Call.
func (c *redriveCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Redrive(&c.req)
	return err
}

// Render writes how many messages were moved.
func (c *redriveCall) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(c.n))
	return nil
}

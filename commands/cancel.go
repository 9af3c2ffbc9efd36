package commands

import (
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func cancel() Spec {
	return Spec{
		Name: "FILA.CANCEL", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of ids, in slices",
		Summary: "Removes messages, whatever their status, and returns how many there were. The receipt of a leased one is lost. " +
			"Thousands of ids are handled in slices, as with FILA.ACK.",
		Flags: []string{"write"},
		Args:  []Arg{{Name: "queue", Type: Key}, {Name: "id", Type: String, Multiple: true}},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello DELAY 3600000", `"<id>"`},
			{"FILA.CANCEL orders <id>", "(integer) 1"},
			{"FILA.CANCEL orders <id>", "(integer) 0"},
		},
		Room: words("id", cancelRoom),
		Parse: func(in *input) (call, error) {
			c := &cancelCall{req: engine.Cancel{Queue: in.text("queue")}}
			for _, word := range in.list("id") {
				r, err := engine.ParseReceipt(word)
				if err != nil {
					return nil, err
				}
				c.req.IDs = append(c.req.IDs, r.ID)
			}
			return c, nil
		},
	}
}

type cancelCall struct {
	req engine.Cancel
	counted
}

// Preflight implements engine.Preflighter.
func (c *cancelCall) Preflight(tx *engine.Tx) error { return tx.PreflightCancel(&c.req) }

// Apply implements engine.Call.
func (c *cancelCall) Apply(tx *engine.Tx) (err error) {
	c.n, err = tx.Cancel(&c.req)
	return err
}

// Bytes is what waits for the loop.
func (c *cancelCall) Bytes() int { return 16 * len(c.req.IDs) }

// counted renders how many messages there were.
type counted struct{ n int }

// Render writes the number.
func (c *counted) Render(_ *Handler, w *resp.Writer) error {
	w.Int(int64(c.n))
	return nil
}

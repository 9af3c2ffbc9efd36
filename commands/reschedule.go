package commands

import (
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
)

func reschedule() Spec {
	return Spec{
		Name: "FILA.RESCHEDULE", Group: "fila", Since: "0.1.0", Complexity: "O(log(N)) where N is the number of delayed messages in memory",
		Summary: "Makes a message ready so many milliseconds from now, 0 is at once, and returns when that is. It keeps its attempts and its place. " +
			"A leased message is refused: its consumer decides. So is a time at which the message's TTL is over.",
		Flags: []string{"write"},
		Args: []Arg{
			{Name: "queue", Type: Key},
			{Name: "id", Type: String},
			{Name: "ms", Type: Integer, Max: millisMax},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.ENQUEUE orders hello DELAY 3600000", `"<id>"`},
			{"FILA.RESCHEDULE orders <id> 0", "(integer) <time>"},
		},
		Tiny: true,
		Parse: func(in *input) (call, error) {
			r, err := engine.ParseReceipt(in.bytes("id"))
			if err != nil {
				return nil, err
			}
			return &rescheduleCall{req: engine.Reschedule{Queue: in.text("queue"), ID: r.ID, Delay: in.millis("ms", 0)}}, nil
		},
	}
}

type rescheduleCall struct {
	req     engine.Reschedule
	readyAt time.Time
}

// Preflight implements engine.Preflighter.
func (c *rescheduleCall) Preflight(tx *engine.Tx) error { return tx.PreflightReschedule(&c.req) }

// Apply implements engine.Call.
func (c *rescheduleCall) Apply(tx *engine.Tx) (err error) {
	c.readyAt, err = tx.Reschedule(&c.req)
	return err
}

// Render writes when the message is ready.
func (c *rescheduleCall) Render(_ *Handler, w *resp.Writer) error {
	writeTime(w, c.readyAt)
	return nil
}

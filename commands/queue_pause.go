package commands

import "github.com/faisca/fila/engine"

func queuePause() Spec {
	return pausing("PAUSE", true,
		"Stops a queue: with IN it refuses new messages, with OUT it hands none out, without either both. What is leased stays leased, and clients that wait go on waiting.")
}

func queueResume() Spec {
	return pausing("RESUME", false, "Lets a queue go on: with IN it takes messages again, with OUT it hands them out, without either both. Clients that wait are served at once.")
}

func pausing(name string, paused bool, summary string) Spec {
	return Spec{
		Name: name, Group: "fila", Since: "0.1.0", Complexity: "O(1)",
		Summary: summary,
		Flags:   []string{"write", "fast"},
		ACL:     []string{"admin"},
		Args: []Arg{
			{Name: "name", Type: Key},
			{Name: "direction", Type: OneOf, Optional: true, Args: []Arg{
				{Name: "in", Type: PureToken, Token: "IN"},
				{Name: "out", Type: PureToken, Token: "OUT"},
			}},
		},
		Examples: []Example{
			{"FILA.QUEUE CREATE orders", "OK"},
			{"FILA.QUEUE " + name + " orders OUT", "OK"},
			{"FILA.QUEUE " + name + " orders", "OK"},
		},
		Parse: func(in *input) (call, error) {
			return &queuePauseCall{name: in.text("name"), in: !in.has("out"), out: !in.has("in"), paused: paused}, nil
		},
	}
}

type queuePauseCall struct {
	plainOK
	name            string
	in, out, paused bool
}

// Apply implements engine.Call.
func (c *queuePauseCall) Apply(tx *engine.Tx) error { return tx.Pause(c.name, c.in, c.out, c.paused) }

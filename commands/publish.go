package commands

import "github.com/faisca/fila/resp"

func publish() Spec {
	return Spec{
		Name: "PUBLISH", Group: pubsubGroup, Since: "2.0.0", Complexity: "O(1)",
		Summary: "Refused: channels carry Fila's own events.",
		Differs: "Always an error: what nobody happens to hear would be lost, and that is not what a broker is for.",
		Flags:   []string{"pubsub", "loading", "stale", "fast"},
		Args:    []Arg{{Name: "channel", Type: String}, {Name: "message", Type: String}},
		Examples: []Example{{"PUBLISH news hello",
			"(error) ERR channels carry Fila's own events only; FILA.ENQUEUE sends a message that is kept until it is acknowledged"}},
		Local: func(*Session, *input, *resp.Writer) error {
			return &refusal{"ERR", "channels carry Fila's own events only; FILA.ENQUEUE sends a message that is kept until it is acknowledged"}
		},
	}
}

package commands

import "github.com/faisca/fila/resp"

func echo() Spec {
	return Spec{
		Name: "ECHO", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Returns the message, byte for byte.",
		Flags:    []string{"loading", "stale", "fast"},
		Args:     []Arg{{Name: "message", Type: String}},
		Examples: []Example{{"ECHO hi", `"hi"`}},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			w.Bulk(in.bytes("message"))
			return nil
		},
	}
}

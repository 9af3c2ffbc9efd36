package commands

import "github.com/faisca/fila/resp"

func reset() Spec {
	return Spec{
		Name: "RESET", Group: "connection", Since: "6.2.0", Complexity: "O(1)",
		Summary:  "Makes the connection as new: RESP2, no name, not authenticated.",
		Flags:    []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples: []Example{{"RESET", "RESET"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			s.reset()
			w.Proto = s.proto
			w.Status("RESET")
			return nil
		},
	}
}

package commands

import "github.com/faisca/fila/resp"

func quit() Spec {
	return Spec{
		Name: "QUIT", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:   "Ends the connection after everything before it was answered.",
		Flags:     []string{"noscript", "loading", "stale", "fast", "no_auth", "allow_busy"},
		Examples:  []Example{{"QUIT", "OK"}},
		Immediate: true,
		Loose:     true, // Redis takes any arguments here
		Args:      []Arg{{Name: "ignored", Type: String, Optional: true, Multiple: true}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			s.closing = true
			w.OK()
			return nil
		},
	}
}

package commands

import "github.com/faisca/fila/resp"

func module() Spec {
	return Spec{
		Name: "MODULE", Group: "server", Since: "4.0.0", Complexity: "Depends on subcommand.",
		Summary: "A container for module commands.",
		Subcommands: []Spec{help("MODULE"), {
			Name: "LIST", Group: "server", Since: "4.0.0", Complexity: "O(1)",
			Summary:  "Returns the loaded modules: none.",
			Flags:    []string{"admin", "noscript"},
			Tips:     []string{"nondeterministic_output_order"},
			Examples: []Example{{"MODULE LIST", "(empty array)"}},
			Local: func(_ *Session, _ *input, w *resp.Writer) error {
				w.Array(0)
				return nil
			},
		}},
	}
}

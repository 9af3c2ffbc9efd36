package commands

import (
	"math"

	"github.com/faisca/fila/resp"
)

func selectDB() Spec {
	return Spec{
		Name: "SELECT", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Accepts database 0.",
		Differs:  "There is one database, 0; any other is out of range.",
		Flags:    []string{"loading", "stale", "fast"},
		Args:     []Arg{{Name: "index", Type: Integer, Min: math.MinInt64}},
		Examples: []Example{{"SELECT 0", "OK"}},
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			if in.integer("index", 0) != 0 {
				return &refusal{"ERR", "DB index is out of range"}
			}
			w.OK()
			return nil
		},
	}
}

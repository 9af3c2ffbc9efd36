package commands

import (
	"strconv"

	"github.com/faisca/fila/resp"
)

func timeNow() Spec {
	return Spec{
		Name: "TIME", Group: "server", Since: "2.6.0", Complexity: "O(1)",
		Summary:  "Returns the server's time: Unix seconds, and microseconds of the present one.",
		Flags:    []string{"loading", "stale", "fast"},
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"TIME", "..."}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			micros := s.handler.cfg.Now().UnixMicro()
			w.Array(2)
			w.BulkString(strconv.FormatInt(micros/1e6, 10))
			w.BulkString(strconv.FormatInt(micros%1e6, 10))
			return nil
		},
	}
}

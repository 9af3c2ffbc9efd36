package commands

import "github.com/faisca/fila/resp"

func role() Spec {
	return Spec{
		Name: "ROLE", Group: "server", Since: "2.8.12", Complexity: "O(1)",
		Summary: "Returns the role of the server in replication: a master without replicas.",
		Reply:   "An array: master, 0 and an empty array.",
		Flags:   []string{"noscript", "loading", "stale", "fast"}, ACL: []string{"admin", "dangerous"}, Quiet: true,
		Examples: []Example{{"ROLE", "1) \"master\"\n2) (integer) 0\n3) (empty array)"}},
		Local: func(_ *Session, _ *input, w *resp.Writer) error {
			w.Array(3)
			w.BulkString("master")
			w.Int(0)
			w.Array(0)
			return nil
		},
	}
}

func wait() Spec {
	return Spec{
		Name: "WAIT", Group: "generic", Since: "3.0.0", Complexity: "O(1)",
		Summary: "Returns the number of replicas that have everything sent before: 0, there are none.",
		Differs: "Answers at once, as nobody will come to make it more.",
		Flags:   []string{"noscript"}, ACL: []string{"connection"},
		Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
		Args: []Arg{{Name: "numreplicas", Type: Integer, Min: 0}, {Name: "timeout", Type: Integer, Min: 0}},
		Refuse: func(near []byte, integer bool) error {
			if n, ok := parseInt(near); integer && ok && n < 0 {
				return &refusal{"ERR", "timeout is negative"}
			}
			return nil
		},
		Examples: []Example{{"WAIT 1 100", "(integer) 0"}},
		Local: func(_ *Session, _ *input, w *resp.Writer) error {
			w.Int(0)
			return nil
		},
	}
}

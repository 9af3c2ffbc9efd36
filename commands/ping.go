package commands

import "github.com/faisca/fila/resp"

func ping() Spec {
	return Spec{
		Name: "PING", Group: "connection", Since: "1.0.0", Complexity: "O(1)",
		Summary:  "Answers PONG, or the message given.",
		Flags:    []string{"fast"},
		Tips:     []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		Args:     []Arg{{Name: "message", Type: String, Optional: true}},
		Examples: []Example{{"PING", "PONG"}, {"PING hello", `"hello"`}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if s.proto == 2 && len(s.subs.topics) > 0 { // such a client reads arrays only
				w.Array(2)
				w.BulkString("pong")
				w.Bulk(in.bytes("message"))
				return nil
			}
			if in.has("message") {
				w.Bulk(in.bytes("message"))
				return nil
			}
			w.Status("PONG")
			return nil
		},
	}
}

package commands

import "github.com/faisca/fila/resp"

func readonly() Spec {
	return Spec{
		Name: "READONLY", Group: "cluster", Since: "3.0.0", Complexity: "O(1)",
		Summary: "Does nothing: every connection may read.",
		Differs: "Answers OK also without a cluster, where Redis refuses.",
		Flags:   []string{"loading", "stale", "fast"}, ACL: []string{"connection"},
		Examples: []Example{{"READONLY", "OK"}},
		Local:    answerOK,
	}
}

// answerOK is a command that has nothing to do here.
func answerOK(_ *Session, _ *input, w *resp.Writer) error {
	w.OK()
	return nil
}

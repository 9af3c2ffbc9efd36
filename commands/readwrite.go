package commands

func readwrite() Spec {
	return Spec{
		Name: "READWRITE", Group: "cluster", Since: "3.0.0", Complexity: "O(1)",
		Summary: "Does nothing: every connection may write.",
		Differs: "Answers OK also without a cluster, where Redis refuses.",
		Flags:   []string{"loading", "stale", "fast"}, ACL: []string{"connection"},
		Examples: []Example{{"READWRITE", "OK"}},
		Local:    answerOK,
	}
}

package commands

import "github.com/faisca/fila/resp"

func errNoCluster() error { return &refusal{"ERR", "This instance has cluster support disabled"} }

func asking() Spec {
	return Spec{
		Name: "ASKING", Group: "cluster", Since: "3.0.0", Complexity: "O(1)",
		Summary: "Answers that this is no cluster, as a Redis without one does.",
		Flags:   []string{"fast"}, ACL: []string{"connection"},
		Examples: []Example{{"ASKING", "(error) ERR This instance has cluster support disabled"}},
		Local:    func(*Session, *input, *resp.Writer) error { return errNoCluster() },
	}
}

func cluster() Spec {
	return Spec{
		Name: "CLUSTER", Group: "cluster", Since: "3.0.0", Complexity: "O(1)",
		Summary:  "Answers that this is no cluster, as a Redis without one does.",
		Differs:  "Tools ask it to find out whether there is a cluster; an error is the right answer.",
		Flags:    []string{"stale"},
		Args:     []Arg{{Name: "subcommand", Type: String}, {Name: "argument", Type: String, Optional: true, Multiple: true}},
		Examples: []Example{{"CLUSTER INFO", "(error) ERR This instance has cluster support disabled"}},
		Loose:    true,
		Local: func(*Session, *input, *resp.Writer) error {
			return errNoCluster()
		},
	}
}

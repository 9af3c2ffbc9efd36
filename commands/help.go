package commands

import (
	"strings"

	"github.com/faisca/fila/resp"
)

// help is the HELP of a container. What it says comes from the container's Spec.
func help(container string) Spec {
	return Spec{
		Name: "HELP", Group: groupOf(container), Since: sinceOf(container), Complexity: "O(1)",
		Summary: "Lists the subcommands.",
		Flags:   []string{"loading", "stale"},
		ACL:     map[string][]string{"COMMAND": {"connection"}, "OBJECT": {"keyspace"}}[container],
		Local: func(_ *Session, in *input, w *resp.Writer) error {
			writeHelp(w, in.cmd.parent)
			return nil
		},
	}
}

func groupOf(container string) string {
	switch {
	case container == "CLIENT":
		return "connection"
	case container == "OBJECT":
		return "generic"
	case strings.HasPrefix(container, "FILA."):
		return nativeGroup
	case container == "PUBSUB":
		return pubsubGroup
	default:
		return "server"
	}
}

func sinceOf(container string) string {
	if strings.HasPrefix(container, "FILA.") {
		return "0.1.0"
	}
	return "5.0.0"
}

func writeHelp(w *resp.Writer, c *command) {
	w.Array(1 + 2*len(c.subOrder))
	w.Status(c.display + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")
	for _, sub := range c.subOrder {
		line := sub.spec.Name
		if u := sub.spec.usage(); u != "" {
			line += " " + u
		}
		w.Status(line)
		w.Status("    " + sub.spec.Summary)
	}
}

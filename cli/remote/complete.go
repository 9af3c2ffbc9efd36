package remote

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/internal/client"
)

// completeTimeout is how long the Tab key waits for a broker.
const completeTimeout = 500 * time.Millisecond

// complete offers the values of an argument by its name.
func (r *row) complete(broker *Connection, args []string) ([]string, cobra.ShellCompDirective) {
	all := r.arguments()
	if len(all) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	at := min(len(args), len(all)-1)
	if len(args) > at && !all[at].several {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	switch all[at].name {
	case "QUEUE", "DLQ":
		return names(broker, "FILA.QUEUE", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "THROTTLE":
		return names(broker, "FILA.THROTTLE", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "BUDGET":
		return names(broker, "FILA.BUDGET", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "GROUP":
		return names(broker, "FILA.GROUP", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "TOPIC":
		return names(broker, "FILA.TOPIC", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "CRON":
		return names(broker, "FILA.CRON", "LIST"), cobra.ShellCompDirectiveNoFileComp
	case "KEY":
		return names(broker, "FILA.KEYS", args[0]), cobra.ShellCompDirectiveNoFileComp
	case "USER":
		return names(broker, "ACL", "USERS"), cobra.ShellCompDirectiveNoFileComp
	case "HOOK":
		return []string{"on_enqueue", "on_failure"}, cobra.ShellCompDirectiveNoFileComp
	case "FILE", "PATH", "DIR":
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeChoice offers the values of a flag that has few.
func completeChoice(flag string) cobra.CompletionFunc {
	choices := map[string][]string{
		"output": output.Forms(),
		"status": {"ready", "delayed", "leased", "dead"},
		"when":   {"ended", "done"},
		"by":     {"depth", "age", "delivered", "behind"},
		"kind":   eventKinds(),
	}[flag]
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return choices, cobra.ShellCompDirectiveNoFileComp
	}
}

// names asks the broker for a list of names: of strings, or of maps with a name or a key. A
// broker that does not answer at once has none, and none is asked for a password.
func names(broker *Connection, words ...string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	quiet := *broker
	quiet.env = &Env{Environ: broker.env.Environ}
	conn, err := quiet.Dial(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	reply, err := conn.Do(ctx, words...)
	if err != nil {
		return nil
	}
	var all []string
	items, _ := reply.([]any)
	if len(items) == 2 { // a page
		if page, ok := items[1].([]any); ok {
			items = page
		}
	}
	for _, item := range items {
		name := client.Text(item)
		if m, ok := item.(client.Map); ok {
			if name = m.Text("name"); name == "" {
				name = m.Text("key")
			}
		}
		if !strings.ContainsAny(name, "\t\n\r") {
			all = append(all, name)
		}
	}
	return all
}

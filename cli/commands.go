package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// commandsCommand is `fila commands`: the reference of what clients can send.
func commandsCommand(p Program) *cobra.Command {
	format := "markdown"
	cmd := &cobra.Command{
		Use:   "commands",
		Short: "Show the reference of all commands that clients can send",
		Long: `Shows every command that this broker understands, with its arguments, replies,
rights and examples, how it compares with Redis, and the errors. A running broker
answers the same questions by COMMAND DOCS and FILA.QUEUE HELP.

The only format is markdown: it is the file redis-compat.md of this version.`,
		Example: `  fila commands --format markdown > commands.md
  fila commands | grep -A 4 '^### FILA.ACK'`,
		Args: noArguments,
	}
	cmd.Flags().StringVar(&format, "format", format, "`markdown`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format != "markdown" {
			return UsageError{Err: fmt.Errorf("--format must be markdown, not %q", format)}
		}
		_, err := fmt.Fprint(cmd.OutOrStdout(), p.Commands())
		return err
	}
	return cmd
}

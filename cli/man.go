package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func manCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "Write a manual page for each command into a directory",
		Long: `Writes fila.1 and a page for each command into DIR, which is made if it is not there.
Packages install them. Their date is SOURCE_DATE_EPOCH, if that is set, else today.`,
		Example: `  fila man man1 && man -l man1/fila-serve.1
  fila man /usr/local/share/man/man1`,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageError{Err: fmt.Errorf("%s takes one directory, as in `%s man1`", cmd.CommandPath(), cmd.CommandPath())}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are for all users
			return err
		}
		root := cmd.Root()
		preformat(root)
		root.DisableAutoGenTag = true // it would name the generator in each page
		return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Fila " + Version(), Manual: "Fila"}, args[0])
	}
	return cmd
}

// preformat makes what is indented in descriptions a block that keeps its lines: the
// generator reads them as Markdown, where that takes four spaces.
func preformat(cmd *cobra.Command) {
	cmd.Long = strings.ReplaceAll(cmd.Long, "\n  ", "\n      ")
	for _, c := range cmd.Commands() {
		preformat(c)
	}
}

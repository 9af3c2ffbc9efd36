package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// shell is one that completions can be written for.
type shell struct {
	name  string
	write func(root *cobra.Command, w io.Writer) error
}

func shells() []shell {
	return []shell{
		{"bash", func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) }},
		{"fish", func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) }},
		{"powershell", func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) }},
	}
}

func shellNames() []string {
	var names []string
	for _, s := range shells() {
		names = append(names, s.name)
	}
	return names
}

func completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Write the script that completes commands and flags in a shell",
		Long: `Writes a completion script to standard output, for ` + strings.Join(shellNames(), ", ") + `.
Packages install those of bash, zsh and fish.`,
		Example: `  fila completion bash > /etc/bash_completion.d/fila
  source <(fila completion zsh)`,
		ValidArgs: shellNames(),
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || shellNamed(args[0]) == nil {
			return UsageError{Err: fmt.Errorf("%s takes one of %s", cmd.CommandPath(), strings.Join(shellNames(), ", "))}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return shellNamed(args[0]).write(cmd.Root(), cmd.OutOrStdout())
	}
	return cmd
}

// shellNamed returns nil for one that is not known.
func shellNamed(name string) *shell {
	for _, s := range shells() {
		if s.name == name {
			return &s
		}
	}
	return nil
}

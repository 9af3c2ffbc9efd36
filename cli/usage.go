package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usage writes what follows a command's description in its help.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	root := !cmd.HasParent()
	switch {
	case root:
		b.WriteString("Usage:\n  fila [command] [flags]\n")
	case cmd.HasAvailableSubCommands():
		fmt.Fprintf(&b, "Usage:\n  %s [command] [flags]\n", cmd.CommandPath())
	default:
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				fmt.Fprintf(&b, "  %-10s %s\n", c.Name(), c.Short)
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if root {
		b.WriteString("\nEvery flag of serve works without the word. fila <command> --help tells more.\n")
	} else {
		flags(&b, cmd.LocalFlags())
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}

// flags writes the flags of a command, and below them those that are settings:
// these are many, and take two lines each, in the order of their sections.
func flags(b *strings.Builder, all *pflag.FlagSet) {
	plain := pflag.NewFlagSet("", pflag.ContinueOnError)
	section := ""
	var settings strings.Builder
	all.SortFlags = false
	all.VisitAll(func(f *pflag.Flag) {
		s, ok := f.Value.(*flag)
		if !ok {
			plain.AddFlag(f)
			return
		}
		if s.section() != section {
			section = s.section()
			settings.WriteByte('\n')
		}
		def := f.DefValue
		if def == "" {
			def = "empty"
		}
		fmt.Fprintf(&settings, "  --%s %s (default %s)\n        %s\n", f.Name, f.Value.Type(), def, f.Usage)
	})
	fmt.Fprintf(b, "\nFlags:\n%s", plain.FlagUsages())
	if settings.Len() > 0 {
		fmt.Fprintf(b, "\nSettings (docs/reference/configuration.md says more about each):\n%s", settings.String())
	}
}

// helpCommand is `fila help [command]`.
func helpCommand() *cobra.Command {
	markdown := false
	cmd := &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Example: `  fila help queues apply
  fila help --markdown > cli.md`,
	}
	cmd.Flags().BoolVar(&markdown, "markdown", false, "write the reference of all commands, docs/reference/cli.md of this version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if markdown {
			return reference(cmd.OutOrStdout(), cmd.Root())
		}
		target, rest, err := cmd.Root().Find(args)
		if err != nil || len(rest) > 0 {
			return noCommand(cmd.Root())(cmd, args)
		}
		return target.Help()
	}
	return cmd
}

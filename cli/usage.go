package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is where the help breaks its lines: what every terminal has.
const helpWidth = 100

// usage writes what follows a command's description in its help.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	root := !cmd.HasParent()
	if root {
		b.WriteString("Usage:\n  fila [command] [flags]\n\nCommands:\n")
		for _, c := range cmd.Commands() {
			fmt.Fprintf(&b, "  %-10s %s\n", c.Name(), c.Short)
		}
	} else {
		fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	if root {
		b.WriteString("\nEvery flag of serve works without the word. `fila <command> --help` tells more.\n")
	} else {
		plain, settings := split(cmd.LocalFlags())
		fmt.Fprintf(&b, "\nFlags:\n%s", plain.FlagUsagesWrapped(helpWidth))
		if settings.HasFlags() {
			fmt.Fprintf(&b, "\nSettings (more about each: `fila config --format markdown`):\n%s", settings.FlagUsagesWrapped(helpWidth))
		}
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), b.String())
	return err
}

// split parts the flags that are settings from the others.
func split(fs *pflag.FlagSet) (plain, settings *pflag.FlagSet) {
	plain, settings = pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	plain.SortFlags, settings.SortFlags = false, false
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(*flag); ok {
			settings.AddFlag(f)
		} else {
			plain.AddFlag(f)
		}
	})
	return plain, settings
}

// helpCommand is `fila help [command]`.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Tell about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return noCommand(cmd.Root())(cmd, args)
			}
			return target.Help()
		},
	}
}

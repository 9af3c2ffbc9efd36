package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faisca/fila/cli/remote"
)

// reference writes docs/reference/cli.md: every command with its flags and examples. It is made from what
// the commands say of themselves.
func reference(w io.Writer, root *cobra.Command) error {
	var b strings.Builder
	b.WriteString("# Command line\n\n<!-- Generated from the commands by `make docs`. Do not edit. -->\n\n")
	b.WriteString(remote.Introduction())
	all := described(root)
	b.WriteString("\n## Commands\n\n| command | |\n|---|---|\n")
	for _, cmd := range all {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), cmd.Short)
	}
	for _, cmd := range all {
		describe(&b, cmd)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// described are the commands that do something, by their names.
func described(root *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		if !cmd.HasAvailableSubCommands() {
			all = append(all, cmd)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	slices.SortStableFunc(all, func(a, b *cobra.Command) int { return strings.Compare(a.CommandPath(), b.CommandPath()) })
	return all
}

func describe(b *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(b, "\n### %s\n\n```text\n%s\n```\n\n%s\n", cmd.CommandPath(), strings.TrimSuffix(cmd.UseLine(), " [flags]"), preserved(long))
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if _, setting := f.Value.(*flag); !setting && !remote.Common(f.Name) {
			own.AddFlag(f)
		}
	})
	if own.HasFlags() {
		fmt.Fprintf(b, "\n```text\n%s```\n", own.FlagUsages())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
	}
}

// preserved makes blocks of what is indented in a description.
func preserved(text string) string {
	var out []string
	block := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !block:
			out = append(out, "```text")
			block = true
		case block && !indented && line != "":
			out = slices.Insert(out, len(out)-1, "```")
			block = false
		}
		out = append(out, strings.TrimPrefix(line, "  "))
	}
	if block {
		out = append(out, "```")
	}
	return strings.Join(out, "\n")
}

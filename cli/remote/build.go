package remote

import (
	"strings"

	"github.com/spf13/cobra"
)

// Commands makes the commands of the table, in their groups, and `fila health`.
func Commands(env *Env) []*cobra.Command {
	var all []*cobra.Command
	byName := map[string]*cobra.Command{}
	for _, r := range table() {
		first, second, grouped := strings.Cut(r.name, " ")
		if !grouped {
			all = append(all, r.command(env, first))
			continue
		}
		group := byName[first]
		if group == nil {
			group = groupCommand(first)
			byName[first] = group
			all = append(all, group)
		}
		group.AddCommand(r.command(env, second))
	}
	return append(all, healthCommand(env))
}

func groupCommand(name string) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: groups()[name],
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			var names []string
			for _, c := range cmd.Commands() {
				names = append(names, c.Name())
			}
			hint := "it has " + strings.Join(names, ", ")
			if i := Nearest(args[0], names); i >= 0 {
				hint = "did you mean " + names[i] + "?"
			}
			return usagef("%s has no command %q; %s", cmd.CommandPath(), args[0], hint)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}

// command makes what cobra runs of a row.
func (r *row) command(env *Env, name string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     strings.TrimSpace(name + " " + r.args),
		Short:   r.short,
		Long:    r.short + ".",
		Example: "  " + strings.Join(r.examples, "\n  "),
	}
	if r.long != "" {
		cmd.Long += "\n\n" + r.long
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, o := range r.options {
		o.register(fs)
	}
	if r.ask != "" {
		fs.BoolP("yes", "y", false, "do not ask")
	}
	c := &call{row: r, env: env, flags: fs, broker: Connecting(cmd, env)}
	fs.StringVarP(&c.form, "output", "o", "", "`form` of the output: table, plain, json or jsonl; else table on a terminal and plain elsewhere")
	if r.bare {
		fs.SetInterspersed(false)
	}
	for _, flag := range []string{"output", "status", "by", "kind", "when"} {
		if fs.Lookup(flag) != nil {
			if err := cmd.RegisterFlagCompletionFunc(flag, completeChoice(flag)); err != nil {
				panic(err) // the flag is there, once
			}
		}
	}
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return r.complete(c.broker, args)
	}
	cmd.Args = r.checkArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.execute(cmd.Context(), args) }
	return cmd
}

// checkArgs refuses too many arguments, and too few.
func (r *row) checkArgs(cmd *cobra.Command, args []string) error {
	least, most := 0, 0
	for _, a := range r.arguments() {
		most++
		if !a.optional {
			least++
		}
		if a.several {
			most = len(args)
		}
	}
	if len(args) >= least && (len(args) <= most || len(args) == 0) {
		return nil
	}
	takes := "takes no arguments"
	if r.args != "" {
		takes = "takes " + r.args
	}
	hint := ""
	if len(r.examples) > 0 {
		hint = ", as in `" + r.examples[0] + "`"
	}
	return usagef("%s %s%s", cmd.CommandPath(), takes, hint)
}

// none refuses arguments.
func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no arguments, and %q is one", cmd.CommandPath(), args[0])
}

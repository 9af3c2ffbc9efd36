package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/cli/remote"
	"github.com/faisca/fila/internal/client"
)

// errChanges ends a dry run that has found changes. It is not printed, because the plan is.
var errChanges = errors.New("there is something to change")

// applyFlags are the options of `fila queues apply` and `fila queues plan`.
type applyFlags struct {
	prune, force, dryRun bool
	broker               *remote.Connection
}

func queuesApplyCommand(env *remote.Env) *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Create and alter queues, topics and throttles until they match a file, in one write",
		Long: `Reads the [[queues]], [[topics]] and [[throttles]] of FILE (docs/how-to/queues.md), prints
what has to be done, and does all of it in one write: after a crash all of it is there, or nothing.

A setting that the file does not say gets its default. Queues that are not in the
file stay, unless --prune deletes them; one with messages inside only with --force.
Bindings to topics that are not in the file stay as well, unless --prune ends them,
and throttles, unless the file has some and --prune deletes the others.

With --dry-run nothing is changed, as with fila queues plan.

The password, if there is one, is taken from the URL or from FILA_AUTH__PASSWORD.`,
		Example: `  fila queues plan queues.toml
  fila queues apply queues.toml --url fila://deploy@10.0.0.7:5555 --prune`,
	}
	f.of(cmd, env)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "print the plan and change nothing")
	return cmd
}

func queuesPlanCommand(env *remote.Env) *cobra.Command {
	f := applyFlags{dryRun: true}
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Say what fila queues apply would change, and change nothing",
		Long: `Reads the [[queues]], [[topics]] and [[throttles]] of FILE (docs/how-to/queues.md), and prints
what has to be done until the broker matches it. The exit code is 3 if that is anything.

The password, if there is one, is taken from the URL or from FILA_AUTH__PASSWORD.`,
		Example: `  fila queues plan queues.toml
  fila queues plan queues.toml --prune`,
	}
	f.of(cmd, env)
	return cmd
}

// of gives a command that takes one file the options of both, and has it apply that file.
func (f *applyFlags) of(cmd *cobra.Command, env *remote.Env) {
	f.broker = remote.Connecting(cmd, env)
	f.broker.NamedKey(cmd)
	cmd.Flags().BoolVar(&f.prune, "prune", false, "delete the queues that are not in the file, and end such bindings to topics; if it has throttles, the others too")
	cmd.Flags().BoolVar(&f.force, "force", false, "with --prune: also queues with messages inside")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageError{Err: fmt.Errorf("%s takes one file, as in `%s queues.toml`", cmd.CommandPath(), cmd.CommandPath())}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tables, err := loadTables(args[0])
		if err == nil {
			err = tables.distinct()
		}
		if err != nil {
			return UsageError{Err: err}
		}
		definition, err := tables.Definition()
		if err != nil {
			return err
		}
		return f.apply(cmd.Context(), cmd.OutOrStdout(), string(definition))
	}
}

// apply prints the plan and, unless it is a dry run, applies it.
func (f *applyFlags) apply(ctx context.Context, w io.Writer, definition string) error {
	if f.force && !f.prune {
		return UsageError{Err: errors.New("--force only says something with --prune")}
	}
	conn, err := f.broker.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	command := []string{"FILA.QUEUE", "APPLY", definition}
	if f.prune {
		command = append(command, "PRUNE")
	}
	if f.force {
		command = append(command, "FORCE")
	}
	reply, err := conn.Do(ctx, append(command, "DRYRUN")...)
	if err != nil {
		return err
	}
	plan := planText(reply)
	if plan == "" {
		fmt.Fprintln(w, "nothing to do")
		return nil
	}
	fmt.Fprint(w, plan)
	if f.dryRun {
		return errChanges
	}
	if reply, err = conn.Do(ctx, command...); err != nil {
		return err
	}
	if done := planText(reply); done != plan {
		fmt.Fprint(w, "another client has changed queues, topics or throttles meanwhile; applied instead:\n", done)
	}
	fmt.Fprintln(w, "applied")
	return nil
}

// planText formats a plan for people, with a line for each queue, binding and throttle.
func planText(reply any) string {
	var b strings.Builder
	for _, change := range client.Maps(reply) {
		name, topic, throttle := output.Escape(change.Text("queue")), output.Escape(change.Text("topic")), output.Escape(change.Text("throttle"))
		switch change.Text("action") {
		case "create":
			fmt.Fprintf(&b, "+ create %s%s\n", name, fieldsText(change.Get("fields"), false))
		case "delete":
			fmt.Fprintf(&b, "- delete %s", name)
			if n := change.Int("messages"); n == 1 {
				b.WriteString(" with 1 message")
			} else if n > 1 {
				fmt.Fprintf(&b, " with %d messages", n)
			}
			b.WriteByte('\n')
		case "bind":
			fmt.Fprintf(&b, "+ bind %s to %s%s\n", name, topic, fieldsText(change.Get("fields"), false))
		case "rebind":
			fmt.Fprintf(&b, "~ bind %s to %s%s\n", name, topic, fieldsText(change.Get("fields"), true))
		case "unbind":
			fmt.Fprintf(&b, "- unbind %s from %s\n", name, topic)
		case "throttle":
			fmt.Fprintf(&b, "+ throttle %s%s\n", throttle, fieldsText(change.Get("fields"), false))
		case "rethrottle":
			fmt.Fprintf(&b, "~ throttle %s%s\n", throttle, fieldsText(change.Get("fields"), true))
		case "unthrottle":
			fmt.Fprintf(&b, "- throttle %s\n", throttle)
		default:
			fmt.Fprintf(&b, "~ alter %s%s\n", name, fieldsText(change.Get("fields"), true))
		}
	}
	return b.String()
}

func fieldsText(reply any, before bool) string {
	var b strings.Builder
	for i, field := range client.Maps(reply) {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s ", output.Escape(field.Text("name")))
		if before {
			fmt.Fprintf(&b, "%s → ", field.Text("from"))
		}
		b.WriteString(field.Text("to"))
	}
	return b.String()
}

// queues adds the tables of server.queues_file to those of the configuration file.
func (l *Loaded) queues() error {
	if path := l.Config.Server.QueuesFile; path != "" {
		tables, err := loadTables(path)
		if err != nil {
			return err
		}
		l.Config.add(&tables)
	}
	return l.Config.distinct()
}

// ownTables reads the tables of one name of the configuration file.
func (l *Loaded) ownTables(path, name string, raw any) error {
	text, err := readText(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return l.Config.read(path, text, name, raw)
}

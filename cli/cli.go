package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faisca/fila/cli/output"
	"github.com/faisca/fila/cli/remote"
)

// Exit codes of the binary.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	// exitFound: something that was named is not there, `fila queues plan` would change
	// something, or `fila doctor` has findings.
	exitFound = 3
)

// Program is what the subcommands act on. Package main fills it in; the fields
// are functions and facts, so that this package needs to know no other of ours.
type Program struct {
	// Serve runs the broker until ctx ends, then stops it in order. It returns
	// nil after such a stop. What arrives from reloads it puts in force as far as
	// that takes no restart.
	Serve func(ctx context.Context, cfg Config, log zerolog.Logger, reloads <-chan Reload) error
	// Users checks what the configuration says of users, as Serve does before it listens.
	Users func(cfg Config) error
	// Check verifies a store that no broker has open, and changes nothing. Its error
	// says that it could not; damage is in the report.
	Check func(dir string, progress Progress) (CheckReport, error)
	// Repair puts a sound store in the place of a damaged one.
	Repair func(dir string, progress Progress) (RepairReport, error)
	// Restore makes a data directory of a backup.
	Restore func(from, dir string, progress Progress) (CheckReport, error)
	// Detach makes the store of a node that of a single broker, Recover a new cluster with that node
	// alone. clusterPath is the directory of its log; empty: dir with the suffix -cluster.
	Detach  func(dir, clusterPath string) (DetachReport, error)
	Recover func(dir, clusterPath string) (DetachReport, error)
	// Commands is the reference of all commands, in Markdown.
	Commands func() string
	// RocksDB is the version of the library; empty when it is not in this binary.
	RocksDB string
}

// Process is what a subcommand sees of the process it runs in.
type Process struct {
	Args    []string // without the program's name
	Environ []string
	Stdout  io.Writer
	Stderr  io.Writer
	// Hangups begins to catch SIGHUP; nil, or a channel that is nil: it is not caught.
	Hangups func() <-chan os.Signal
	// Stdin is what `fila enqueue` and others read.
	Stdin io.Reader
	// Confirm asks the person at the terminal; nil where there is no terminal.
	Confirm func(question string) (bool, error)
	// Password asks the person at the terminal, and does not show the answer; nil where
	// there is no terminal.
	Password func(question string) (string, error)
}

// UsageError is an error in the arguments or the configuration. Nothing was changed.
type UsageError = remote.UsageError

// env is what the commands that work with a broker see of the process.
func (p *Process) env() *remote.Env {
	return &remote.Env{
		Environ: p.Environ, Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, Terminal: onTerminal(p.Stdout), Zone: time.Local,
		Password: p.Password, Confirm: p.Confirm,
	}
}

// Main runs what the arguments ask for and returns the exit code. An error is
// one line on standard error, whatever it contains.
func Main(ctx context.Context, p Program, proc Process) int {
	root := rootCommand(p, proc)
	root.SetArgs(proc.Args)
	root.SetOut(proc.Stdout)
	root.SetErr(proc.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errChanges) || errors.Is(err, remote.ErrFindings) {
		return exitFound
	}
	fmt.Fprintln(proc.Stderr, "fila: "+output.Line(err.Error()))
	if _, ok := errors.AsType[UsageError](err); ok {
		return exitUsage
	}
	if remote.Missing(err) {
		return exitFound
	}
	return exitFailed
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func rootCommand(p Program, proc Process) *cobra.Command {
	// What `fila` does is what `fila serve` does: same flags, same function.
	root := serveCommand(p, proc)
	root.Use = "fila"
	root.Short = "A message broker that speaks the Redis protocol"
	root.Long = `Fila is a message broker that speaks the Redis protocol: it shares workers fairly
among tenants and never loses what it acknowledged.

Without a command it serves, with no configuration at all. Then, in another
terminal:

  redis-cli -p 5555 FILA.QUEUE CREATE jobs
  redis-cli -p 5555 FILA.ENQUEUE jobs "hello" KEY acme
  redis-cli -p 5555 FILA.LEASE jobs`
	root.Example = `  fila                                        serve on 127.0.0.1:5555, data in ./data
  fila --storage.engine memory                try it and leave nothing behind
  fila --config fila.toml                     with a configuration file
  FILA_LOG__LEVEL=debug fila                  every setting is a variable as well`
	root.Args = noCommand(root)
	root.SilenceErrors = true // Main prints the one line
	root.SilenceUsage = true
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(helpCommand())
	root.SetUsageFunc(usage)
	versionFlag(root, p)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(serveCommand(p, proc), benchCommand(proc), configCommand(p, proc), commandsCommand(p), checkCommand(p, proc), repairCommand(p, proc), restoreCommand(p, proc),
		completionCommand(), manCommand(), versionCommand(p))
	env := proc.env()
	for _, cmd := range remote.Commands(env) {
		if cmd.Name() == "queues" {
			cmd.AddCommand(queuesApplyCommand(env), queuesPlanCommand(env))
		}
		if cmd.Name() == "cluster" {
			cmd.AddCommand(offlineClusterCommands(p)...)
		}
		root.AddCommand(cmd)
	}
	return root
}

func serveCommand(p Program, proc Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Start the broker (what fila does without a command)",
		Long: `Starts the broker in the foreground and logs to standard error.

Settings come from, each over the one before: defaults, one file (--config, else
./fila.toml, else /etc/fila/fila.toml), the environment, flags. A setting that
does not exist or cannot be stops the start with one line and exit code 2.

SIGTERM or SIGINT stops in order: no new connections, what is in flight is
answered, everything is on disk, exit code 0. A second signal, a second or more
after the first, ends it at once.

SIGHUP reads the configuration again (docs/how-to/operations.md says what of it then
changes), or stops in order if the log goes to a terminal, which is gone then.`,
		Example: `  fila serve --server.listen_addr 127.0.0.1:7000 --storage.path ~/fila
  FILA_AUTH__PASSWORD=secret fila serve --server.listen_addr 0.0.0.0:5555
  redis-cli -p 5555 PING                      is it there?
  redis-cli -p 5555 FILA.STATS                what is it doing?`,
		Args: noArguments,
	}
	load := configured(cmd, proc)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load()
		if err != nil {
			return err
		}
		log := newLogger(loaded.Config.Log, proc.Stderr, onTerminal(proc.Stderr))
		if loaded.File != "" {
			log.Info().Str("file", loaded.File).Msg("configuration read")
		}
		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		reloads := make(chan Reload)
		if proc.Hangups != nil {
			h := hangups{
				signals: proc.Hangups(), terminal: onTerminal(proc.Stderr), stop: stop, load: load, current: loaded.Config, log: log, reloads: reloads,
			}
			go h.run(ctx)
		}
		return p.Serve(ctx, loaded.Config, log, reloads)
	}
	return cmd
}

// configured gives a command --config and a flag for every setting, and returns
// how to load what they say. Flags are kept as text until then, because a flag
// counts after the file and the environment, however early it is parsed.
func configured(cmd *cobra.Command, proc Process) func() (*Loaded, error) {
	in := Input{Environ: proc.Environ, Flags: map[string]string{}}
	fs := cmd.Flags()
	fs.SortFlags = false
	// --storage.lease-lag-ms is what fingers type.
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
	})
	fs.StringVar(&in.File, "config", "", "configuration `file` in TOML")
	fs.Func("queues", "`file` of queues, short for --server.queues_file", func(path string) error {
		in.Flags["server.queues_file"] = path
		return nil
	})
	for _, s := range settings(new(Config)) {
		s.value.reset()
		fs.Var(&flag{setting: s, to: in.Flags}, s.name, s.flagUsage())
	}
	return func() (*Loaded, error) { return Load(in) }
}

// flag is a setting on the command line.
type flag struct {
	setting
	to map[string]string
}

func (f *flag) Set(s string) error {
	f.to[f.name] = s
	return nil
}

func (f *flag) String() string {
	if f.value == nil { // pflag asks a zero flag for its default
		return ""
	}
	return f.value.String()
}

func (f *flag) Type() string { return f.value.kind() }

// flagUsage is the first sentence of the setting's description, and what 0 means, without
// the marks that its documentation is written with.
func (s setting) flagUsage() string {
	first, rest, _ := strings.Cut(strings.TrimSuffix(s.doc, "."), ". ")
	if _, zero, ok := strings.Cut(rest, "0: "); ok {
		first += "; 0: " + zero
	}
	links := regexp.MustCompile(`\[[^]]*\]\(([^)#]*)[^)]*\)`)
	first = links.ReplaceAllStringFunc(first, func(link string) string {
		return path.Join("docs/reference", links.FindStringSubmatch(link)[1])
	})
	return strings.ReplaceAll(first, "`", "")
}

func noCommand(root *cobra.Command) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range root.Commands() {
			names = append(names, c.Name())
		}
		hint := "; `fila --help` lists them"
		if i := remote.Nearest(args[0], names); i >= 0 {
			hint = fmt.Sprintf("; did you mean %s?", names[i])
		}
		return UsageError{Err: fmt.Errorf("no command is named %q%s", args[0], hint)}
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return UsageError{Err: fmt.Errorf("%s takes no arguments, and %q is one; settings are flags, as in --storage.path ./data",
		cmd.CommandPath(), args[0])}
}

// flagError makes the one line for a flag that does not exist, lacks its value or has one
// that it cannot have.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		want := map[string]string{"int": "a whole number", "int64": "a whole number", "duration": "a duration such as 90s or 1h30m", "bool": "true or false"}[f.Value.Type()]
		return UsageError{Err: fmt.Errorf("--%s must be %s, not %q", f.Name, cmp.Or(want, "a "+f.Value.Type()), wrong.GetValue())}
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return UsageError{Err: err}
	}
	// A command that does not exist is the cause: its flags have been asked of the command above it.
	if cmd.HasSubCommands() {
		if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
			return err
		}
	}
	if cmd.HasSubCommands() && offered(cmd, unknown.GetSpecifiedName()) {
		return UsageError{Err: fmt.Errorf("--%s belongs to a command, and this line has none that is known; `%s --help` lists them", unknown.GetSpecifiedName(), cmd.CommandPath())}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	hint := fmt.Sprintf("; `%s --help` lists them", cmd.CommandPath())
	if i := remote.Nearest(unknown.GetSpecifiedName(), names); i >= 0 {
		hint = fmt.Sprintf("; did you mean --%s?", names[i])
	}
	name := "--" + unknown.GetSpecifiedName()
	if unknown.GetSpecifiedShortnames() != "" {
		name = name[1:]
	}
	return UsageError{Err: fmt.Errorf("no flag is named %s%s", name, hint)}
}

// offered reports whether a command below has a flag.
func offered(cmd *cobra.Command, flag string) bool {
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Flags().Lookup(flag) != nil || offered(c, flag) })
}

func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

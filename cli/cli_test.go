package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// run is the binary without a broker: it returns what the process would show.
func run(t *testing.T, serve func(Config) error, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = Main(t.Context(), Program{
		Serve:    func(_ context.Context, cfg Config, _ zerolog.Logger, _ <-chan Reload) error { return serve(cfg) },
		Commands: func() string { return "# Commands\n" },
	}, Process{Args: args, Stdout: &out, Stderr: &errOut})
	return code, out.String(), errOut.String()
}

func never(t *testing.T) func(Config) error {
	t.Helper()
	return func(Config) error {
		t.Error("it served")
		return nil
	}
}

func TestServesWithAndWithoutTheWord(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{
		{"--server.maxclients", "7"},
		{"serve", "--server.maxclients=7"},
		{"--server.maxclients=7", "serve"},
	} {
		got := 0
		code, _, stderr := run(t, func(c Config) error { got = c.Server.MaxClients; return nil }, args...)
		if code != 0 || got != 7 || stderr != "" {
			t.Errorf("%q: exit %d, maxclients %d, said %q", args, code, got, stderr)
		}
	}
}

func TestAFlagMayBeWrittenWithDashes(t *testing.T) {
	t.Chdir(t.TempDir())
	var got time.Duration
	code, _, _ := run(t, func(c Config) error { got = c.Storage.LeaseLag; return nil }, "--storage.lease-lag-ms", "9")
	if code != 0 || got != 9*time.Millisecond {
		t.Errorf("exit %d, lease lag %s", code, got)
	}
}

func TestWhatIsAskedWrongIsOneLineAndExitCode2(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, x := range []struct {
		args []string
		want string
	}{
		{[]string{"serv"}, "did you mean serve?"},
		{[]string{"dance"}, `no command is named "dance"`},
		{[]string{"dance", "--addr", "x"}, `no command is named "dance"`},
		{[]string{"queues", "dance", "--addr", "x"}, `fila queues has no command "dance"`},
		{[]string{"queues", "--frobnicate"}, "no flag is named --frobnicate"},
		{[]string{"serve", "now"}, `"now"`},
		{[]string{"version", "now"}, `"now"`},
		{[]string{"--storage.pth", "x"}, "did you mean --storage.path?"},
		{[]string{"serve", "--frobnicate"}, "no flag is named --frobnicate"},
		{[]string{"bench", "-n", "5"}, "no flag is named -n;"},
		{[]string{"bench", "-c", "x"}, `--connections must be a whole number, not "x"`},
		{[]string{"bench", "--backlog", "99999999999999999999"}, `--backlog must be a whole number, not "99999999999999999999"`},
		{[]string{"bench", "--time", "5"}, `--time must be a duration such as 90s or 1h30m, not "5"`},
		{[]string{"-x"}, "-x"},
		{[]string{"--config"}, "--config"},
		{[]string{"--server.maxclients", "many"}, "server.maxclients must be"},
		{[]string{"config", "--format", "xml"}, "xml"},
		{[]string{"help", "dance"}, "dance"},
		{[]string{"bench", "dance"}, "cycle, enqueue, wait, drain"},
		{[]string{"bench", "--rate", "fast"}, "70%"},
		{[]string{"bench", "--addr", "nowhere"}, "--addr must be"},
		{[]string{"bench", "--hook", "no.such.file"}, "no.such.file"},
		{[]string{"bench", "drain"}, "backlog"},
		{[]string{"--server.pprof_addr", "0.0.0.0:6060"}, "server.pprof_addr must be"},
	} {
		code, stdout, stderr := run(t, never(t), x.args...)
		if code != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x.want) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q; want 2 and a line with %q", x.args, code, stdout, stderr, x.want)
		}
	}
}

func TestWhatFailsIsOneLineAndExitCode1(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, stderr := run(t, func(Config) error { return errors.New("store:\nlocked") })
	if code != 1 || stderr != "fila: store: locked\n" {
		t.Errorf("exit %d, said %q", code, stderr)
	}
}

func TestHelpTeaches(t *testing.T) {
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"--help"}, []string{"redis-cli -p 5555 FILA.ENQUEUE", "serve", "version", "config", "Examples"}},
		{[]string{"help"}, []string{"redis-cli"}},
		{[]string{"health", "--help"}, []string{"--ready", "--url", "FILA_URL", "exits with 0"}},
		{[]string{"help", "serve"}, []string{"--storage.path"}},
		{[]string{"serve", "-h"}, []string{"--server.listen_addr host:port", `(default 127.0.0.1:5555)`, "--config file", "SIGTERM"}},
	} {
		code, stdout, stderr := run(t, never(t), x.args...)
		if code != 0 || stderr != "" {
			t.Errorf("%q: exit %d, stderr %q", x.args, code, stderr)
		}
		for _, part := range x.want {
			if !strings.Contains(stdout, part) {
				t.Errorf("%q does not say %q:\n%s", x.args, part, stdout)
			}
		}
	}
}

func TestVersionNamesItsParts(t *testing.T) {
	code, stdout, _ := run(t, never(t), "version")
	if code != 0 || !strings.HasPrefix(stdout, "fila "+Version()+"\n") || !strings.Contains(stdout, "\nrocksdb not in this build\n") ||
		!strings.Contains(stdout, "\ngo go1.") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
}

func TestConfigShowsWhereAValueCameFrom(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "fila.toml", "[storage]\nengine = 'memory'\n[auth]\npassword = 'open-sesame'\n")
	code, stdout, _ := run(t, never(t), "config", "--log.level", "warn")
	lines := map[string]string{}
	for line := range strings.Lines(stdout) {
		f := strings.Fields(line)
		lines[f[0]] = strings.Join(f[1:], " ")
	}
	for name, want := range map[string]string{
		"storage.engine": `"memory" fila.toml`, "log.level": `"warn" --log.level`,
		"auth.password": "(set) fila.toml", "storage.sync": `"always" default`,
	} {
		if lines[name] != want {
			t.Errorf("%s: %q, want %q", name, lines[name], want)
		}
	}
	if code != 0 || strings.Contains(stdout, "sesame") {
		t.Errorf("exit %d:\n%s", code, stdout)
	}
}

func TestTheFileThatConfigWritesIsReadAsTheSame(t *testing.T) {
	t.Chdir(t.TempDir())
	_, written, _ := run(t, never(t), "config", "--format", "toml", "--limits.count", "77", "--storage.path", `a "b"`)
	// With every comment a setting, it still has to be valid.
	write(t, "fila.toml", strings.ReplaceAll(strings.SplitAfterN(written, "\n", 2)[1], "# ", ""))
	l, err := Load(Input{})
	if err != nil {
		t.Fatalf("%v:\n%s", err, written)
	}
	if l.Config.Limits.Count != 77 || l.Config.Storage.Path != `a "b"` {
		t.Errorf("%+v", l.Config)
	}
	if len(l.sources) != len(l.settings) {
		t.Errorf("the file has %d of %d settings", len(l.sources), len(l.settings))
	}
}

func TestTheReferenceIsFresh(t *testing.T) {
	kept, err := os.ReadFile("../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := run(t, never(t), "config", "--format", "markdown")
	if code != 0 || stdout != string(kept) {
		t.Error("docs/reference/configuration.md is not what cli/settings.go says: run `make docs`")
	}
}

func TestTheReferenceOfTheCommandLineIsFresh(t *testing.T) {
	kept, err := os.ReadFile("../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, _ := run(t, never(t), "help", "--markdown")
	if code != 0 || stdout != string(kept) {
		t.Error("docs/reference/cli.md is not what the commands say: run `make docs`")
	}
}

func TestTheReferenceOfCommandsIsMarkdown(t *testing.T) {
	for _, args := range [][]string{{"commands"}, {"commands", "--format", "markdown"}} {
		if code, stdout, _ := run(t, never(t), args...); code != 0 || stdout != "# Commands\n" {
			t.Errorf("%v: exit code %d, %q", args, code, stdout)
		}
	}
	if code, _, stderr := run(t, never(t), "commands", "--format", "toml"); code != 2 || stderr != "fila: --format must be markdown, not \"toml\"\n" {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}

func TestTheLogIsJSONUnlessOnATerminal(t *testing.T) {
	for _, x := range []struct {
		format   string
		terminal bool
		json     bool
	}{
		{"auto", false, true}, {"auto", true, false}, {"json", true, true}, {"console", false, false},
	} {
		var b bytes.Buffer
		log := newLogger(Log{Level: "info", Format: x.format}, &b, x.terminal)
		log.Debug().Msg("not this")
		log.Info().Str("address", "127.0.0.1:5555").Msg("ready")
		var line struct{ Level, Time, Message, Address string }
		err := json.Unmarshal(b.Bytes(), &line)
		if (err == nil) != x.json {
			t.Errorf("%+v: %s", x, b.String())
		}
		if !x.json {
			if !strings.Contains(b.String(), "ready") || strings.Count(b.String(), "\n") != 1 {
				t.Errorf("%+v: %q", x, b.String())
			}
			continue
		}
		if _, err := time.Parse(time.RFC3339Nano, line.Time); err != nil || line.Message != "ready" || line.Level != "info" {
			t.Errorf("%+v: %+v %v", x, line, err)
		}
	}
}

package cli

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/testkit"
)

func TestAHangupReadsTheConfigurationAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile("fila.toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[log]\nlevel = \"warn\"\n")
	signals := make(chan os.Signal)
	log := refusalLog{refused: make(chan struct{}, 1)}
	code := Main(t.Context(), Program{
		Serve: func(_ context.Context, cfg Config, _ zerolog.Logger, reloads <-chan Reload) error {
			if cfg.Log.Level != "warn" {
				t.Errorf("the level is %s", cfg.Log.Level)
			}
			write("[log]\nlevel = \"sideways\"\n")
			signals <- syscall.SIGHUP // it is refused, and changes nothing
			testkit.Receive(t, "the log says that the configuration is invalid", log.refused)
			write("[log]\nlevel = \"debug\"\n[auth]\npassword = \"s3cr3t\"\n")
			signals <- syscall.SIGHUP
			r := <-reloads
			if r.Config.Log.Level != "debug" || r.Config.Server.MaxClients != 7 || !slices.Equal(r.Changed, []string{"auth.password", "log.level"}) {
				t.Errorf("level %s, maxclients %d, changed %q", r.Config.Log.Level, r.Config.Server.MaxClients, r.Changed)
			}
			signals <- syscall.SIGHUP
			if r := <-reloads; len(r.Changed) > 0 {
				t.Errorf("changed without a change: %q", r.Changed)
			}
			return nil
		},
	}, Process{Args: []string{"--server.maxclients", "7"}, Stdout: &log, Stderr: &log, Hangups: func() <-chan os.Signal { return signals }})
	if code != 0 || strings.Count(log.String(), "invalid configuration") != 1 || !strings.Contains(log.String(), "log.level") || strings.Contains(log.String(), "s3cr3t") {
		t.Errorf("exit code %d, log: %s", code, log.String())
	}
}

// refusalLog keeps a log, and reports the line that says that a configuration was refused.
type refusalLog struct {
	bytes.Buffer
	refused chan struct{}
}

func (l *refusalLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("invalid configuration")) {
		defer func() { l.refused <- struct{}{} }()
	}
	return l.Buffer.Write(line)
}

func TestAHangupOfTheTerminalStopsInOrder(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	signals := make(chan os.Signal, 1)
	var log bytes.Buffer
	h := hangups{signals: signals, terminal: true, stop: stop, log: zerolog.New(&log)}
	signals <- syscall.SIGHUP
	h.run(ctx)
	if ctx.Err() == nil || !strings.Contains(log.String(), "the terminal is gone") {
		t.Errorf("stopped: %v, log: %s", ctx.Err(), log.String())
	}
}

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

func TestASignalStopsInOrder(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		b := kit.Serve(t)
		kit.Signal(t, b, s)
		if code, log := kit.Exit(t, b), kit.Log(t, b); code != 0 || !strings.Contains(log, `"message":"stopped"`) {
			t.Errorf("after %s: exit code %d: %s", s, code, log)
		}
	}
}

// A client that does not read its replies delays the stop; a second signal ends the broker without
// waiting for that client.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory", "--server.shutdown_timeout_ms", "3600000", "--server.write_timeout_ms", "3600000")
	unread(t, b.Addr())
	kit.Signal(t, b, syscall.SIGTERM)
	kit.Logged(t, b, "stopping")
	// A signal that follows within moments counts as the same one.
	testkit.Eventually(t, "a second signal ends the broker", func() bool {
		_ = b.Signal(syscall.SIGTERM) // it may have ended
		return !b.Alive()
	})
	if code, log := kit.Exit(t, b), kit.Log(t, b); code != 1 || !strings.Contains(log, "second signal") {
		t.Errorf("exit code %d: %s", code, log)
	}
}

func TestWhatKeepsItFromStartingIsOneLineAndACode(t *testing.T) {
	t.Parallel()
	first := kit.Serve(t)
	addr := first.Addr()
	for name, x := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"port in use":     {[]string{"--server.listen_addr", addr}, 1, []string{addr, "in use", "--server.listen_addr"}},
		"store locked":    {[]string{"--server.listen_addr", "127.0.0.1:0", "--storage.path", first.Data()}, 1, []string{"in use", "data"}},
		"store is a file": {[]string{"--server.listen_addr", "127.0.0.1:0", "--storage.path", first.Log()}, 2, []string{"not a directory"}},
		"public address":  {[]string{"--server.listen_addr", "0.0.0.0:0"}, 2, []string{"server.listen_addr", "auth.password"}},
		"bad value":       {[]string{"--storage.sync", "maybe"}, 2, []string{"storage.sync", "maybe"}},
		"unknown setting": {[]string{"--storage.speed", "high"}, 2, []string{"--storage.speed"}},
		"unknown command": {[]string{"start"}, 2, []string{"start"}},
	} {
		t.Run(name, func(t *testing.T) {
			said, code := kit.Run(t, x.args...)
			if code != x.code || strings.Contains(said, "\n") || !strings.HasPrefix(said, "fila: ") {
				t.Errorf("exit code %d, want %d and one line: %s", code, x.code, said)
			}
			for _, part := range x.want {
				if !strings.Contains(said, part) {
					t.Errorf("%q does not say %q", said, part)
				}
			}
		})
	}
}

func TestSettingsComeFromFileAndEnvironment(t *testing.T) {
	t.Parallel()
	b := kit.Prepare(t)
	text := fmt.Sprintf("[server]\nlisten_addr = %q\n[storage]\nsync = \"never\"\n", b.Addr())
	if err := os.WriteFile(filepath.Join(b.Dir(), "fila.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	b.SetBare()
	b.SetEnv("FILA_STORAGE__PATH=elsewhere")
	kit.Start(t, b)
	line := kit.Logged(t, b, "ready")
	if line["sync"] != "never" || line["path"] != "elsewhere" {
		t.Errorf("ready with %v", line)
	}
	if _, err := os.Stat(filepath.Join(b.Dir(), "elsewhere", "CURRENT")); err != nil {
		t.Error(err)
	}
}

func TestTheLogNeverShowsWhatMessagesCarry(t *testing.T) {
	t.Parallel()
	b := kit.Serve(t, "--storage.engine", "memory", "--log.level", "debug")
	for _, command := range []string{
		"FILA.QUEUE CREATE jobs", "FILA.ENQUEUE jobs s3cr3t-payload HEADER authorization s3cr3t-header", "FILA.LEASE jobs",
		"FILA.ENQUEUE nosuch s3cr3t-payload", "AUTH s3cr3t-password", "HELLO 9 AUTH default s3cr3t-password",
	} {
		typed(t, b.Addr(), command)
	}
	kit.Stop(t, b)
	if log := kit.Log(t, b); strings.Contains(log, "s3cr3t") {
		t.Errorf("the log: %s", log)
	}
}

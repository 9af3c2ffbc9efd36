package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// patience is the timeout of every wait.
const patience = 30 * time.Second

// process is a running broker with its own directory.
type process struct {
	cmd   *exec.Cmd
	lines chan string // lines of standard error, closed at its end
}

// binary returns the broker to test.
func binary(t *testing.T) string {
	t.Helper()
	bin, err := harness.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// start starts the broker on a free port, with additional arguments.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startIn(t, t.TempDir(), append([]string{"--server.listen_addr", "127.0.0.1:0"}, args...)...)
}

func startIn(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	return startCommand(t, dir, exec.Command(binary(t), args...))
}

// startCommand starts the broker through a command that execs it.
func startCommand(t *testing.T, dir string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, lines: make(chan string, 1000)}
	p.cmd.Dir = dir
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.signal(t, syscall.SIGTERM)
			if code, rest := p.wait(t); code != 0 {
				t.Errorf("stopped with exit code %d: %s", code, rest)
			}
		}
	})
	return p
}

// logged waits for a log line with that message and returns it.
func (p *process) logged(t *testing.T, message string) map[string]any {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case text, open := <-p.lines:
			var line map[string]any
			if json.Unmarshal([]byte(text), &line) == nil && line["message"] == message {
				return line
			}
			if !open {
				t.Fatalf("it ended and never logged %q", message)
			}
		case <-timeout:
			t.Fatalf("it never logged %q", message)
		}
	}
}

// ready waits until the broker serves and returns its address.
func (p *process) ready(t *testing.T) string {
	t.Helper()
	return fmt.Sprint(p.logged(t, "ready")["address"])
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Error(err)
	}
}

// wait waits for the exit and returns the exit code and the remaining output.
func (p *process) wait(t *testing.T) (code int, rest string) {
	t.Helper()
	timeout := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timeout.Stop()
	var all []string
	for line := range p.lines {
		all = append(all, line)
	}
	if err := p.cmd.Wait(); err != nil && p.cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), strings.Join(all, "\n")
}

func TestASignalStopsInOrder(t *testing.T) {
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := start(t)
		p.ready(t)
		p.signal(t, s)
		if code, rest := p.wait(t); code != 0 || !strings.Contains(rest, `"message":"stopped"`) {
			t.Errorf("after %s: exit code %d: %s", s, code, rest)
		}
	}
}

// A client that does not read its replies delays the stop; a second signal ends the broker without
// waiting for that client.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	p := start(t, "--storage.engine", "memory", "--server.shutdown_timeout_ms", "3600000", "--server.write_timeout_ms", "3600000")
	c, err := net.Dial("tcp", p.ready(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const size = 30 << 20 // exceeds the socket buffers
	if _, err := fmt.Fprintf(c, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", size, strings.Repeat("x", size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil { // the reply is being written
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGTERM)
	p.logged(t, "stopping")
	// A signal that follows within moments counts as the same one.
	repeated := time.NewTicker(300 * time.Millisecond)
	defer repeated.Stop()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-repeated.C:
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	if code, rest := p.wait(t); code != 1 || !strings.Contains(rest, "second signal") {
		t.Errorf("exit code %d: %s", code, rest)
	}
}

func TestWhatKeepsItFromStartingIsOneLineAndACode(t *testing.T) {
	first := startIn(t, t.TempDir(), "--server.listen_addr", "127.0.0.1:0")
	addr := first.ready(t)
	for name, x := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"port in use":     {[]string{"--server.listen_addr", addr}, 1, []string{addr, "in use", "--server.listen_addr"}},
		"store locked":    {[]string{"--server.listen_addr", "127.0.0.1:0", "--storage.path", filepath.Join(first.cmd.Dir, "data")}, 1, []string{"in use", "data"}},
		"store is a file": {[]string{"--server.listen_addr", "127.0.0.1:0", "--storage.path", first.cmd.Path}, 1, []string{"not a directory"}},
		"public address":  {[]string{"--server.listen_addr", "0.0.0.0:0"}, 2, []string{"server.listen_addr", "auth.password"}},
		"bad value":       {[]string{"--storage.sync", "maybe"}, 2, []string{"storage.sync", "maybe"}},
		"unknown setting": {[]string{"--storage.speed", "high"}, 2, []string{"--storage.speed"}},
		"unknown command": {[]string{"start"}, 2, []string{"start"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, said := startIn(t, t.TempDir(), x.args...).wait(t)
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
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fila.toml"), []byte("[server]\nlisten_addr = \"127.0.0.1:0\"\n[storage]\nsync = \"never\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FILA_STORAGE__PATH", "elsewhere")
	line := startIn(t, dir).logged(t, "ready")
	if line["sync"] != "never" || line["path"] != "elsewhere" {
		t.Errorf("ready with %v", line)
	}
	if _, err := os.Stat(filepath.Join(dir, "elsewhere", "CURRENT")); err != nil {
		t.Error(err)
	}
}

func TestTheLogNeverShowsWhatMessagesCarry(t *testing.T) {
	p := start(t, "--storage.engine", "memory", "--log.level", "debug")
	addr := p.ready(t)
	for _, command := range []string{
		"FILA.QUEUE CREATE jobs", "FILA.ENQUEUE jobs s3cr3t-payload HEADER authorization s3cr3t-header", "FILA.LEASE jobs",
		"FILA.ENQUEUE nosuch s3cr3t-payload", "AUTH s3cr3t-password", "HELLO 9 AUTH default s3cr3t-password",
	} {
		typed(t, addr, command)
	}
	p.signal(t, syscall.SIGTERM)
	if code, rest := p.wait(t); code != 0 || strings.Contains(rest, "s3cr3t") {
		t.Errorf("exit code %d, log: %s", code, rest)
	}
}

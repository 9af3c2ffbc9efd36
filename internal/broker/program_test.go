package broker

import (
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/internal/testkit"
)

// The way of a process from its arguments to its exit code, without the process.
func TestTheProgramServesReloadsAndStops(t *testing.T) {
	t.Chdir(t.TempDir())
	configure := func(text string) {
		t.Helper()
		if err := os.WriteFile("fila.toml", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("[storage]\nengine = \"memory\"\n[slowlog]\nmax_entries = 7\n")
	hangups, ready, code := make(chan os.Signal), make(readyLine, 1), make(chan int, 1)
	go func() {
		code <- cli.Main(t.Context(), program(), cli.Process{
			Args: []string{"--server.listen_addr", "127.0.0.1:0"}, Stdout: io.Discard, Stderr: ready,
			Hangups: func() <-chan os.Signal { return hangups },
		})
	}()
	i := instance{}
	select {
	case i.addr = <-ready:
	case c := <-code:
		t.Fatalf("exit code %d before it was ready", c)
	}
	c, r := i.dial(t)
	ask(t, c, r, "FILA.QUEUE CREATE jobs", "+OK")
	const entries = "CONFIG GET slowlog-max-len\r\n"
	if got := answered(t, c, entries); !strings.Contains(got, "7") {
		t.Fatalf("before the reload: %q", got)
	}
	configure("[storage]\nengine = \"memory\"\n[slowlog]\nmax_entries = 9\n")
	hangups <- syscall.SIGHUP
	testkit.Eventually(t, "the setting is reloaded", func() bool { return strings.Contains(answered(t, c, entries), "9") })
	if _, err := io.WriteString(c, "SHUTDOWN\r\n"); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 {
		t.Errorf("exit code %d after SHUTDOWN", c)
	}
}

func TestAnUnusableSettingEndsTheProgramWithTheCodeOfUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	code, _, stderr := run(t, program(), nil, "--storage.engine", "memory", "--server.listen_addr", "nowhere")
	if code != 2 || !strings.HasPrefix(stderr, "fila: ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit code %d, said %q", code, stderr)
	}
}

// answered sends a command whose reply fits into one packet and returns the reply.
func answered(t *testing.T, c net.Conn, command string) string {
	t.Helper()
	if _, err := io.WriteString(c, command); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 4096)
	n, err := c.Read(reply)
	if err != nil {
		t.Fatal(err)
	}
	return string(reply[:n])
}

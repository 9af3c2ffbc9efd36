package cmdline_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/kit"
)

// A command that runs until it is interrupted also ends with 0 where it still waits for the broker's
// first reply.
func TestAnInterruptBeforeTheFirstReply(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	for _, args := range [][]string{{"tail"}, {"web", "--listen", "127.0.0.1:0"}, {"scripts", "watch", t.TempDir()}} {
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), kit.Binary(t), args...)
		cmd.Env = append(os.Environ(), "FILA_URL=fila://"+l.Addr().String())
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept() // it is not answered
		if err != nil {
			t.Fatal(err)
		}
		if code := interrupt(t, cmd, syscall.SIGINT); code != 0 || said.Len() > 0 {
			t.Errorf("fila %q: exit code %d after an interrupt, said %q", args, code, &said)
		}
		_ = conn.Close()
	}
}

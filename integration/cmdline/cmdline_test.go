// Package cmdline tests the commands of the binary as they are typed, against a real broker.
package cmdline_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/client"
	"github.com/faisca/fila/internal/testkit"
)

// broker is a running broker, and a connection to it.
type broker struct {
	*harness.Broker

	t    *testing.T
	path string // directory of the program fila
	dir  string // where commands are typed
	conn *client.Conn
}

func serve(t *testing.T, args ...string) *broker {
	t.Helper()
	b := &broker{t: t, path: installed(t), dir: t.TempDir(), Broker: kit.Prepare(t, args...)}
	b.begin()
	t.Cleanup(func() { b.conn.Close() })
	return b
}

// installed returns a directory with the program under its name, whatever the file to test is called.
func installed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(kit.Binary(t), filepath.Join(dir, "fila")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// begin starts the broker and connects.
func (b *broker) begin() {
	b.t.Helper()
	kit.Start(b.t, b.Broker)
	var err error
	if b.conn, err = client.Dial(testkit.Context(b.t), b.Addr(), client.Options{}); err != nil {
		b.t.Fatal(err)
	}
}

// restart kills the broker and starts it again.
func (b *broker) restart() {
	b.t.Helper()
	if err := b.Kill(); err != nil {
		b.t.Fatal(err)
	}
	b.conn.Close()
	b.begin()
}

// do sends a command that must not be refused.
func (b *broker) do(words ...string) any {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), testkit.Patience())
	defer cancel()
	reply, err := b.conn.Do(ctx, words...)
	if err != nil {
		b.t.Fatalf("%.200q: %v", words, err)
	}
	return reply
}

// shell is a line as it is typed, with fila in the path and FILA_URL set.
func (b *broker) shell(line string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), "bash", "-c", line)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "PATH="+b.path+":"+os.Getenv("PATH"), "FILA_URL=fila://"+b.Addr())
	return cmd
}

// typed runs a line and returns what it prints and its exit code.
func (b *broker) typed(line string) (stdout, stderr string, code int) {
	b.t.Helper()
	cmd := b.shell(line)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = testkit.Patience()
	if err := cmd.Run(); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			b.t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	return out.String(), errOut.String(), code
}

// want runs a line that must exit with the code, print what is wanted, and say no more than one
// line on standard error.
func (b *broker) want(code int, stdout, stderr, line string) string {
	b.t.Helper()
	out, errOut, got := b.typed(line)
	if got != code || !strings.Contains(out, stdout) || !strings.Contains(errOut, stderr) || stderr == "" && errOut != "" || strings.Count(errOut, "\n") > 1 {
		b.t.Errorf("%s: exit code %d, want %d\nstdout, want %q: %s\nstderr, want %q: %s", line, got, code, stdout, out, stderr, errOut)
	}
	return out
}

// completes waits until a line of completion prints what is wanted: the Tab key waits for the broker for half a second only.
func (b *broker) completes(want, line string) {
	b.t.Helper()
	testkit.Eventually(b.t, line+" prints "+want, func() bool {
		out, _, code := b.typed(line)
		return code == 0 && strings.Contains(out, want)
	})
}

// interrupt sends a signal to a started command and returns its exit code.
func interrupt(t *testing.T, cmd *exec.Cmd, s syscall.Signal) int {
	t.Helper()
	if err := cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(testkit.Patience(), func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// Package harness runs Fila's binary for tests and programs, and measures its process. It uses only
// what the binary offers to any user.
package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// logFile is what a broker logs, below its directory.
const logFile = "fila.log"

// Broker is the binary with its own data directory and address. It can be started, stopped and
// started again; its address does not change. It is not safe for concurrent use.
type Broker struct {
	bin  string
	dir  string
	addr string
	args []string
	bare bool      // args are all arguments
	sets string    // a command of a shell that comes first; "": the process is started directly
	env  []string  // in addition to this process's environment
	cmd  *exec.Cmd // nil while no process runs
}

// New prepares a broker with its data and log below dir, to be started with args. It starts no
// process.
func New(bin, dir string, args ...string) (*Broker, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("no broker to start (make build makes it): %w", err)
	}
	addr, err := Reserve()
	if err != nil {
		return nil, err
	}
	return &Broker{bin: bin, dir: dir, addr: addr, args: args}, nil
}

// SetEnv sets environment variables of the process, each as name=value. They apply from the next
// start.
func (b *Broker) SetEnv(env ...string) { b.env = env }

// SetBinary sets the program of the process. It applies from the next start.
func (b *Broker) SetBinary(bin string) { b.bin = bin }

// SetBare leaves out the arguments with the address and the data directory. They come from elsewhere then,
// such as the configuration file fila.toml in Dir. It applies from the next start.
func (b *Broker) SetBare() { b.bare = true }

// SetShell starts the process from a shell, after a command like "ulimit -n 300" whose effects it inherits.
// It applies from the next start.
func (b *Broker) SetShell(command string) { b.sets = command }

// Dir returns the working directory of the process.
func (b *Broker) Dir() string { return b.dir }

// Data returns the data directory.
func (b *Broker) Data() string { return filepath.Join(b.dir, "data") }

// Addr returns the listen address, which stays the same across restarts.
func (b *Broker) Addr() string { return b.addr }

// Log returns the file with what the broker logs, in all of its runs.
func (b *Broker) Log() string { return filepath.Join(b.dir, logFile) }

// Start starts the process without waiting until it serves; see Ready.
func (b *Broker) Start() error {
	log, err := os.OpenFile(b.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own

	if b.complaint() != "" { // which is that of an earlier process
		if _, err := log.WriteString("started again\n"); err != nil {
			return err
		}
	}
	args := b.args
	if !b.bare {
		args = append([]string{"--server.listen_addr", b.addr, "--storage.path", b.Data()}, args...)
	}
	cmd := exec.Command(b.bin, args...)
	if b.sets != "" {
		cmd = exec.Command("sh", append([]string{"-c", b.sets + ` && exec "$@"`, "sh", b.bin}, args...)...)
	}
	cmd.Dir, cmd.Stderr, cmd.Env = b.dir, log, append(os.Environ(), b.env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	b.cmd = cmd
	return nil
}

// PID returns the id of the running process, or 0 if none runs.
func (b *Broker) PID() int {
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Alive reports whether the process runs.
func (b *Broker) Alive() bool {
	if b.cmd == nil {
		return false
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.cmd.Process.Pid))
	if err != nil {
		return false
	}
	// Until it is waited for, a process that has exited is a zombie. Its name may contain parentheses.
	_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

// Ready waits until the broker serves commands: it listens and recovery has finished.
func (b *Broker) Ready(ctx context.Context) error {
	for {
		if serves(b.addr) {
			return nil
		}
		// A process that has exited but was not waited for still accepts signals, so only the log
		// shows that it will never be ready.
		if line := b.complaint(); line != "" {
			return errors.New(line)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the broker is not ready: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// serves reports whether the broker replies to a command that needs the engine.
func serves(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := c.Write([]byte("FILA.QUEUE LIST\r\n")); err != nil {
		return false
	}
	kind, err := bufio.NewReader(c).ReadByte()
	return err == nil && kind == '*'
}

// complaint returns the error with which the binary exited at start, or "".
func (b *Broker) complaint() string {
	text, err := os.ReadFile(b.Log())
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "fila: ") {
		return last
	}
	return ""
}

// Signal sends a signal to the process, if one runs.
func (b *Broker) Signal(s os.Signal) error {
	if b.cmd == nil {
		return nil
	}
	return b.cmd.Process.Signal(s)
}

// Wait waits until the process ends without being told to, and returns its exit code. If the context ends
// first, Wait kills the process and returns an error.
func (b *Broker) Wait(ctx context.Context) (code int, err error) {
	if b.cmd == nil {
		return 0, errors.New("no process to wait for")
	}
	cmd := b.cmd
	b.cmd = nil
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended meanwhile
	defer stop()
	if err := cmd.Wait(); ctx.Err() != nil {
		return 0, fmt.Errorf("the process did not end: %w", ctx.Err())
	} else if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

// Kill ends the process with SIGKILL, as a crash would, and waits for its exit.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL) }

// Stop sends SIGTERM and waits for the exit. Without a process it does nothing.
func (b *Broker) Stop() error { return b.end(syscall.SIGTERM) }

func (b *Broker) end(s syscall.Signal) error {
	if b.cmd == nil {
		return nil
	}
	cmd := b.cmd
	b.cmd = nil
	if err := cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := cmd.Wait()
	if s == syscall.SIGKILL {
		return nil // the error only states that the process was killed
	}
	return err
}

// Package harness starts Fila's binary for the programs and tests beside it, and
// says what its process uses. It knows no more of Fila than a user of the binary.
package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Broker is the binary with a data directory and an address of its own. It can be
// started, ended and started again, and is the same to its clients each time. It
// is not safe for concurrent use.
type Broker struct {
	bin  string
	dir  string
	addr string
	args []string
	env  []string  // besides that of this process
	cmd  *exec.Cmd // nil when it does not run
}

// New prepares a broker that keeps its data and its log below dir and is started
// with args. Nothing runs yet.
func New(bin, dir string, args ...string) (*Broker, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("no broker to start (make build makes it): %w", err)
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	return &Broker{bin: bin, dir: dir, addr: addr, args: args}, nil
}

// SetEnv sets variables of its environment, each as name=value, from the next start on.
func (b *Broker) SetEnv(env ...string) { b.env = env }

// Data is the directory of its store.
func (b *Broker) Data() string { return filepath.Join(b.dir, "data") }

// Addr is where it listens, the same each time.
func (b *Broker) Addr() string { return b.addr }

// Start starts the process and returns at once; see Ready.
func (b *Broker) Start() error {
	log, err := os.OpenFile(filepath.Join(b.dir, "fila.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	args := append([]string{"--server.listen_addr", b.addr, "--storage.path", b.Data()}, b.args...)
	cmd := exec.Command(b.bin, args...)
	cmd.Dir, cmd.Stderr, cmd.Env = b.dir, log, append(os.Environ(), b.env...)
	if err := cmd.Start(); err != nil {
		return err
	}
	b.cmd = cmd
	return nil
}

// PID is the number of the running process, 0 when there is none.
func (b *Broker) PID() int {
	if b.cmd == nil {
		return 0
	}
	return b.cmd.Process.Pid
}

// Ready waits until it serves commands: it listens, and recovery is over.
func (b *Broker) Ready(ctx context.Context) error {
	for {
		if serves(b.addr) {
			return nil
		}
		// A process that has ended and was not waited for still takes signals, so
		// the log is what tells that it will never be ready.
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

// serves tells whether a command that needs the engine is answered.
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

// complaint is the line with which the binary refuses to start, if it did.
func (b *Broker) complaint() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "fila.log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; strings.HasPrefix(last, "fila: ") {
		return last
	}
	return ""
}

// Kill ends it with SIGKILL, as a crash would, and waits for its end.
func (b *Broker) Kill() error { return b.end(syscall.SIGKILL) }

// Stop asks it to stop and waits for its end. Without a process it does nothing.
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
		return nil // what it says of its end is that it was killed
	}
	return err
}

// FreeAddr returns an address of this machine that nothing listens on, outside
// the range that outgoing connections take theirs from. In that range a client
// that tries to reach a broker which is down may be given the broker's own port,
// connect to itself, and keep the broker from starting again.
func FreeAddr() (string, error) {
	const first, last, tries = 12000, 32000, 100
	var err error
	for range tries {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", fmt.Errorf("no free port: %w", err)
}

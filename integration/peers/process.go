package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/faisca/fila/integration/harness"
)

// process is a server in its own process group with all of its child processes. It ends with this
// program, even if this program is killed.
type process struct {
	cmd *exec.Cmd
	log string
}

// startProcess starts a program in a directory and waits until it is ready.
func startProcess(ctx context.Context, dir string, env []string, ready func() error, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), log: filepath.Join(dir, filepath.Base(name)+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		last := ready()
		if last == nil {
			return p, nil
		}
		select {
		case <-ctx.Done():
			p.stop()
			said, _ := os.ReadFile(p.log) // best effort
			return nil, fmt.Errorf("%s was not ready: %w\n%s", name, last, said)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop kills the process group. The data is removed with its directory, so a clean shutdown is
// unnecessary.
func (p *process) stop() {
	_ = syscall.Kill(-p.pid(), syscall.SIGTERM)
	gone := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL) // including children of processes that have exited
	<-gone
}

// listening returns a readiness check that succeeds when addr accepts connections.
func listening(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// place is a free local port and a directory.
type place struct {
	addr, dir string
	port      int
}

// newPlace creates a directory of that name below the run's.
func newPlace(root, name string) (place, error) {
	addr, err := harness.Reserve()
	if err != nil {
		return place{}, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return place{}, err
	}
	p := place{addr: addr, dir: filepath.Join(root, name)}
	if p.port, err = strconv.Atoi(port); err != nil {
		return place{}, err
	}
	return p, os.MkdirAll(p.dir, 0o700)
}

// missing is the error for a system that is not installed; how says how to install it.
type missing struct{ what, how string }

func (m missing) Error() string { return m.what + " is not installed: " + m.how }

// need finds a program.
func need(name, how string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", missing{name, how}
	}
	return path, nil
}

func isMissing(err error) bool {
	_, ok := errors.AsType[missing](err)
	return ok
}

//go:build unix && !linux

package worker

import (
	"os"
	"syscall"
)

// attributes put a child into a process group of its own, so that Ctrl-C at a terminal reaches the
// worker alone, which lets it finish.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminate asks a child and its own children to end.
func terminate(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

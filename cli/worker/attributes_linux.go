package worker

import (
	"os"
	"syscall"
)

// attributes put a child into a process group of its own, so that Ctrl-C at a terminal reaches the
// worker alone, which lets it finish; and end it when the worker is killed, as its message is then
// delivered to another.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

// terminate asks a child and its own children to end.
func terminate(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGTERM) }

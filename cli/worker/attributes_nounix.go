//go:build !unix

package worker

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

// terminate ends a child: there is no gentler way.
func terminate(p *os.Process) error { return p.Kill() }

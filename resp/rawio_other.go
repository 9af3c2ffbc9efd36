//go:build unix && !linux

package resp

import (
	"syscall"
	"time"
)

func rawRead(fd uintptr, b []byte) (int, error)  { return syscall.Read(int(fd), b) }
func rawWrite(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

// wakesMonitor reports false: every write notifies the scheduler.
func (s *Server) wakesMonitor(time.Time) bool { return false }

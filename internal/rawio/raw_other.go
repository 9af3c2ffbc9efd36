//go:build unix && (!linux || race)

package rawio

import "syscall"

// Read is read(2). It tells the scheduler and the race detector.
func Read(fd uintptr, b []byte) (int, error) { return syscall.Read(int(fd), b) }

// Write is write(2). It tells the scheduler and the race detector.
func Write(fd uintptr, b []byte) (int, error) { return syscall.Write(int(fd), b) }

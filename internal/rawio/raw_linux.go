//go:build !race

package rawio

import (
	"syscall"
	"unsafe"
)

// Read is read(2) on a descriptor that does not block. Its error is a syscall.Errno, such as EAGAIN.
func Read(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the call is over before b can move
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// Write is write(2) on a descriptor that does not block. Its error is a syscall.Errno, such as EAGAIN.
func Write(fd uintptr, b []byte) (int, error) {
	n, _, e := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b))) //nolint:gosec // the call is over before b can move
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

//go:build cgo && !plain

package rocks

import (
	"os"
	"syscall"
	"unsafe"
)

// sendByte and awaitByte use raw system calls without notifying the Go scheduler: the calls do not
// block, as resp/rawio_linux.go explains for sockets.

// sendByte writes one byte to a pipe that has room for it.
func sendByte(f uintptr) error {
	var b [1]byte
	for {
		_, _, e := syscall.RawSyscall(syscall.SYS_WRITE, f, uintptr(unsafe.Pointer(&b)), 1) //nolint:gosec // the call is over before b can move
		switch e {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("write", e)
		}
	}
}

// awaitByte waits in the netpoller for one byte and returns os.ErrClosed at the end of file.
func awaitByte(source syscall.RawConn) error {
	var b [1]byte
	var failed error
	err := source.Read(func(fd uintptr) bool {
		for {
			n, _, e := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b)), 1) //nolint:gosec // the call is over before b can move
			switch {
			case e == syscall.EINTR:
			case e == syscall.EAGAIN:
				return false
			case e != 0:
				failed = os.NewSyscallError("read", e)
				return true
			case n == 0:
				failed = os.ErrClosed
				return true
			default:
				return true
			}
		}
	})
	if err != nil {
		return err
	}
	return failed
}

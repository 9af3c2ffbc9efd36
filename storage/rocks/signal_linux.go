//go:build cgo && !plain

package rocks

import (
	"os"
	"syscall"
	"unsafe"
)

// sendByte and receiveByte use raw system calls without notifying the Go scheduler: the calls do not
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

// receiveByte reads one byte from a pipe. It returns false if there is none yet, and os.ErrClosed at the
// end of file.
func receiveByte(f uintptr) (bool, error) {
	var b [1]byte
	for {
		n, _, e := syscall.RawSyscall(syscall.SYS_READ, f, uintptr(unsafe.Pointer(&b)), 1) //nolint:gosec // the call is over before b can move
		switch {
		case e == syscall.EINTR:
		case e == syscall.EAGAIN:
			return false, nil
		case e != 0:
			return true, os.NewSyscallError("read", e)
		case n == 0:
			return true, os.ErrClosed
		default:
			return true, nil
		}
	}
}

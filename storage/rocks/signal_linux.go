package rocks

import (
	"os"
	"syscall"
	"unsafe"
)

// These do without Go's scheduler knowing of the calls, which return at once: what
// resp does with its sockets, for the same reason.

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

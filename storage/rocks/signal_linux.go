//go:build cgo && !plain

package rocks

import (
	"errors"
	"os"
	"syscall"

	"github.com/faisca/fila/internal/rawio"
)

// The scheduler is not told of the calls of sendByte and receiveByte, which do not block, see package rawio.

// sendByte writes one byte to a pipe that has room for it.
func sendByte(f uintptr) error {
	var b [1]byte
	for {
		switch _, err := rawio.Write(f, b[:]); {
		case errors.Is(err, syscall.EINTR):
		default:
			return os.NewSyscallError("write", err)
		}
	}
}

// receiveByte reads one byte from a pipe. It returns false if there is none yet, and os.ErrClosed at the
// end of file.
func receiveByte(f uintptr) (bool, error) {
	var b [1]byte
	for {
		switch n, err := rawio.Read(f, b[:]); {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return false, nil
		case err != nil:
			return true, os.NewSyscallError("read", err)
		case n == 0:
			return true, os.ErrClosed
		default:
			return true, nil
		}
	}
}

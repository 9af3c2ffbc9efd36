//go:build cgo && !linux && !plain

package rocks

import (
	"os"
	"syscall"
)

// sendByte writes one byte to a pipe that has room for it.
func sendByte(f uintptr) error {
	_, err := syscall.Write(int(f), []byte{0})
	return err
}

// receiveByte reads one byte from a pipe. It returns false if there is none yet, and os.ErrClosed at the
// end of file.
func receiveByte(f uintptr) (bool, error) {
	n, err := syscall.Read(int(f), make([]byte, 1))
	switch {
	case err == syscall.EAGAIN: //nolint:errorlint // an unwrapped errno
		return false, nil
	case err != nil:
		return true, err
	case n == 0:
		return true, os.ErrClosed
	}
	return true, nil
}

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

// awaitByte waits in the netpoller for one byte and returns os.ErrClosed at the end of file.
func awaitByte(source syscall.RawConn) error {
	var failed error
	err := source.Read(func(fd uintptr) bool {
		n, err := syscall.Read(int(fd), make([]byte, 1))
		switch {
		case err == syscall.EAGAIN: //nolint:errorlint // an unwrapped errno
			return false
		case err != nil:
			failed = err
		case n == 0:
			failed = os.ErrClosed
		}
		return true
	})
	if err != nil {
		return err
	}
	return failed
}

//go:build !linux

package rocks

import (
	"os"
	"syscall"
)

func sendByte(f uintptr) error {
	_, err := syscall.Write(int(f), []byte{0})
	return err
}

func awaitByte(source syscall.RawConn) error {
	var failed error
	err := source.Read(func(fd uintptr) bool {
		n, err := syscall.Read(int(fd), make([]byte, 1))
		switch {
		case err == syscall.EAGAIN: //nolint:errorlint // as the system gives it
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

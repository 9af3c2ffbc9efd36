package harness

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Reserve returns a loopback address for a server to listen on. The system gives its port to no other
// process, neither to listen on nor to connect from, until this process ends.
//
// The reservation is a socket that is bound to the port and never listens. A server may bind the port
// beside it because both set SO_REUSEADDR, as Go's listeners and most servers do. The socket stays open on
// purpose: a broker is started again at the same address.
func Reserve() (addr string, err error) {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", fmt.Errorf("reserve a port: %w", os.NewSyscallError("socket", err))
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("reserve a port: %w", err)
			_ = syscall.Close(fd) // nothing is bound
		}
	}()
	// Without the option during bind, the kernel may give a port that others share.
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", os.NewSyscallError("bind", err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		return "", os.NewSyscallError("getsockname", err)
	}
	port := at.(*syscall.SockaddrInet4).Port
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}

package yield

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processor makes the kernel run another thread on this processor if one is waiting. The
// Go scheduler is not notified: it would look for other work for the thread, which takes
// longer than the call. It cannot fail.
func Processor() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// Poll lets the Go scheduler run all other runnable goroutines, including those whose
// sockets have become ready. It does so by waiting for a file: a goroutine that is
// runnable itself, as after runtime.Gosched, runs before sockets are polled, and one that
// sleeps does so for a millisecond. The file is an eventfd that is signalled when nothing
// else is left to do before waiting. One goroutine at a time may use a Poll.
type Poll struct {
	event  *os.File
	file   syscall.RawConn
	attend func(fd uintptr) bool // a value, so that it is made once
	raised bool
}

// NewPoll returns a poll whose Wait does not fail.
func NewPoll() (*Poll, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	p := &Poll{event: os.NewFile(uintptr(fd), "eventfd")}
	p.attend = p.raise
	if p.file, err = p.event.SyscallConn(); err == nil {
		err = p.wait()
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Wait returns when all others have run. It takes about a microsecond if there are none.
func (p *Poll) Wait() { _ = p.wait() }

// wait fails only where such files cannot be polled, which NewPoll detects.
func (p *Poll) wait() error {
	p.raised = false
	return p.file.Read(p.attend)
}

// Close releases the file. Afterwards Wait returns at once.
func (p *Poll) Close() { _ = p.event.Close() }

// raise is called before the goroutine waits, and when the event has arrived. The event
// is never reset: signalling it again is a new event.
func (p *Poll) raise(fd uintptr) bool {
	if p.raised {
		return true
	}
	p.raised = true
	one := uint64(1)
	// Without notifying the Go scheduler, see Processor. It never blocks.
	_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one)) //nolint:gosec // a call of the system takes an address
	return errno != 0                                                                                           // then there is nothing to wait for
}

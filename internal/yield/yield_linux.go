package yield

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Processor has the system run another thread on this processor, if one waits for
// it. Go is not told: its scheduler would look for other work for the thread, which
// takes longer than the call. It cannot fail.
func Processor() { _, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }

// Poll lets Go's scheduler run all others that can, those whose sockets have become
// ready included. It has to be asked by waiting for a file: a goroutine that is ready
// itself, as after runtime.Gosched, goes before the sockets are looked at, and one that
// sleeps does so for a millisecond. The file is an event that is raised when nothing
// else is left to do before waiting. A Poll belongs to one goroutine at a time.
type Poll struct {
	event  *os.File
	file   syscall.RawConn
	attend func(fd uintptr) bool // a value, so that it is made once
	raised bool
}

// NewPoll returns a poll, of which Wait does not fail.
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

// Wait returns when all others had their turn. It takes about a microsecond if there are
// none.
func (p *Poll) Wait() { _ = p.wait() }

// wait fails only where such files cannot be waited for at all, which NewPoll finds out.
func (p *Poll) wait() error {
	p.raised = false
	return p.file.Read(p.attend)
}

// Close releases the file. After it, Wait returns at once.
func (p *Poll) Close() { _ = p.event.Close() }

// raise is called before the goroutine waits, and when the event has come. The event is
// never taken back: raising it once more is another one.
func (p *Poll) raise(fd uintptr) bool {
	if p.raised {
		return true
	}
	p.raised = true
	one := uint64(1)
	// Go is not told, see Processor. It never blocks.
	_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one)) //nolint:gosec // a call of the system takes an address
	return errno != 0                                                                                           // then there is nothing to wait for
}

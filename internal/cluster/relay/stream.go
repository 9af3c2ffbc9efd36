package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is one end of a stream. It is a net.Conn but for the addresses.
type stream struct {
	session *session
	id      uint32 // guarded by the lock of session; 0: no bytes were sent or received

	mu       sync.Mutex
	changed  sync.Cond
	in       bytes.Buffer
	taken    int   // bytes that were read and are not in the window of the other end yet
	inEnded  bool  // nothing more comes
	complete bool  // and the other end has said so in time: what it has read is answered
	window   int   // bytes that may be sent
	outEnded bool  // nothing more is sent: this end has closed it, or the other does not read
	closed   bool  // by this end
	err      error // of the link

	readBy, writeBy time.Time // deadlines; zero: none
	// Armed by a Read or Write that waits with a deadline. Most deadlines are never waited for, and arm nothing.
	readAlarm, writeAlarm *time.Timer
}

func newStream(s *session) *stream {
	st := &stream{session: s, window: windowMax}
	st.changed.L = &st.mu
	return st
}

// deliver takes bytes of a data frame. It is called by the reader of the link; st may be nil.
func (st *stream) deliver(b []byte) error {
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil // the other end has been told, or is about to be
	}
	if st.in.Len()+st.taken+len(b) > windowMax {
		return fmt.Errorf("a stream exceeds its window of %d bytes", windowMax)
	}
	if st.in.Len() == 0 {
		st.changed.Broadcast()
	}
	st.in.Write(b)
	return nil
}

// control takes any other frame. It is called by the reader of the link; st may be nil.
func (st *stream) control(kind byte, n int) error {
	if st == nil {
		return nil
	}
	st.mu.Lock()
	switch kind {
	case frameWindow:
		if st.window += n; st.window > windowMax {
			st.mu.Unlock()
			return fmt.Errorf("a window of %d bytes", st.window)
		}
	case frameEnd:
		st.inEnded, st.complete = true, true
	case frameClose:
		st.inEnded, st.outEnded = true, true
	}
	over := st.closed && st.inEnded
	st.changed.Broadcast()
	st.mu.Unlock()
	if over {
		st.session.remove(st)
	}
	return nil
}

// answered reports whether the leader has executed nothing that it has not answered: it has ended the stream in
// order, or the link while the stream was open, or nothing was sent on the stream.
func (st *stream) answered() bool {
	s := st.session
	s.mu.Lock()
	open := st.id == 0 || errors.Is(s.err, errFinished)
	s.mu.Unlock()
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.complete || open && !st.inEnded
}

// fail ends a stream with its link. What was received can still be read.
func (st *stream) fail(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.err = err
	st.changed.Broadcast()
}

// Read reads what was received, waits for more, and returns io.EOF at the end.
func (st *stream) Read(b []byte) (int, error) {
	st.mu.Lock()
	for st.in.Len() == 0 || st.closed {
		switch {
		case st.closed:
			st.mu.Unlock()
			return 0, net.ErrClosed
		case st.inEnded:
			st.mu.Unlock()
			return 0, io.EOF
		case st.err != nil:
			err := st.err
			st.mu.Unlock()
			return 0, err
		case expired(st.readBy):
			st.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		}
		st.wait(st.readBy, &st.readAlarm)
	}
	n, _ := st.in.Read(b) // it is not empty
	if st.in.Len() == 0 && st.in.Cap() > keepBytes {
		st.in = bytes.Buffer{}
	}
	give := 0
	if st.taken += n; st.taken >= windowMax/2 && !st.inEnded {
		give, st.taken = st.taken, 0
	}
	st.mu.Unlock()
	if give > 0 {
		_ = st.session.send(frameWindow, st, give, nil) // an error ends the link, and the stream with it
	}
	return n, nil
}

// Write sends bytes as the other end reads them.
func (st *stream) Write(b []byte) (n int, err error) {
	for n < len(b) {
		st.mu.Lock()
		for st.window == 0 && st.err == nil && !st.outEnded && !expired(st.writeBy) {
			st.wait(st.writeBy, &st.writeAlarm)
		}
		switch {
		case st.err != nil:
			err = st.err
		case st.outEnded:
			err = net.ErrClosed
		case st.window == 0:
			err = os.ErrDeadlineExceeded
		}
		part := min(len(b)-n, st.window)
		st.window -= part
		st.mu.Unlock()
		if err != nil {
			return n, err
		}
		if err := st.session.send(frameData, st, part, b[n:n+part]); err != nil {
			return n, err
		}
		n += part
	}
	return n, nil
}

// CloseWrite says that nothing more is sent. What comes can still be read.
func (st *stream) CloseWrite() error {
	st.mu.Lock()
	ended := st.outEnded
	st.outEnded = true
	st.changed.Broadcast()
	st.mu.Unlock()
	if ended {
		return nil
	}
	return st.session.send(frameEnd, st, 0, nil)
}

// Close closes the stream. What was written is sent.
func (st *stream) Close() error {
	st.mu.Lock()
	if st.closed {
		st.mu.Unlock()
		return nil
	}
	st.closed, st.outEnded = true, true
	st.in = bytes.Buffer{}
	over := st.inEnded
	for _, alarm := range []*time.Timer{st.readAlarm, st.writeAlarm} {
		if alarm != nil {
			alarm.Stop()
		}
	}
	st.changed.Broadcast()
	st.mu.Unlock()
	err := st.session.send(frameClose, st, 0, nil)
	if over {
		st.session.remove(st)
	}
	return err
}

// wait waits for a change of the stream, or for a deadline. The caller holds mu.
func (st *stream) wait(deadline time.Time, alarm **time.Timer) {
	if deadline.IsZero() {
		st.changed.Wait()
		return
	}
	if *alarm == nil {
		*alarm = time.AfterFunc(time.Until(deadline), st.wake)
	} else {
		(*alarm).Reset(time.Until(deadline))
	}
	st.changed.Wait()
}

// wake ends the waits of Read and Write, which look at the state again.
func (st *stream) wake() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.changed.Broadcast()
}

func expired(deadline time.Time) bool { return !deadline.IsZero() && !time.Now().Before(deadline) }

// SetDeadline implements net.Conn.
func (st *stream) SetDeadline(at time.Time) error {
	return errors.Join(st.SetReadDeadline(at), st.SetWriteDeadline(at))
}

// SetReadDeadline implements net.Conn.
func (st *stream) SetReadDeadline(at time.Time) error { return st.setDeadline(&st.readBy, at) }

// SetWriteDeadline implements net.Conn.
func (st *stream) SetWriteDeadline(at time.Time) error { return st.setDeadline(&st.writeBy, at) }

func (st *stream) setDeadline(deadline *time.Time, at time.Time) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return net.ErrClosed
	}
	*deadline = at
	st.changed.Broadcast() // a wait under way is for another time
	return nil
}

// LocalAddr returns the address of this end of the link.
func (st *stream) LocalAddr() net.Addr { return st.session.conn.LocalAddr() }

package relay

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A link carries frames: kind 1, stream 4, number 4, and of a data frame that many bytes.
//
//	data    bytes of a stream; the first frame of a stream opens it
//	window  the sender may send that many bytes more on the stream
//	end     nothing more is sent on the stream; from a leader: and what was read of it is answered.
//	        Of stream 0: that holds for all streams, and the link is to be closed
//	close   nothing more is sent or read on it
//	ping    the link is alive
//
// A stream may have windowMax bytes on their way that are not read: so one that is not read delays no
// other, and has no more memory than that at either end. What several streams write in short
// succession leaves with one call.
const (
	frameData byte = iota + 1
	frameWindow
	frameEnd
	frameClose
	framePing
)

const (
	frameHead   = 9
	windowMax   = 128 << 10
	gatherMax   = 256 << 10       // bytes that wait for a link before writers do
	keepBytes   = 16 << 10        // of the memory of a stream without bytes
	linkAlive   = 5 * time.Second // between two signs of life
	linkSilence = 15 * time.Second
)

// session is one end of a link.
type session struct {
	conn   net.Conn
	accept func(*stream) // serves a stream that the other end has opened, on a goroutine of its own; nil: it opens none

	mu      sync.Mutex
	changed sync.Cond // out has changed, or the link has ended
	out     []byte    // not written yet
	streams map[uint32]*stream
	last    uint32 // id of the newest stream
	err     error  // why the link has ended; nil: it has not
	over    chan struct{}
}

// newSession serves a connection until it ends. accept is nil at the end that opens streams.
func newSession(conn net.Conn, accept func(*stream)) *session {
	s := &session{conn: conn, accept: accept, streams: map[uint32]*stream{}, over: make(chan struct{})}
	s.changed.L = &s.mu
	go s.write()
	go s.ping()
	go func() { s.end(s.read()) }()
	return s
}

// open opens a stream. The other end learns of it with its first bytes.
func (s *session) open() (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return newStream(s), nil
}

// number gives a stream its id with its first bytes, so that ids come in order. The caller holds mu.
func (s *session) number(st *stream) error {
	if s.last == 1<<32-1 {
		return errors.New("a link has no more streams")
	}
	s.last++
	st.id = s.last
	s.streams[st.id] = st
	return nil
}

// ended reports whether the link has ended.
func (s *session) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err != nil
}

// close ends the link with all its streams.
func (s *session) close() { s.end(net.ErrClosed) }

// finish says that every reply is written and nothing more is executed, and returns when the other end has closed the
// link. It closes the link itself if that does not. The frame is not only sent but awaited, since a connection that
// is closed while bytes arrive is reset, and bytes on their way may be lost then.
func (s *session) finish() {
	_ = s.send(frameEnd, nil, 0, nil) // an error ends the link
	late := time.AfterFunc(finishTime, s.close)
	defer late.Stop()
	<-s.over
}

// errFinished ends a link whose other end has said that it executes nothing more.
var errFinished = errors.New("the other node has ended the link")

func (s *session) end(err error) {
	// Streams have deadlines of their own: what ends all of them must not look like one.
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		err = fmt.Errorf("the other node is silent: %v", err) //nolint:errorlint // not to be found as a timeout
	}
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	streams := s.streams
	s.streams = nil
	close(s.over)
	s.changed.Broadcast()
	s.mu.Unlock()
	_ = s.conn.Close() // err is what counts
	for _, st := range streams {
		st.fail(err)
	}
}

// send adds a frame to what is written. It waits while too much is to be written, if it may: data. st is
// nil for what concerns the link. A stream without bytes so far is unknown to the other end, which is told nothing else.
func (s *session) send(kind byte, st *stream, number int, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind == frameData && s.err == nil && len(s.out) > gatherMax {
		s.changed.Wait()
	}
	if s.err != nil {
		return s.err
	}
	id := uint32(0)
	if st != nil {
		if st.id == 0 && kind != frameData {
			return nil
		}
		if st.id == 0 {
			if err := s.number(st); err != nil {
				return err
			}
		}
		id = st.id
	}
	if len(s.out) == 0 {
		s.changed.Broadcast()
	}
	s.out = append(s.out, kind)
	s.out = binary.BigEndian.AppendUint32(s.out, id)
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(number))
	s.out = append(s.out, data...)
	return nil
}

// write writes what is to be written until the link ends.
func (s *session) write() {
	var spare []byte
	for {
		s.mu.Lock()
		for len(s.out) == 0 && s.err == nil {
			s.changed.Wait()
		}
		if s.err != nil {
			s.mu.Unlock()
			return
		}
		b := s.out
		s.out = spare[:0]
		s.changed.Broadcast()
		s.mu.Unlock()
		err := s.conn.SetWriteDeadline(time.Now().Add(linkSilence))
		if err == nil {
			_, err = s.conn.Write(b)
		}
		if err != nil {
			s.end(err)
			return
		}
		if spare = b; cap(spare) > 2*gatherMax {
			spare = nil
		}
	}
}

// ping shows the other end that this one is alive.
func (s *session) ping() {
	tick := time.NewTicker(linkAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = s.send(framePing, nil, 0, nil) // an error ends the link, and this
		case <-s.over:
			return
		}
	}
}

// read reads frames until the link ends, and returns why.
func (s *session) read() error {
	from := bufio.NewReaderSize(s.conn, 64<<10)
	var head [frameHead]byte
	for {
		if from.Buffered() < frameHead { // else the link is alive
			if err := s.conn.SetReadDeadline(time.Now().Add(linkSilence)); err != nil {
				return err
			}
		}
		if _, err := io.ReadFull(from, head[:]); err != nil {
			return err
		}
		kind, id, n := head[0], binary.BigEndian.Uint32(head[1:]), int(binary.BigEndian.Uint32(head[5:]))
		if kind < frameData || kind > framePing || n > windowMax {
			return fmt.Errorf("a frame of kind %d with %d", kind, n)
		}
		switch {
		case kind == framePing:
			continue
		case kind == frameEnd && id == 0:
			return errFinished
		}
		st, err := s.find(id, kind == frameData)
		if err != nil {
			return err
		}
		if kind != frameData {
			if err := st.control(kind, n); err != nil {
				return err
			}
			continue
		}
		for n > 0 {
			chunk, err := from.Peek(min(n, max(from.Buffered(), 1)))
			if err != nil {
				return err
			}
			if err := st.deliver(chunk); err != nil {
				return err
			}
			n -= len(chunk)
			_, _ = from.Discard(len(chunk)) // they are buffered
		}
	}
}

// find returns the stream of a frame: a new one for a new id, which begins with data, and nil for one
// that has ended.
func (s *session) find(id uint32, data bool) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[id]; st != nil || id <= s.last || !data {
		return st, nil
	}
	if s.accept == nil || s.err != nil {
		return nil, fmt.Errorf("a frame of stream %d, which does not exist", id)
	}
	s.last = id
	st := newStream(s)
	st.id = id
	s.streams[id] = st
	go s.accept(st)
	return st, nil
}

// remove forgets a stream that both ends have closed.
func (s *session) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st.id)
}

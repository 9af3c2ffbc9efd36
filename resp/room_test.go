package resp

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// roomSession answers BIG with a reply as long as its argument in bytes, for
// which it has set memory aside, and notes how much there was at most.
type roomSession struct {
	c    *Conn
	cost int64

	mu       sync.Mutex
	executed int
	most     int64
}

func (s *roomSession) Handle(cmds []Command) {
	var replies []Reply
	for range cmds {
		room, ok := s.c.Reserve(Need{Bytes: s.cost}, false)
		if !ok {
			s.c.Push(replies...)
			replies = nil
			if room, ok = s.c.Reserve(Need{Bytes: s.cost}, true); !ok {
				s.c.CloseAfterFlush()
				return
			}
		}
		s.mu.Lock()
		s.executed++
		s.most = max(s.most, s.c.ReservedBytes())
		s.mu.Unlock()
		text := strings.Repeat("x", int(s.cost)-2) + "\r\n"
		replies = append(replies, Reserved(funcReply(func(w *Writer) { w.Raw([]byte(text)) }), room))
	}
	s.c.Push(replies...)
}

func (s *roomSession) Gone() {}

func (s *roomSession) seen() (executed int, most int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.executed, s.most
}

type roomHandler struct {
	cost     int64
	sessions chan *roomSession
}

func (h *roomHandler) Open(c *Conn) Session {
	c.SetAuthenticated(true)
	s := &roomSession{c: c, cost: h.cost}
	h.sessions <- s
	return s
}

// pipeTo connects a client to a server that runs in the same bubble.
func pipeTo(t *testing.T, s *Server) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	go s.ServeConn(theirs, 0)
	t.Cleanup(func() { _ = ours.Close() })
	return ours
}

// A client that sends commands and takes no reply has as many of them executed as its
// connection has room for, and the rest as it takes replies.
func TestCommandsWaitForRoomForTheirReplies(t *testing.T) {
	for _, c := range []struct {
		name           string
		cost, own, all int64
		executed       int // without reading
	}{
		{"of the connection", 64 << 10, 256 << 10, 1 << 30, 4},
		{"of all connections", 64 << 10, 1 << 30, 192<<10 - reservedFree, 3},
		{"one that is larger than either", 1 << 20, 64 << 10, 64 << 10, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &roomHandler{cost: c.cost, sessions: make(chan *roomSession, 1)}
				server := newTestServer(t, h, func(cfg *Config) { cfg.OutputBytesMax, cfg.ReplyBytesMax = c.own, c.all })
				nc := pipeTo(t, server)
				s := <-h.sessions
				const commands = 100
				go func() { _, _ = nc.Write([]byte(strings.Repeat("BIG\r\n", commands))) }()
				synctest.Wait()
				if executed, _ := s.seen(); executed != c.executed {
					t.Errorf("%d commands executed for a client that reads nothing, want %d", executed, c.executed)
				}
				if _, err := io.CopyN(io.Discard, nc, commands*c.cost); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if executed, most := s.seen(); executed != commands || most != int64(c.executed)*c.cost {
					t.Errorf("%d commands executed with %d bytes set aside at most, want %d with %d", executed, most, commands, int64(c.executed)*c.cost)
				}
				if used := server.replies.Used(); used != 0 || s.c.ReservedBytes() != 0 {
					t.Errorf("%d bytes are still set aside, %d of the connection", used, s.c.ReservedBytes())
				}
			})
		})
	}
}

// What is short is set aside however much other connections have, and so is what only
// its own connection has to have room for.
func TestShortRepliesWaitForNoOtherConnection(t *testing.T) {
	var w replyQueue
	w.init(NewBudget(1 << 20))
	w.total.Take(1 << 20)
	if _, ok := w.reserve(Need{Bytes: reservedFree}, 1<<30); !ok {
		t.Error("a short one waits for other connections")
	}
	if _, ok := w.reserve(Need{Bytes: 1}, 1<<30); ok {
		t.Error("a connection has more than its little without the others' leave")
	}
	own, ok := w.reserve(Need{Bytes: 1 << 20, Own: true}, 1<<30)
	if !ok {
		t.Error("what is a connection's own waits for others")
	}
	if _, ok := w.reserve(Need{Bytes: 1, Own: true, Alone: true}, 1<<30); ok {
		t.Error("one that is to be alone is not")
	}
	w.release(own)
	if w.reserved.bytes != reservedFree || w.total.Used() != 1<<20 {
		t.Errorf("%d and %d bytes are set aside", w.reserved.bytes, w.total.Used())
	}
}

// What one connection keeps others from is theirs as soon as it ends, while it writes or
// while it waits itself.
func TestRoomIsGivenBackWhenTheConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &roomHandler{cost: 64 << 10, sessions: make(chan *roomSession, 3)}
		server := newTestServer(t, h, func(cfg *Config) { cfg.ReplyBytesMax = 64<<10 - reservedFree })
		var conns []net.Conn
		for range 3 {
			nc := pipeTo(t, server)
			<-h.sessions
			go func() { _, _ = nc.Write([]byte("BIG\r\nBIG\r\n")) }()
			synctest.Wait()
			conns = append(conns, nc)
		}
		_ = conns[1].Close() // it stands in the line
		_ = conns[0].Close() // it has what the others wait for
		if _, err := io.CopyN(io.Discard, conns[2], 128<<10); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if used := server.replies.Used(); used != 0 {
			t.Errorf("%d bytes are still set aside", used)
		}
	})
}

// The line for a budget is served in order, and a ticket that leaves it blocks no other.
func TestABudgetServesItsLineInOrder(t *testing.T) {
	b := NewBudget(10)
	if !b.Try(6) || b.Try(5) || !b.Try(4) {
		t.Fatal("ten bytes are not ten bytes")
	}
	large, small, last := b.enter(8), b.enter(1), b.enter(1)
	if b.Give(1); isClosed(small.ready) || b.Try(1) {
		t.Error("one was served before its turn")
	}
	if b.leave(large); !isClosed(small.ready) || isClosed(last.ready) {
		t.Error("who left the line still holds it up, or there was more than there is")
	}
	b.leave(small) // what was taken for it goes to the next
	if !isClosed(last.ready) || b.Used() != 10 {
		t.Errorf("%d of 10 bytes taken", b.Used())
	}
	b.Give(10)
	if !b.Try(100) || b.Try(1) {
		t.Error("what is larger than the budget must be had alone")
	}
	if b.Give(100); b.Used() != 0 {
		t.Errorf("%d bytes left over", b.Used())
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

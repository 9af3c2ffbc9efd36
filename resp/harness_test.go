package resp

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/faisca/fila/internal/testkit"
)

// testReply becomes ready when it is told to.
type testReply struct {
	text  string // in wire format
	ready atomic.Bool
	sent  atomic.Bool // Append was called
	drops atomic.Int32
	left  chan struct{} // closed by Drop
	frail bool
	brief bool
}

func (r *testReply) Ready() bool { return r.ready.Load() }
func (r *testReply) Append(w *Writer) {
	r.sent.Store(true)
	if r.text == "+panic\r\n" {
		panic("append")
	}
	w.Raw([]byte(r.text))
}

func (r *testReply) Drop() {
	if r.drops.Add(1) == 1 {
		close(r.left)
	}
}
func (r *testReply) Perishable() bool { return r.frail }
func (r *testReply) Retain() bool     { return r.frail }
func (r *testReply) Brief() bool      { return r.brief }

// funcReply is ready and renders by a function.
type funcReply func(w *Writer)

func (funcReply) Ready() bool        { return true }
func (f funcReply) Append(w *Writer) { f(w) }
func (funcReply) Drop()              {}

// testSession answers PING, ECHO, QUIT, BIG (n bytes), and WAIT [text] by a reply that
// the test makes ready. It counts what the package promises.
type testSession struct {
	h     *testHandler
	c     *Conn
	gone  chan struct{}
	goes  atomic.Int32
	calls atomic.Int32

	forget atomic.Bool // the next commands make the client unknown
}

func (s *testSession) Handle(cmds []Command) {
	s.calls.Add(1)
	if s.forget.Swap(false) {
		s.c.SetAuthenticated(false)
	}
	replies := make([]Reply, 0, len(cmds))
	for _, cmd := range cmds {
		var w Writer
		switch name := strings.ToUpper(string(cmd.Args[0])); name {
		case "PING":
			w.Status("PONG")
		case "ECHO":
			w.Bulk(cmd.Args[len(cmd.Args)-1])
		case "AUTH":
			s.c.SetAuthenticated(true)
			w.OK()
		case "SILENT":
			continue
		case "PANIC":
			panic("handle")
		case "PUSHPANIC":
			s.c.Push(append(replies, &testReply{})...) // will never be ready
			panic("handle after push")
		case "WAIT", "WAITFRAIL", "WAITBRIEF":
			r := &testReply{text: "+WAITED\r\n", left: make(chan struct{}), frail: name == "WAITFRAIL", brief: name == "WAITBRIEF"}
			if len(cmd.Args) > 1 {
				r.text = "+" + string(cmd.Args[1]) + "\r\n"
			}
			replies = append(replies, r)
			s.h.waits <- r
			continue
		case "WATCH": // waits in Handle for the loss of the client
			r := &testReply{text: "+LOST\r\n", left: make(chan struct{})}
			lost, end := s.c.Watch()
			s.h.waits <- r
			<-lost
			end()
			replies = append(replies, r)
			continue
		case "QUIT":
			w.OK()
			s.c.Push(append(replies, Bytes(w.Take()))...)
			s.c.CloseAfterFlush()
			return
		default:
			if f := s.h.special[name]; f != nil {
				replies = append(replies, funcReply(func(w *Writer) { f(s.c, w) }))
				continue
			}
			w.Error("ERR", "unknown command '"+string(cmd.Args[0])+"'")
		}
		replies = append(replies, Bytes(w.Take()))
	}
	s.c.Push(replies...)
}

func (s *testSession) Gone() {
	if s.goes.Add(1) == 1 {
		close(s.gone)
	}
	if s.h.onGone != nil {
		s.h.onGone(s)
	}
}

type testHandler struct {
	noAuth   bool // sessions start unauthenticated
	special  map[string]func(c *Conn, w *Writer)
	onGone   func(s *testSession)
	onOpen   func(c *Conn)
	sessions chan *testSession
	waits    chan *testReply
}

func newTestHandler() *testHandler {
	return &testHandler{sessions: make(chan *testSession, 1<<14), waits: make(chan *testReply, 1<<14)}
}

func (h *testHandler) Open(c *Conn) Session {
	if h.onOpen != nil {
		h.onOpen(c)
	}
	c.SetAuthenticated(!h.noAuth)
	s := &testSession{h: h, c: c, gone: make(chan struct{})}
	h.sessions <- s
	return s
}

// newTestServer makes a server that serves nothing yet.
func newTestServer(tb testing.TB, h Handler, change func(*Config)) *Server {
	tb.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	s, err := NewServer(cfg, h)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// startServer serves on a free port until the test ends, and then checks that
// nothing is left behind.
func startServer(tb testing.TB, h *testHandler, change func(*Config)) (*Server, string) {
	tb.Helper()
	s := newTestServer(tb, h, change)
	addr, secure, err := s.Listen(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	if addr == nil {
		addr = secure
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.WithoutCancel(tb.Context())) }()
	tb.Cleanup(func() {
		s.closeAll()
		for len(h.waits) > 0 { // what a session left undone
			(<-h.waits).ready.Store(true)
		}
		for _, c := range s.Conns() {
			c.Wake()
		}
		if err := <-served; err != nil {
			tb.Error("serve:", err)
		}
		testkit.Receive(tb, "no connection is left", s.empty)
		close(h.sessions)
		for session := range h.sessions {
			if n := session.goes.Load(); n != 1 {
				tb.Errorf("Gone was called %d times", n)
			}
		}
	})
	return s, addr.String()
}

// client is the other side of a connection.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dial(tb testing.TB, addr string) *client {
	tb.Helper()
	nc, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return newClient(tb, nc)
}

func newClient(tb testing.TB, nc net.Conn) *client {
	tb.Helper()
	tb.Cleanup(func() { _ = nc.Close() })
	return &client{Conn: nc, t: tb, r: bufio.NewReader(nc)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatal(err)
	}
}

// want reads exactly this.
func (c *client) want(s string) {
	c.t.Helper()
	got := make([]byte, len(s))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != s {
		c.t.Fatalf("got %.200q %v, want %.200q", got[:n], err, s)
	}
}

// wantEnd reads this and then the end of the connection.
func (c *client) wantEnd(s string) {
	c.t.Helper()
	got, err := io.ReadAll(c.r)
	if string(got) != s || err != nil {
		c.t.Fatalf("got %.200q %v, want %.200q and the end", got, err, s)
	}
}

// release makes a reply ready, as an engine would.
func (s *testSession) release(r *testReply) {
	r.ready.Store(true)
	s.c.Wake()
}

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

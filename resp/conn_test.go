package resp

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/testkit"
)

func TestPipelineIsOneHandleAndAnsweredInOrder(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send(strings.Repeat("PING\r\nECHO x\r\nNOPE\r\n", 20))
	c.want(strings.Repeat("+PONG\r\n$1\r\nx\r\n-ERR unknown command 'NOPE'\r\n", 20))
	if s := <-h.sessions; s.calls.Load() != 1 {
		t.Fatal("calls of Handle:", s.calls.Load())
	} else {
		h.sessions <- s
	}
}

func TestReadyRepliesAreNotHeldBackByPendingOnes(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send("PING\r\nWAIT\r\nPING\r\nWAIT\r\nECHO y\r\n")
	c.want("+PONG\r\n")
	first, second := testkit.Receive(t, "the command waits", h.waits), testkit.Receive(t, "the command waits", h.waits)
	s.release(second) // out of order: must change nothing
	c.send("PING\r\n")
	s.release(first)
	c.want("+WAITED\r\n+PONG\r\n+WAITED\r\n$1\r\ny\r\n+PONG\r\n")
	if first.drops.Load()+second.drops.Load() != 0 {
		t.Fatal("delivered replies were dropped")
	}
}

func TestCommandsWithoutReplyLeaveNoTrace(t *testing.T) {
	h := newTestHandler()
	h.special = map[string]func(*Conn, *Writer){"NOTHING": func(*Conn, *Writer) {}}
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send("SILENT\r\nPING\r\nNOTHING\r\nSILENT\r\nECHO a\r\nNOTHING\r\n")
	c.want("+PONG\r\n$1\r\na\r\n")
	c.send("QUIT\r\nPING\r\n")
	c.wantEnd("+OK\r\n")
}

func TestFullWindowStopsTheReader(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, func(c *Config) { c.WindowMax = 3 })
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send(strings.Repeat("WAIT\r\n", 8))
	var replies []*testReply
	for range 3 {
		replies = append(replies, testkit.Receive(t, "the command waits", h.waits))
	}
	if n := s.c.Pending(); n != 3 || len(h.waits) != 0 {
		t.Fatal("pending:", n, "more:", len(h.waits))
	}
	for i := range 8 {
		s.release(replies[i])
		c.want("+WAITED\r\n")
		if len(replies) < 8 {
			replies = append(replies, testkit.Receive(t, "the command waits", h.waits))
		}
	}
	// Three of a time never became more.
	if got := s.c.Commands(); got != 8 {
		t.Fatal(got)
	}
}

func TestFinishedBytesStopTheReader(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send("WAIT\r\n")
	r := testkit.Receive(t, "the command waits", h.waits)
	const n = 40
	body := strings.Repeat("x", 64<<10)
	go func() {
		for range n {
			_, _ = fmt.Fprintf(c.Conn, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(body), body)
		}
	}()
	testkit.Eventually(t, "the reply queue is full", func() bool { return s.c.QueuedBytes() >= windowBytesMax })
	if q := s.c.QueuedBytes(); q > windowBytesMax+1<<20 {
		t.Fatal("queued:", q)
	}
	s.release(r)
	c.want("+WAITED\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", len(body), body), n))
}

// How a client leaves while a reply is pending. The reader must see it at once
// in every case, also behind pipelined data.
func TestDepartureIsNoticedWhileAReplyIsPending(t *testing.T) {
	for _, c := range []struct {
		name  string
		more  string
		leave func(*net.TCPConn)
	}{
		{"FIN", "", func(c *net.TCPConn) { _ = c.Close() }},
		{"RST", "", func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }},
		{"half close", "", func(c *net.TCPConn) { _ = c.CloseWrite() }},
		{"FIN behind commands", strings.Repeat("PING\r\n", 100), func(c *net.TCPConn) { _ = c.Close() }},
		{"RST behind commands", strings.Repeat("PING\r\n", 100), func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }},
		{"FIN in mid-command", "*2\r\n$4\r\nECHO\r\n$100\r\nabc", func(c *net.TCPConn) { _ = c.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestHandler()
			_, addr := startServer(t, h, nil)
			cl := dial(t, addr)
			s := testkit.Receive(t, "the connection opens", h.sessions)
			h.sessions <- s
			cl.send("WAITFRAIL\r\n" + c.more)
			r := testkit.Receive(t, "the command waits", h.waits)
			c.leave(cl.Conn.(*net.TCPConn))
			testkit.Receive(t, "Gone is called", s.gone)
			if r.drops.Load() != 0 {
				t.Fatal("dropped before it was ready")
			}
			s.release(r)
			testkit.Receive(t, "Drop is called", r.left)
			if r.sent.Load() {
				t.Fatal("a perishable reply was rendered for a client that has left")
			}
		})
	}
}

func TestHalfClosedClientGetsItsAnswers(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send("PING\r\nWAIT\r\nWAITFRAIL\r\nECHO z\r\n")
	r, frail := testkit.Receive(t, "the command waits", h.waits), testkit.Receive(t, "the command waits", h.waits)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "Gone is called", s.gone)
	s.release(r)
	s.release(frail)
	c.wantEnd("+PONG\r\n+WAITED\r\n$1\r\nz\r\n")
	testkit.Receive(t, "Drop is called", frail.left)
	if r.drops.Load() != 0 {
		t.Fatal("a delivered reply was dropped")
	}
}

func TestEveryUndeliveredReplyIsDroppedOnce(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send(strings.Repeat("WAIT\r\n", 50))
	var replies []*testReply
	for range 50 {
		replies = append(replies, testkit.Receive(t, "the command waits", h.waits))
	}
	s.c.Close()
	testkit.Receive(t, "Gone is called", s.gone)
	for _, r := range replies {
		s.release(r)
	}
	for _, r := range replies {
		testkit.Receive(t, "Drop is called", r.left)
	}
	testkit.Eventually(t, "no reply is pending", func() bool { return s.c.Pending() == 0 })
	for _, r := range replies {
		// One that was rendered already, for a write that then failed, is dropped too.
		if n := r.drops.Load(); n != 1 {
			t.Fatal("drops:", n)
		}
	}
	if s.c.PushAsync([]byte("+late\r\n")) {
		t.Fatal("a closed connection took bytes")
	}
}

func TestProtocolErrorComesBehindEverythingBeforeIt(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	c.send("PING\r\nWAIT\r\nECHO q\r\n*1\r\n:9\r\nPING\r\n")
	r := testkit.Receive(t, "the command waits", h.waits)
	testkit.Receive(t, "Gone is called", s.gone)
	s.release(r)
	c.wantEnd("+PONG\r\n+WAITED\r\n$1\r\nq\r\n-ERR Protocol error: expected '$', got ':'\r\n")
}

// A client in the middle of sending something far too long must still get to
// read why it is cut off: closing at once would reset the connection. Libraries
// write all of it before they read.
func TestOversizedArgumentIsToldWhy(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send("*2\r\n$4\r\nECHO\r\n$40000000\r\n" + strings.Repeat("x", 40_000_000) + "\r\n")
	c.wantEnd("-ERR Protocol error: invalid bulk length\r\n")
}

func TestHTTPIsCutOffWithoutAnAnswer(t *testing.T) {
	for _, in := range []string{"POST / HTTP/1.1\r\n", "Host: fila\r\n", "*1\r\n$4\r\nPOST\r\n"} {
		h := newTestHandler()
		var log logBuffer
		_, addr := startServer(t, h, func(c *Config) { c.Log = zerolog.New(&log) })
		c := dial(t, addr)
		c.send(in)
		if got, _ := io.ReadAll(c.r); len(got) != 0 { // the end may be a reset
			t.Fatalf("%q", got)
		}
		if !strings.Contains(log.String(), errHTTP.Error()) {
			t.Fatal("not logged:", log.String())
		}
	}
}

func TestAuthenticationLiftsTheLimitsOfWhatFollows(t *testing.T) {
	h := newTestHandler()
	h.noAuth = true
	_, addr := startServer(t, h, nil)
	long := strings.Repeat("x", 20000)
	c := dial(t, addr)
	c.send(fmt.Sprintf("PING\r\n*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n*2\r\n$4\r\nECHO\r\n$20000\r\n%s\r\n", long))
	c.want("+PONG\r\n+OK\r\n$20000\r\n" + long + "\r\n")
	c = dial(t, addr)
	c.send("PING\r\n*2\r\n$4\r\nECHO\r\n$20000\r\n")
	c.wantEnd("+PONG\r\n-ERR Protocol error: unauthenticated bulk length\r\n")
}

func TestLargeRepliesAreNotHeldWhole(t *testing.T) {
	h := newTestHandler()
	part := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	small := part[:1000]
	var held atomic.Int64 // what is read off a socket orders nothing for the race detector
	most := func(n int) { held.Store(max(held.Load(), int64(n))) }
	h.special = map[string]func(*Conn, *Writer){
		"PARTS": func(_ *Conn, w *Writer) {
			w.Array(1040)
			for range 40 {
				w.Bulk(part)
				most(cap(w.buf))
			}
			for range 1000 {
				w.Bulk(small)
				most(cap(w.buf))
			}
		},
	}
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send("PING\r\nPARTS\r\nPING\r\n")
	c.want("+PONG\r\n*1040\r\n")
	for range 40 {
		c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(part), part))
	}
	for range 1000 {
		c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(small), small))
	}
	c.want("+PONG\r\n")
	if n := held.Load(); n > 2*flushBytes {
		t.Fatal("buffered:", n)
	}
}

func TestPushAsync(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, func(c *Config) { c.OutputBytesMax = 1 << 20 })
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	if !s.c.PushAsync([]byte(">1\r\n+a\r\n")) {
		t.Fatal("not taken")
	}
	c.want(">1\r\n+a\r\n")
	c.send("WAIT\r\n")
	r := testkit.Receive(t, "the command waits", h.waits)
	testkit.Eventually(t, "one reply is pending", func() bool { return s.c.Pending() == 1 })
	// A reply that is not ready holds back the replies behind it and nothing else.
	s.c.PushAsync([]byte(">1\r\n+b\r\n"))
	c.want(">1\r\n+b\r\n")
	c.send("PING\r\n")
	testkit.Eventually(t, "two replies are pending", func() bool { return s.c.Pending() == 2 })
	s.c.PushAsync([]byte(">1\r\n+c\r\n"))
	c.want(">1\r\n+c\r\n")
	s.release(r)
	c.want("+WAITED\r\n+PONG\r\n")
	testkit.Eventually(t, "all replies are written", func() bool { return s.c.QueuedBytes() == 0 && s.c.Pending() == 0 })
}

// What a reply's Append sets going comes behind that reply, also where the reply
// itself is pushed together with others; and a reply that ends it has all of it
// in front.
func TestPushAsyncKeepsItsPlace(t *testing.T) {
	h := newTestHandler()
	h.special = map[string]func(*Conn, *Writer){
		"ON": func(c *Conn, w *Writer) {
			c.PushAsync([]byte(">1\r\n+first\r\n"))
			w.Status("on")
		},
		"OFF": func(c *Conn, w *Writer) {
			c.PushAsync([]byte(">1\r\n+last\r\n"))
			w.Pushes()
			w.Status("off")
		},
	}
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	for range 100 {
		c.send("PING\r\nON\r\nPING\r\nOFF\r\nPING\r\n")
		c.want("+PONG\r\n+on\r\n>1\r\n+first\r\n+PONG\r\n>1\r\n+last\r\n+off\r\n+PONG\r\n")
	}
}

// A client that does not read what it asked for is cut off at the limit: no
// earlier, and no matter how much it has taken before.
func TestPushAsyncCutsOffWhoDoesNotRead(t *testing.T) {
	const limit = 1 << 20
	h := newTestHandler()
	_, addr := startServer(t, h, func(c *Config) { c.OutputBytesMax = limit })
	c := dial(t, addr)
	s := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- s
	chunk := []byte(strings.Repeat("x", 1<<10))
	for range 3 * limit / len(chunk) { // in step with the reader: never too much
		if !s.c.PushAsync(chunk) {
			t.Fatal("refused while the client reads")
		}
		c.want(string(chunk))
	}
	testkit.Eventually(t, "everything queued is written", func() bool { return s.c.QueuedBytes() == 0 })
	var taken, held int64
	for s.c.PushAsync(chunk) {
		taken++
		held = max(held, s.c.QueuedBytes())
	}
	if held > limit || taken < limit>>10 {
		t.Errorf("%d bytes were held, %d chunks taken", held, taken)
	}
	testkit.Receive(t, "Gone is called", s.gone)
	if s.c.PushAsync(chunk) {
		t.Error("taken by a connection that is closed")
	}
}

func TestPanicsEndTheirConnectionOnly(t *testing.T) {
	h := newTestHandler()
	h.special = map[string]func(*Conn, *Writer){
		"APPENDPANIC": func(*Conn, *Writer) { panic("append") },
	}
	h.onGone = func(*testSession) { panic("gone") }
	var log logBuffer
	s, addr := startServer(t, h, func(c *Config) { c.Log = zerolog.New(&log) })
	other := dial(t, addr)
	other.send("PING\r\n")
	other.want("+PONG\r\n")
	for _, in := range []string{"PANIC\r\n", "WAIT\r\nPANIC\r\n", "APPENDPANIC\r\nWAIT\r\n", "PUSHPANIC\r\n"} {
		c := dial(t, addr)
		c.send(in)
		if strings.Contains(in, "WAIT") {
			r := testkit.Receive(t, "the command waits", h.waits)
			r.ready.Store(true)
			for _, conn := range s.Conns() {
				conn.Wake()
			}
		}
		_, _ = io.ReadAll(c.r) // ends, by a reset or not
	}
	testkit.Eventually(t, "one connection is left", func() bool { return s.Stats().Current == 1 })
	other.send("ECHO alive\r\n")
	other.want("$5\r\nalive\r\n")
	for _, want := range []string{`"panic":"handle"`, `"panic":"append"`, `"panic":"gone"`, "testSession"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("not logged: %s", want)
		}
	}
}

func TestPanicInOpenEndsTheConnection(t *testing.T) {
	h := newTestHandler()
	h.onOpen = func(*Conn) { panic("open") }
	_, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.wantEnd("")
}

func TestConnTellsAboutItself(t *testing.T) {
	h := newTestHandler()
	s, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send("PING\r\n")
	c.want("+PONG\r\n")
	conn := s.Conns()[0]
	testkit.Eventually(t, "no reply is pending", func() bool { return conn.Pending() == 0 }) // its counters are written
	if conn.ID() != 1 || conn.Proto() != 2 || conn.RemoteAddr().String() != c.LocalAddr().String() || conn.LocalAddr().String() != addr {
		t.Fatal(conn.ID(), conn.Proto(), conn.RemoteAddr(), conn.LocalAddr())
	}
	if conn.Commands() != 1 || conn.BytesIn() != 6 || conn.BytesOut() != 7 || conn.LastActive().Before(conn.CreatedAt()) {
		t.Fatal(conn.Commands(), conn.BytesIn(), conn.BytesOut())
	}
	conn.SetProto(3)
	if conn.Proto() != 3 || conn.Session().(*testSession).c != conn {
		t.Fatal("proto or session")
	}
	st := s.Stats()
	if st != (Stats{Accepted: 1, Current: 1, Commands: 1, BytesIn: 6, BytesOut: 7}) {
		t.Fatalf("%+v", st)
	}
	if s.Conn(2) != nil || s.Kill(2) || !s.Kill(1) {
		t.Fatal("kill")
	}
	_, _ = io.ReadAll(c.r)
	dial(t, addr).send("PING\r\n")
	if again := testkit.Receive(t, "the connection opens", h.sessions); again.c.ID() != 1 {
		t.Fatal(again.c.ID())
	} else {
		h.sessions <- again
	}
}

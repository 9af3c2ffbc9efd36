package resp

import (
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipe serves one end of a pipe and returns the other. It must be called in a
// bubble; the connection has to end before the bubble does.
func pipe(t *testing.T, h *testHandler, change func(*Config)) (*client, *testSession) {
	t.Helper()
	s := newTestServer(t, h, change)
	ours, theirs := net.Pipe()
	go s.ServeConn(ours, 0)
	return newClient(t, theirs), <-h.sessions
}

func TestIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := pipe(t, newTestHandler(), func(c *Config) { c.IdleTimeout = time.Minute })
		start := time.Now()
		time.Sleep(50 * time.Second)
		c.send("PING\r\n")
		c.want("+PONG\r\n")
		c.wantEnd("")
		if d := time.Since(start); d != 110*time.Second {
			t.Fatal("closed after", d)
		}
		<-s.gone
	})
}

func TestIdleTimeoutSparesPendingReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, func(c *Config) { c.IdleTimeout = time.Minute })
		c.send("WAIT\r\n")
		r := <-h.waits
		time.Sleep(time.Hour)
		s.release(r)
		c.want("+WAITED\r\n")
		last := time.Now()
		c.wantEnd("")
		if d := time.Since(last); d < time.Minute || d > 2*time.Minute {
			t.Fatal("closed after", d)
		}
	})
}

// timedOut is a connection whose reads fail with a timeout that is not of the server's making.
type timedOut struct {
	net.Conn
	reads atomic.Int32
}

func (c *timedOut) Read([]byte) (int, error) {
	if c.reads.Add(1) > 3 {
		_ = c.Close() // the test fails, and ends
		return 0, net.ErrClosed
	}
	return 0, os.ErrDeadlineExceeded
}

// A timeout from below ends the connection: the server takes only a deadline that it has set for its own,
// and would read again and again.
func TestATimeoutFromBelowEndsTheConnection(t *testing.T) {
	for name, idle := range map[string]time.Duration{"without an idle timeout": 0, "with one": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newTestHandler()
				ours, theirs := net.Pipe()
				nc := &timedOut{Conn: ours}
				go newTestServer(t, h, func(c *Config) { c.IdleTimeout = idle }).ServeConn(nc, 0)
				s := <-h.sessions
				newClient(t, theirs).wantEnd("")
				<-s.gone
				if n := nc.reads.Load(); n != 1 {
					t.Errorf("%d reads", n)
				}
			})
		})
	}
}

// halfPipe can be closed for writing, of which its other end sees nothing.
type halfPipe struct{ net.Conn }

func (halfPipe) CloseWrite() error { return nil }

// However slow a client sends what it is cut off for, it gets to the end of it and to
// the error; one that has stopped sending is not waited for.
func TestTheCloseAfterAnErrorWaitsForAClientThatIsStillSending(t *testing.T) {
	const slow, tooSlow, endless = lingerIdle * 9 / 10, lingerIdle * 11 / 10, 1000
	for _, x := range []struct {
		name  string
		pause time.Duration // before each byte
		bytes int
		want  time.Duration // until the client sees the close: it writes, or has stopped
	}{
		{"stops at once", 0, 0, lingerIdle},
		{"sends slowly, then stops", slow, 10, 10*slow + lingerIdle},
		{"sends slowly without an end", slow, endless, 34 * slow}, // the first byte after lingerTime
		{"pauses too long", tooSlow, endless, tooSlow},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newTestHandler()
				ours, theirs := net.Pipe()
				go newTestServer(t, h, nil).ServeConn(halfPipe{ours}, 0)
				c, _ := newClient(t, theirs), <-h.sessions
				c.send("*1\r\n$40000000\r\n")
				c.want("-ERR Protocol error: invalid bulk length\r\n")
				start := time.Now()
				for range x.bytes {
					time.Sleep(x.pause)
					if _, err := io.WriteString(theirs, "x"); err != nil {
						break
					}
				}
				c.wantEnd("")
				if d := time.Since(start); d != x.want {
					t.Fatalf("closed after %s, want %s", d, x.want)
				}
			})
		})
	}
}

func TestQuietConnectionStaysWithoutIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := pipe(t, newTestHandler(), nil)
		time.Sleep(1000 * time.Hour)
		c.send("QUIT\r\n")
		c.wantEnd("+OK\r\n")
	})
}

// A pipe takes nothing that is not read: the slowest possible reader.
func TestSlowReaderIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, func(c *Config) { c.WriteTimeout = 20 * time.Second })
		c.send("PING\r\nWAIT\r\nWAIT\r\n")
		one, two := <-h.waits, <-h.waits
		one.ready.Store(true)
		start := time.Now()
		<-s.gone
		if d := time.Since(start); d < 15*time.Second || d > 20*time.Second {
			t.Fatal("cut off after", d)
		}
		<-one.left
		s.release(two)
		<-two.left
		synctest.Wait()
		if one.drops.Load() != 1 || two.drops.Load() != 1 || two.sent.Load() {
			t.Fatal("drops")
		}
	})
}

// As long as a client takes something it is given time, however long the reply.
func TestSlowButSteadyReaderGetsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		const n = 16 << 20
		h.special = map[string]func(*Conn, *Writer){"BIG": func(_ *Conn, w *Writer) { w.Bulk(make([]byte, n)) }}
		c, _ := pipe(t, h, func(c *Config) { c.WriteTimeout = 20 * time.Second })
		c.send("BIG\r\n")
		got, buf := 0, make([]byte, 128<<10)
		start := time.Now()
		for got < n+len("$16777216\r\n\r\n") {
			time.Sleep(3 * time.Second)
			k, err := io.ReadAtLeast(c.r, buf[:min(len(buf), n+13-got)], 1)
			if err != nil {
				t.Fatal(got, err)
			}
			got += k
		}
		if time.Since(start) < time.Minute {
			t.Fatal("not slow")
		}
		_ = c.Close()
	})
}

// What the socket took before it failed counts as delivered, the rest does not.
func TestPartlyWrittenBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, nil)
		c.send(strings.Repeat("WAIT\r\n", 5))
		var rs []*testReply
		for range 5 {
			rs = append(rs, <-h.waits)
		}
		for _, r := range rs {
			r.ready.Store(true)
		}
		s.c.Wake()
		c.r.Reset(io.LimitReader(c.Conn, 2*9+4)) // two and a half
		c.want("+WAITED\r\n+WAITED\r\n+WAI")
		<-s.gone
		synctest.Wait()
		for i, r := range rs {
			if want := int32(1); i < 2 && r.drops.Load() != 0 || i >= 2 && r.drops.Load() != want {
				t.Fatal(i, r.drops.Load())
			}
			if !r.sent.Load() {
				t.Fatal("all were rendered in one burst")
			}
		}
	})
}

// A long reply is written while it is rendered; when that fails it was not
// delivered, nor was what is rendered after it.
func TestReplyCutInTheMiddleIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, nil)
		c.send("WAIT\r\nWAIT\r\nWAIT\r\n")
		before, long, behind := <-h.waits, <-h.waits, <-h.waits
		long.text = strings.Repeat("x", 200<<10)
		for _, r := range []*testReply{before, long, behind} {
			r.ready.Store(true)
		}
		s.c.Wake()
		c.r.Reset(io.LimitReader(c.Conn, 100<<10))
		c.want("+WAITED\r\n" + long.text[:50<<10])
		_ = c.Close()
		<-s.gone
		<-long.left
		<-behind.left
		synctest.Wait()
		if before.drops.Load() != 0 || long.drops.Load() != 1 || behind.drops.Load() != 1 {
			t.Fatal(before.drops.Load(), long.drops.Load(), behind.drops.Load())
		}
	})
}

// One write per burst: a pipe's reader sees each write apart.
func TestBurstIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHandler()
		c, s := pipe(t, h, nil)
		c.send(strings.Repeat("WAIT\r\n", 10) + "PING\r\n")
		var waits []*testReply
		for range 10 {
			waits = append(waits, <-h.waits)
		}
		synctest.Wait() // the writer sleeps and is not woken before all are ready
		for _, r := range waits {
			r.ready.Store(true)
		}
		s.c.Wake()
		buf := make([]byte, 1<<10)
		n, err := c.Read(buf)
		if err != nil || string(buf[:n]) != strings.Repeat("+WAITED\r\n", 10)+"+PONG\r\n" {
			t.Fatalf("%q %v", buf[:n], err)
		}
		_ = c.Close()
	})
}

package commands

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// TestClientsThatComeAndGoLoseNothing has goroutines and sockets: producers pipeline, consumers wait, and
// many of them hang up while a message is on its way to them. Every message is acked in the end, most of
// them at once: what was on its way to a client that left goes to the next.
func TestClientsThatComeAndGoLoseNothing(t *testing.T) {
	const producers, consumers, each = 4, 8, 200
	addr := startLive(t)
	admin := dialLive(t, addr)
	admin.do(t, "FILA.QUEUE", "CREATE", "orders", "VISIBILITY", "2000", "MAXATTEMPTS", "0")

	var wg sync.WaitGroup
	var acked atomic.Int64
	ctx := testkit.Context(t)
	for p := range producers {
		wg.Go(func() {
			c := dialLive(t, addr)
			for i := 0; i < each; i += 10 {
				for j := range 10 {
					c.send("FILA.ENQUEUE", "orders", fmt.Sprintf("%d-%d", p, i+j), "KEY", "tenant-"+strconv.Itoa(p))
				}
				for range 10 {
					if r, err := c.read(); err != nil || r.kind != '$' {
						t.Errorf("enqueue: %v %v", r, err)
						return
					}
				}
			}
		})
	}
	for n := range consumers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 7))
			c := dialLive(t, addr)
			for acked.Load() < producers*each && ctx.Err() == nil {
				c.send("FILA.LEASE", "orders", "COUNT", "3", "BLOCK", "100")
				if rng.IntN(4) == 0 {
					c.conn.Close() //nolint:errcheck,gosec // hanging up is the point
					c = dialLive(t, addr)
					continue
				}
				r, err := c.read()
				if err != nil || r.kind != '*' {
					t.Errorf("lease: %v %v", r, err)
					return
				}
				for _, m := range r.items {
					acked.Add(c.ack(t, m.items[0].text))
				}
			}
		})
	}
	wg.Wait()
	if got := acked.Load(); got != producers*each {
		t.Errorf("%d acked of %d", got, producers*each)
	}
	if got := admin.do(t, "FILA.LEASE", "orders"); len(got.items) != 0 {
		t.Errorf("a message is left: %v", got)
	}
}

func (c *liveClient) ack(t *testing.T, receipt string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(c.do(t, "FILA.ACK", "orders", receipt).text, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}

// startLive starts a whole broker with a memory store and returns its address.
func startLive(t *testing.T) string {
	t.Helper()
	e, err := loop.New(engine.DefaultConfig(), storage.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(Config{Now: time.Now}, e)
	if err != nil {
		t.Fatal(err)
	}
	s, err := resp.NewServer(resp.DefaultConfig(), h)
	if err != nil {
		t.Fatal(err)
	}
	addr, _, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx := context.WithoutCancel(t.Context()) // both are stopped in order
	running.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-e.Ready()
	running.Go(func() {
		if err := s.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		e.Stop()
		ctx, cancel := context.WithTimeout(ctx, testkit.Patience())
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		running.Wait()
	})
	return addr.String()
}

// liveClient is a client over a socket.
type liveClient struct {
	conn net.Conn
	in   *bufio.Reader
}

func dialLive(t *testing.T, addr string) *liveClient {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() }) //nolint:errcheck,gosec // may be closed already
	return &liveClient{conn: conn, in: bufio.NewReader(conn)}
}

func (c *liveClient) send(args ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	io.WriteString(c.conn, b.String()) //nolint:errcheck,gosec // the read after it tells
}

func (c *liveClient) do(t *testing.T, args ...string) reply {
	t.Helper()
	c.send(args...)
	r, err := c.read()
	if err != nil {
		t.Error(err)
	}
	return r
}

// read reads one reply of RESP2.
func (c *liveClient) read() (r reply, err error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return r, err
	}
	line = strings.TrimRight(line, "\r\n")
	r.kind, r.text = line[0], line[1:]
	n, err := strconv.Atoi(r.text)
	switch r.kind {
	case '$':
		b := make([]byte, max(n, 0)+2)
		if err == nil && n >= 0 {
			_, err = io.ReadFull(c.in, b)
		}
		r.text = string(b[:max(n, 0)])
		return r, err
	case '*':
		for range n {
			var item reply
			if item, err = c.read(); err != nil {
				return r, err
			}
			r.items = append(r.items, item)
		}
		return r, err
	default:
		return r, nil
	}
}

// Messages that are read to be written are counted among those of all connections: a reply
// that has some ends when there is no room for more, and one that has none waits.
func TestMessagesAreReadWithinWhatAllConnectionsMayHave(t *testing.T) {
	const size = 2 << 20
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(c *Config) {
			c.Limits = Limits{Message: size + smallRoom, LoadTotal: 2 * (size + smallRoom), Retained: 1, RetainedTotal: 1}
		})
		s.do(t, "FILA.QUEUE", "CREATE", "orders")
		s.handler.retained.Take(1) // so that none is kept from when it was in memory
		payload := strings.Repeat("x", size)
		for range 4 {
			s.do(t, "FILA.ENQUEUE", "orders", payload)
		}
		if got := strings.Count(s.do(t, "FILA.LEASE", "orders", "COUNT", "4"), payload); got != 2 {
			t.Errorf("a reply has %d messages, there was room for 2", got)
		}
		s.handler.loads.Take(2 * (size + smallRoom)) // by others
		c := s.connect("other")
		c.handle([]string{"FILA.LEASE", "orders", "COUNT", "4"})
		written := make(chan struct{})
		go func() {
			c.flush()
			close(written)
		}()
		synctest.Wait()
		if c.out.Len() > 0 {
			t.Error("a message was read while others had all the room")
		}
		s.handler.loads.Give(2 * (size + smallRoom))
		<-written
		if got := strings.Count(c.received(), payload); got != 2 {
			t.Errorf("a reply has %d messages, there are 2 left", got)
		}
		if n := s.handler.loads.Used(); n != 0 {
			t.Errorf("%d bytes are counted that no reply holds", n)
		}
	})
}

package resp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

func TestNewServerRefusesWhatCannotWork(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.MaxClients = 0 },
		func(c *Config) { c.IdleTimeout = -1 },
		func(c *Config) { c.WriteTimeout = 0 },
		func(c *Config) { c.WindowMax = 0 },
		func(c *Config) { c.OutputBytesMax = 0 },
		func(c *Config) { c.Limits.ArgsMax = 0 },
		func(c *Config) { c.Limits.BulkBytesMax = 1<<30 + 1 },
		func(c *Config) { c.Limits.CommandBytesMax = 0 },
		func(c *Config) { c.Limits.InlineBytesMax = inlineBytesMax + 1 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		if _, err := NewServer(cfg, newTestHandler()); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := NewServer(DefaultConfig(), nil); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

func TestServeNeedsListen(t *testing.T) {
	s := newTestServer(t, newTestHandler(), nil)
	if err := s.Serve(t.Context()); !errors.Is(err, ErrServing) {
		t.Fatal(err)
	}
	if _, _, err := s.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Listen(t.Context()); !errors.Is(err, ErrServing) {
		t.Fatal(err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = newTestServer(t, newTestHandler(), func(c *Config) { c.Addr = "127.0.0.1:999999" })
	if _, _, err := s.Listen(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listen on ") {
		t.Fatal(err)
	}
}

func TestTooManyClientsAreTold(t *testing.T) {
	h := newTestHandler()
	s, addr := startServer(t, h, func(c *Config) { c.MaxClients = 2 })
	a, b := dial(t, addr), dial(t, addr)
	for _, c := range []*client{a, b} {
		c.send("PING\r\n")
		c.want("+PONG\r\n")
	}
	dial(t, addr).wantEnd(tooManyClients)
	if st := s.Stats(); st.Rejected != 1 || st.Accepted != 2 || st.Current != 2 {
		t.Fatalf("%+v", st)
	}
	_ = a.Close()
	testkit.Eventually(t, "one connection is left", func() bool { return s.Stats().Current == 1 })
	c := dial(t, addr)
	c.send("PING\r\n")
	c.want("+PONG\r\n")
}

func TestShutdownWritesWhatIsPending(t *testing.T) {
	h := newTestHandler()
	s, addr := startServer(t, h, nil)
	quiet, busy := dial(t, addr), dial(t, addr)
	quiet.send("PING\r\n")
	quiet.want("+PONG\r\n")
	busy.send("WAIT\r\nWAITFRAIL\r\nECHO x\r\n")
	first, second := testkit.Receive(t, "the command waits", h.waits), testkit.Receive(t, "the command waits", h.waits)
	done := make(chan error, 1)
	go func() { done <- s.Shutdown(context.WithoutCancel(t.Context())) }()
	quiet.wantEnd("")
	for range 2 { // both sessions are told
		session := testkit.Receive(t, "the connection opens", h.sessions)
		testkit.Receive(t, "Gone is called", session.gone)
		h.sessions <- session
	}
	first.ready.Store(true)
	second.ready.Store(true)
	for _, c := range s.Conns() {
		c.Wake()
	}
	// The client is there: perishable replies are good for it.
	busy.wantEnd("+WAITED\r\n+WAITED\r\n$1\r\nx\r\n")
	if err := testkit.Receive(t, "Shutdown returns", done); err != nil {
		t.Fatal(err)
	}
	if _, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr); err == nil {
		t.Fatal("still listening")
	}
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	h := newTestHandler()
	s, addr := startServer(t, h, nil)
	c := dial(t, addr)
	c.send("PING\r\nWAIT\r\n")
	r := testkit.Receive(t, "the command waits", h.waits)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(c.r) // closed
	r.ready.Store(true)
	for _, conn := range s.Conns() {
		conn.Wake()
	}
	testkit.Receive(t, "Drop is called", r.left)
}

func TestServeEndsWithItsContext(t *testing.T) {
	h := newTestHandler()
	s := newTestServer(t, h, nil)
	addr, _, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	c := dial(t, addr.String())
	c.send("PING\r\n")
	c.want("+PONG\r\n")
	cancel()
	if err := testkit.Receive(t, "Serve returns", served); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	c.wantEnd("")
}

// tiredListener fails as a process without descriptors does.
type tiredListener struct {
	net.Listener
	mu    sync.Mutex
	fails int
}

func (l *tiredListener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails > 0 {
		l.fails--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptingGoesOnAfterErrors(t *testing.T) {
	h := newTestHandler()
	s := newTestServer(t, h, nil)
	addr, _, err := s.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.listeners[0].Listener = &tiredListener{Listener: s.listeners[0].Listener, fails: 3}
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.WithoutCancel(t.Context())) }()
	c := dial(t, addr.String())
	c.send("PING\r\n")
	c.want("+PONG\r\n")
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Receive(t, "Serve returns", served); err != nil {
		t.Fatal(err)
	}
}

// Each of these ended, burned or bloated a process that read with redcon.
func TestAttacksByOnePacket(t *testing.T) {
	h := newTestHandler()
	_, addr := startServer(t, h, nil)
	for _, c := range []struct{ name, in, out string }{
		{"length that overflows", "*1\r\n$9223372036854775807\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"count that spins", "*9000000000000000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"count of 31 bits", "*2147483647\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"length of 31 bits", "*1\r\n$2147483647\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"endless line", strings.Repeat("a", 1<<20), "-ERR Protocol error: too big inline request\r\n"},
		{"endless number", "*" + strings.Repeat("1", 1<<20), "-ERR Protocol error: too big mbulk count string\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := dial(t, addr)
			cl.send(c.in)
			cl.wantEnd(c.out)
		})
	}
	cl := dial(t, addr)
	cl.send("PING\r\n")
	cl.want("+PONG\r\n")
}

func TestDeclaredIsNotAllocated(t *testing.T) {
	s, addr := startServer(t, newTestHandler(), nil)
	before := heap()
	var clients []*client
	for range 50 {
		cl := dial(t, addr)
		cl.send("*1\r\n$33554432\r\n0123456789")
		clients = append(clients, cl)
	}
	testkit.Eventually(t, "all commands have arrived", func() bool { return s.Stats().BytesIn > 50*20 })
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("%d bytes for 50 connections", grown)
	}
	for _, cl := range clients {
		_ = cl.Close()
	}
}

func TestOneByteAtATime(t *testing.T) {
	_, addr := startServer(t, newTestHandler(), nil)
	cl := dial(t, addr)
	body := strings.Repeat("x", 20000)
	in := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(body), body)
	for i := range in {
		cl.send(in[i : i+1])
	}
	cl.want(fmt.Sprintf("$%d\r\n%s\r\n", len(body), body))
}

func TestReadsThatAlwaysEndInMidCommand(t *testing.T) {
	_, addr := startServer(t, newTestHandler(), nil)
	cl := dial(t, addr)
	one := "*2\r\n$4\r\nECHO\r\n$1000\r\n" + strings.Repeat("x", 1000) + "\r\n"
	const n = 20000
	go func() {
		in := strings.Repeat(one, 64)
		cl.send(one[:500])
		for sent := 0; sent < n; sent += 64 {
			_, _ = io.WriteString(cl.Conn, in[500:]+in[:500])
		}
	}()
	before := heap()
	answer := "$1000\r\n" + strings.Repeat("x", 1000) + "\r\n"
	for range n {
		cl.want(answer)
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("grown by %d bytes", grown)
	}
	_ = cl.Close()
}

func TestQuietAfterALongCommandHoldsNothing(t *testing.T) {
	_, addr := startServer(t, newTestHandler(), nil)
	before := heap()
	body := strings.Repeat("x", 8<<20)
	var clients []*client
	for range 8 {
		cl := dial(t, addr)
		cl.send(fmt.Sprintf("*2\r\n$4\r\nNOPE\r\n$%d\r\n%s\r\n", len(body), body))
		cl.want("-ERR unknown command 'NOPE'\r\n")
		clients = append(clients, cl)
	}
	// The reader of the last one may have its command yet when the reply is there.
	testkit.Eventually(t, "no more than 2 MiB are held", func() bool { return heap()-before <= 2<<20 })
	runtime.KeepAlive(clients)
}

// heap is the memory in use after two collections, the second of which empties
// the pools.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// Clients leave, pipelines end anywhere, replies become ready in any order and
// on other goroutines: every reply must be sent, whichever goroutine was about to sleep.
func TestNoWakeIsLost(t *testing.T) {
	const conns, rounds, pipeline = 8, 200, 7
	h := newTestHandler()
	s, addr := startServer(t, h, func(c *Config) { c.WindowMax = 5 })
	stop := make(chan struct{})
	var engines, clients sync.WaitGroup
	for range 2 {
		engines.Go(func() {
			for {
				select {
				case r := <-h.waits:
					r.ready.Store(true)
					for _, c := range s.Conns() {
						c.Wake()
					}
				case <-stop:
					return
				}
			}
		})
	}
	for range conns {
		c := dial(t, addr)
		clients.Go(func() {
			for range rounds {
				if _, err := io.WriteString(c.Conn, strings.Repeat("WAIT\r\nPING\r\n", pipeline)); err != nil {
					t.Error(err)
				}
				want := strings.Repeat("+WAITED\r\n+PONG\r\n", pipeline)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
					t.Errorf("%q %v", got, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	testkit.Receive(t, "the last reply arrives", done)
	close(stop)
	engines.Wait()
}

// selfSigned is a configuration with a certificate for the name "fila", which
// signs itself.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"fila"}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: key}}}
}

func TestConnectionsKnowTheModeOfTheirListener(t *testing.T) {
	secure := selfSigned(t)
	h := newTestHandler()
	s, addr := startServer(t, h, func(c *Config) {
		c.TLS = secure
		c.More = []Listener{{Addr: c.Addr, Mode: 1}, {Addr: c.Addr, Mode: 2, TLS: true}}
	})
	more := s.More()
	var seen []*testSession
	if len(more) != 2 {
		t.Fatalf("%d more addresses", len(more))
	}
	for _, want := range []struct {
		addr   string
		mode   Mode
		secure bool
	}{{addr, 0, false}, {more[0].String(), 1, false}, {more[1].String(), 2, true}} {
		c := dial(t, want.addr)
		if want.secure {
			c = newClient(t, tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})) //nolint:gosec // the test's own
		}
		c.send("PING\r\n")
		c.want("+PONG\r\n")
		session := testkit.Receive(t, "the connection opens", h.sessions)
		if got := session.c; got.Mode() != want.mode || got.Secure() != want.secure {
			t.Errorf("at %s: mode %d, secure: %v", want.addr, got.Mode(), got.Secure())
		}
		_ = c.Close()
		testkit.Receive(t, "Gone is called", session.gone)
		seen = append(seen, session)
	}
	for _, session := range seen {
		h.sessions <- session // for the check at the end
	}
}

func TestAListenerThatCannotBeOpenedClosesThoseBeforeIt(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, newTestHandler(), func(c *Config) {
		c.Addr, c.More = addr, []Listener{{Addr: taken.Addr().String()}}
	})
	if _, _, err := s.Listen(t.Context()); err == nil {
		t.Fatal("it listens where another does")
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Listen(t.Context()); err != nil {
		t.Errorf("the first address is still taken: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	secure := selfSigned(t)
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(secure.Certificates[0].Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	h := newTestHandler()
	s, addr := startServer(t, h, func(c *Config) {
		c.Addr, c.TLSAddr = "", c.Addr
		c.TLS = secure
	})
	plain := dial(t, addr)
	plain.send("PING\r\n")
	if answer, _ := io.ReadAll(plain.r); string(answer) != onlyTLS {
		t.Errorf("a client without TLS reads %q", answer)
	}
	if len(s.Conns()) != 0 {
		t.Fatal("a session without a handshake")
	}
	tc := tls.Client(dial(t, addr).Conn, &tls.Config{RootCAs: pool, ServerName: "fila", MinVersion: tls.VersionTLS12})
	c := newClient(t, tc)
	body := strings.Repeat("0123456789", 100_000)
	for range 3 {
		c.send(strings.Repeat("PING\r\n", 300) + fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(body), body))
		c.want(strings.Repeat("+PONG\r\n", 300) + fmt.Sprintf("$%d\r\n%s\r\n", len(body), body))
	}
	c.send("WAIT\r\n")
	r := testkit.Receive(t, "the command waits", h.waits)
	session := testkit.Receive(t, "the connection opens", h.sessions)
	h.sessions <- session
	_ = tc.Close()
	testkit.Receive(t, "Gone is called", session.gone)
	session.release(r)
}

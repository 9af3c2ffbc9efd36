package commands

import (
	"bytes"
	"flag"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/scripting"
	"github.com/faisca/fila/storage"

	"github.com/faisca/fila/internal/hook"
)

// startTime is when every test's server starts.
func startTime() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// server is the commands with an engine that is driven by hand: no goroutine, no
// clock, no socket. Its connections behave as resp's do, one step at a time.
type server struct {
	*engine.Stepper
	ready   chan struct{}
	store   *storage.Memory
	handler *Handler
	conns   map[string]*fakeConn
	submits int
}

// Ready makes a stepper the Engine that the commands expect.
func (s *server) Ready() <-chan struct{} { return s.ready }

// Submit counts the calls.
func (s *server) Submit(tasks []*engine.Task) {
	s.submits++
	s.Stepper.Submit(tasks)
}

// newServer starts a server with a memory store. change may alter its settings.
func newServer(t testing.TB, change func(*Config)) *server {
	t.Helper()
	memory := storage.NewMemory()
	return newServerOn(t, memory, memory, change)
}

// newServerOn starts a server whose engine reaches its memory store by way of another one.
func newServerOn(t testing.TB, memory *storage.Memory, store engine.Store, change func(*Config)) *server {
	t.Helper()
	cfg := engine.DefaultConfig()
	scripts := scripting.DefaultConfig()
	scripts.Timeout = 250 * time.Millisecond // the machine may be busy with other tests
	var s *server
	scripts.BreakerChanged = func(h hook.Hook, state hook.BreakerState) { s.BreakerChanged(h, state) }
	var err error
	if cfg.Scripts, err = scripting.New(scripts); err != nil {
		t.Fatal(err)
	}
	s = serverOf(t, cfg, memory, store, change)
	close(s.ready)
	return s
}

// newServerOf starts a server whose engine is of the given settings and, as far
// as the commands know, still recovers.
func newServerOf(t testing.TB, cfg engine.Config, change func(*Config)) *server {
	t.Helper()
	memory := storage.NewMemory()
	return serverOf(t, cfg, memory, memory, change)
}

func serverOf(t testing.TB, cfg engine.Config, memory *storage.Memory, store engine.Store, change func(*Config)) *server {
	t.Helper()
	s := &server{ready: make(chan struct{}), store: memory, conns: map[string]*fakeConn{}}
	var err error
	if s.Stepper, err = engine.NewStepper(cfg, store, startTime()); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Version: "0.1.0", Addr: "127.0.0.1:5555", MaxClients: 10_000, Now: s.Now,
		Shutdown: func() {}, Settings: map[string]string{"storage.sync": "always"},
	}
	if change != nil {
		change(&c)
	}
	if s.handler, err = New(c, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range s.conns {
			c.gone()
		}
		if err := s.Check(); err != nil {
			t.Errorf("the engine is broken: %v", err)
		}
	})
	return s
}

// Settle implements Engine: tasks that need not wait are done when they have been submitted.
func (s *server) Settle(*engine.Client, <-chan struct{}) error { return nil }

// connect returns the named connection, opening it at first use.
func (s *server) connect(name string) *fakeConn {
	if c := s.conns[name]; c != nil {
		return c
	}
	return s.connectTo(name, ModeStandalone, false)
}

// connectTo opens a connection to a port of a mode.
func (s *server) connectTo(name string, mode resp.Mode, secure bool) *fakeConn {
	c := &fakeConn{server: s, id: uint64(len(s.conns) + 1), created: s.Now(), mode: mode, secure: secure}
	c.session = s.handler.open(c)
	s.conns[name] = c
	return c
}

// do sends one command and returns what came back, "" if nothing has.
func (s *server) do(t testing.TB, args ...string) string {
	t.Helper()
	return s.connect("").do(args...)
}

// fakeConn is a connection without bytes: a window, and what was written of it.
type fakeConn struct {
	server  *server
	session *Session
	id      uint64
	created time.Time
	window  []resp.Reply
	out     bytes.Buffer
	proto   int
	authed  bool
	last    bool // nothing is handled any more
	closed  bool

	mode        resp.Mode
	secure      bool
	relayed     bool   // of a client of another node
	certificate string // name in what it shows
	localUser   string // that its maker has authenticated
}

func (c *fakeConn) ID() uint64 { return c.id }
func (c *fakeConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40_000 + int(c.id)}
}
func (c *fakeConn) LocalAddr() net.Addr                              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5555} }
func (c *fakeConn) CreatedAt() time.Time                             { return c.created }
func (c *fakeConn) LastActive() time.Time                            { return c.created }
func (c *fakeConn) SetProto(proto int)                               { c.proto = proto }
func (c *fakeConn) SetAuthenticated(yes bool)                        { c.authed = yes }
func (c *fakeConn) CertificateName() string                          { return c.certificate }
func (c *fakeConn) LocalUser() string                                { return c.localUser }
func (c *fakeConn) Relayed() bool                                    { return c.relayed }
func (c *fakeConn) Mode() resp.Mode                                  { return c.mode }
func (c *fakeConn) Secure() bool                                     { return c.secure }
func (c *fakeConn) Pending() int                                     { return len(c.window) }
func (c *fakeConn) QueuedBytes() int64                               { return 0 }
func (c *fakeConn) Push(replies ...resp.Reply)                       { c.window = append(c.window, replies...) }
func (c *fakeConn) Wake()                                            {}
func (c *fakeConn) Answer()                                          {}
func (c *fakeConn) PushAsync(b []byte) bool                          { c.out.Write(b); return !c.closed }
func (c *fakeConn) Close()                                           { c.gone() }
func (c *fakeConn) Reserve(resp.Need, bool) (resp.Reservation, bool) { return resp.Reservation{}, true }
func (c *fakeConn) Shrink(resp.Reservation, int64) resp.Reservation  { return resp.Reservation{} }
func (c *fakeConn) Watch() (<-chan struct{}, func())                 { return nil, func() {} }
func (c *fakeConn) CloseAfterFlush()                                 { c.last = true }

// gone ends the connection: the session is told, then replies are dropped as
// they become ready.
func (c *fakeConn) gone() {
	if c.closed {
		return
	}
	c.closed = true
	c.session.Gone()
	c.flush()
}

// flush writes the replies at the head of the window that are ready.
func (c *fakeConn) flush() {
	for len(c.window) > 0 && c.window[0].Ready() {
		r := c.window[0]
		c.window = c.window[1:]
		if c.closed {
			r.Drop()
			continue
		}
		w := resp.Writer{Proto: 2}
		r.Append(&w)
		c.out.Write(w.Take())
	}
	if c.last && len(c.window) == 0 && !c.closed {
		c.gone()
	}
}

// send hands over commands that came in one read.
func (c *fakeConn) send(cmds ...[]string) {
	if c.closed {
		return
	}
	c.session.Handle(commandsOf(cmds...))
	c.server.settle()
}

// wordsOf makes the words of a command as resp hands them over.
func wordsOf(args []string) [][]byte { return commandsOf(args)[0].Args }

// commandsOf makes commands as resp hands them over.
func commandsOf(cmds ...[]string) []resp.Command {
	read := make([]resp.Command, len(cmds))
	for i, args := range cmds {
		for _, a := range args {
			read[i].Args = append(read[i].Args, []byte(a))
		}
	}
	return read
}

// settle lets every connection write what has become ready.
func (s *server) settle() {
	s.Do()
	for _, c := range s.conns {
		c.flush()
	}
}

// received takes what was written so far.
func (c *fakeConn) received() string {
	b := c.out.String()
	c.out.Reset()
	return b
}

// do sends one command and returns its reply in wire form.
func (c *fakeConn) do(args ...string) string {
	c.send(args)
	return c.received()
}

// reply is what came back, decoded.
type reply struct {
	kind  byte
	text  string
	items []reply // of a map: name, reply, name, reply
}

// decode reads one reply and returns the rest.
func decode(wire string) (v reply, rest string, err error) {
	line, rest, found := strings.Cut(wire, "\r\n")
	if !found || line == "" {
		return v, "", fmt.Errorf("not a reply: %q", wire)
	}
	v.kind, v.text = line[0], line[1:]
	n := 0
	if strings.IndexByte("$=*~>%", v.kind) >= 0 {
		if n, err = strconv.Atoi(v.text); err != nil {
			return v, "", err
		}
	}
	switch v.kind {
	case '$', '=':
		if n < 0 {
			v.kind = '_'
			return v, rest, nil
		}
		if len(rest) < n+2 || rest[n:n+2] != "\r\n" {
			return v, "", fmt.Errorf("a string without its end: %q", wire)
		}
		v.text = rest[:n]
		return v, rest[n+2:], nil
	case '*', '~', '>', '%':
		if n < 0 {
			v.kind = '_'
		}
		if v.kind == '%' {
			n *= 2
		}
		for range n {
			var item reply
			if item, rest, err = decode(rest); err != nil {
				return v, "", err
			}
			v.items = append(v.items, item)
		}
	case '+', '-', ':', '_', '#', ',':
	default:
		return v, "", fmt.Errorf("an unknown type: %q", wire)
	}
	return v, rest, nil
}

// show prints a reply as redis-cli does.
func (v reply) show(indent string) string {
	switch v.kind {
	case '+':
		return v.text
	case '-':
		return "(error) " + v.text
	case ':':
		return "(integer) " + v.text
	case '_':
		return "(nil)"
	case '=':
		return strings.TrimRight(v.text, "\r\n")
	case '$':
		return strconv.QuoteToASCII(v.text)
	}
	if len(v.items) == 0 {
		return map[byte]string{'*': "(empty array)", '~': "(empty set)", '%': "(empty hash)", '>': "(empty push)"}[v.kind]
	}
	var lines []string
	if v.kind == '%' {
		for i := 0; i < len(v.items); i += 2 {
			head := strconv.Itoa(i/2+1) + "# " + v.items[i].show("") + " => "
			lines = append(lines, head+v.items[i+1].show(indent+"   "))
		}
		return strings.Join(lines, "\n"+indent)
	}
	width := len(strconv.Itoa(len(v.items)))
	mark := map[byte]string{'*': ")", '~': "~", '>': ")"}[v.kind]
	for i, item := range v.items {
		head := fmt.Sprintf("%*d%s ", width, i+1, mark)
		lines = append(lines, head+item.show(indent+strings.Repeat(" ", len(head))))
	}
	return strings.Join(lines, "\n"+indent)
}

// printed shows all replies in wire form.
func printed(t testing.TB, wire string) string {
	t.Helper()
	var out []string
	for wire != "" {
		v, rest, err := decode(wire)
		if err != nil {
			t.Fatal(err)
		}
		out, wire = append(out, v.show("")), rest
	}
	return strings.Join(out, "\n")
}

// scripted is what a script is played to.
type scripted interface {
	talk(name string) talker // over the named connection
	settle()
	pass(d time.Duration)
	fail(err error) // commits; nil: they succeed again
}

// talker is a connection of a script.
type talker interface {
	send(cmds ...[]string)
	received() string
	gone()
	ended() bool
}

func (s *server) talk(name string) talker { return s.connect(name) }
func (s *server) pass(d time.Duration)    { s.Advance(d) }
func (c *fakeConn) ended() bool           { return c.closed }

func (s *server) fail(err error) {
	s.store.FailCommits(err)
	if err == nil {
		_ = s.Repair() // the script shows whether it has succeeded
	}
}

// recorded is a store that writes down what it is told to commit.
type recorded struct {
	*storage.Memory

	text strings.Builder
}

func (s *recorded) Commit(b *storage.Batch, sync bool) error {
	fmt.Fprintf(&s.text, "batch of %d bytes, synced: %v\n", len(b.Bytes()), sync)
	err := b.Each(func(r storage.Record) error {
		fmt.Fprintf(&s.text, "%v %v %x %x\n", r.Op, r.Family, r.Key, r.Value)
		return nil
	})
	if err != nil {
		return err
	}
	return s.Memory.Commit(b, sync)
}

// A broker without replication writes what it wrote before there was any: testdata/golden/store.records
// is from 923e16d, which knows nothing of it. Each record of each batch is compared, in order, with the
// syncs. -rewrite writes the file anew: say in the commit why no older broker misreads such a store.
func TestABrokerWithoutReplicationWritesWhatItAlwaysWrote(t *testing.T) {
	script, err := os.ReadFile("testdata/store.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := &recorded{Memory: storage.NewMemory()}
	start := func(change func(*Config)) scripted { return newServerOn(t, s.Memory, s, change) }
	playScript(t, string(script), start)
	s.text.WriteString("restart\n")
	playScript(t, "advance 1h", start)
	const golden = "testdata/golden/store.records"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(s.text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.text.String(); got != string(want) {
		t.Error(firstDifference(string(want), got))
	}
}

// rewrite is a flag of the test binary.
var rewrite = flag.Bool("rewrite", false, "write the replies of testdata/*.txt anew") //nolint:gochecknoglobals // flags have to be known before tests run

// waiting returns the replies that a connection has not written: commands that were
// handled, and answered, while nothing is read.
func (c *fakeConn) handle(cmds ...[]string) (read []resp.Command, waiting []*pending) {
	read = commandsOf(cmds...)
	c.session.Handle(read)
	c.server.Do()
	for _, r := range c.window {
		if within, ok := r.(interface{ Unwrap() resp.Reply }); ok {
			r = within.Unwrap()
		}
		if p, ok := r.(*pending); ok {
			waiting = append(waiting, p)
		}
	}
	return read, waiting
}

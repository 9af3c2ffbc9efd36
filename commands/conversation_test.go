package commands

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// FuzzConversation sends what real clients have sent (testdata/traffic), mutated
// and cut anywhere into packets, to a whole server over a socket. Between the
// commands it puts PINGs that carry their number: each command must have its one
// reply, in its place. What follows the last whole command is sent as it is.
//
// No crash, no panic that ends a connection, no hang.
func FuzzConversation(f *testing.F) {
	files, err := filepath.Glob("testdata/traffic/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no traffic", err)
	}
	for i, file := range files {
		traffic, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(traffic, uint64(i))
		f.Add(append(slices.Clone(traffic), traffic[:len(traffic)/2]...), uint64(i)) // ends in mid-command
	}
	f.Fuzz(func(t *testing.T, traffic []byte, seed uint64) {
		if len(traffic) > 64<<10 {
			return
		}
		s := startTalk(t, false)
		defer s.stop()
		s.converse(traffic, rand.New(rand.NewPCG(seed, 0)))
	})
}

// What real clients have sent has its replies in order from a node that does not lead, too.
func TestConversationsThroughAFollower(t *testing.T) {
	files, err := filepath.Glob("testdata/traffic/*")
	if err != nil || len(files) == 0 {
		t.Fatal("no traffic", err)
	}
	for i, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			traffic, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, traffic := range [][]byte{traffic, append(slices.Clone(traffic), traffic[:len(traffic)/2]...)} {
				s := startTalk(t, true)
				s.converse(traffic, rand.New(rand.NewPCG(uint64(i), 0)))
				s.stop()
			}
		})
	}
}

// talk is a server that runs, with a store in memory.
type talk struct {
	t      *testing.T
	server *resp.Server
	addr   string
	log    syncBuffer
	stop   func()
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startTalk starts a server; if followed, a node that passes commands on to it, which is talked to.
func startTalk(t *testing.T, followed bool) *talk {
	t.Helper()
	s := &talk{t: t}
	cfg := engine.DefaultConfig()
	cfg.MaxBlock = 2 * time.Millisecond // BLOCK 0 must not hang the test
	e, err := loop.New(cfg, storage.NewMemory())
	if err != nil {
		t.Fatal(err)
	}
	conf := Config{Version: "0.1.0", MaxClients: 100, Now: time.Now}
	if followed {
		conf.Cluster, conf.Relay = testNode{e}, relay.NewRouter(relay.Config{Wait: testkit.Patience(), Log: zerolog.Nop()})
	}
	h, err := New(conf, e)
	if err != nil {
		t.Fatal(err)
	}
	rc := resp.DefaultConfig()
	rc.Log = zerolog.New(&s.log)
	if s.server, err = resp.NewServer(rc, h); err != nil {
		t.Fatal(err)
	}
	running := make(chan error, 1)
	go func() { running <- e.Run(context.WithoutCancel(t.Context())) }()
	<-e.Ready()
	leader, router := s.server, conf.Relay
	if followed {
		router = s.follow(conf, rc)
	}
	addr, _, err := s.server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.addr = addr.String()
	serving := make(chan error, 1)
	go func() { serving <- s.server.Serve(context.WithoutCancel(t.Context())) }()
	s.stop = func() {
		e.Stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testkit.Patience())
		defer cancel()
		for _, err := range []error{<-running, s.server.Shutdown(ctx), <-serving} {
			if err != nil {
				t.Error("stopping:", err)
			}
		}
		if followed {
			router.Close()
			if err := leader.Shutdown(ctx); err != nil {
				t.Error("stopping the leader:", err)
			}
		}
		if log := s.log.String(); strings.Contains(log, "panic") {
			t.Errorf("a connection has panicked: %s", log)
		}
	}
	return s
}

// follow puts a node before the server.
func (s *talk) follow(conf Config, rc resp.Config) *relay.Router {
	s.t.Helper()
	leader := s.server
	router := relay.NewRouter(relay.Config{Wait: testkit.Patience(), Log: zerolog.Nop(), Dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _ = relay.Serve(far, nil, leader.ServeRelayed, zerolog.Nop()) }() // it ends with the router
		return near, nil
	}})
	router.Follow("leader")
	conf.Cluster, conf.Relay = testNode{}, router
	ready := make(chan struct{})
	close(ready)
	h, err := New(conf, noEngine{clock: realClock{time.Now()}, ready: ready})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.server, err = resp.NewServer(rc, h); err != nil {
		s.t.Fatal(err)
	}
	return router
}

// realClock is a clock that runs.
type realClock struct{ start time.Time }

func (c realClock) Elapsed() time.Duration { return time.Since(c.start) }

// converse sends the traffic over one connection and checks the replies.
func (s *talk) converse(traffic []byte, rng *rand.Rand) {
	s.t.Helper()
	nc, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(testkit.Patience())); err != nil {
		s.t.Fatal(err)
	}
	commands, rest := framed(traffic)
	strict := !slices.ContainsFunc(commands, changesTheRules)
	var send []byte
	for i, c := range commands {
		send = append(append(send, numbered(i)...), c.wire...)
	}
	send = append(send, numbered(len(commands))...)
	var got syncBuffer
	ended, seen := make(chan error, 1), make(chan struct{})
	go func() {
		last, open := fmt.Sprintf("\r\n%s\r\n", marker(len(commands))), true
		chunk := make([]byte, 4<<10)
		for {
			n, err := nc.Read(chunk)
			_, _ = got.Write(chunk[:n]) // never fails
			if open && (strings.HasSuffix(got.String(), last) || err != nil) {
				open = false
				close(seen)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	send = sendInPieces(nc, send, rng)
	if strict && send == nil { // else what is heard last may be an event, or nothing
		<-seen
	}
	replies := got.String()
	_, _ = nc.Write(rest) // it may be closed already
	_ = nc.(*net.TCPConn).CloseWrite()
	if err := <-ended; err != nil && os.IsTimeout(err) {
		s.t.Fatalf("it hangs: %v; sent %q, received %q", err, traffic, got.String())
	}
	if strict {
		s.check(commands, replies)
	} else {
		wellFormed(s.t, got.String())
	}
}

// sendInPieces writes b in packets of any size and returns what could not be
// written, nil for nothing.
func sendInPieces(nc net.Conn, b []byte, rng *rand.Rand) []byte {
	for len(b) > 0 {
		n := 1 + rng.IntN(min(len(b), 1+rng.IntN(600)))
		if _, err := nc.Write(b[:n]); err != nil {
			return b
		}
		b = b[n:]
	}
	return nil
}

func marker(i int) string { return fmt.Sprintf("marker-%06d", i) }

func numbered(i int) string { return fmt.Sprintf("*2\r\n$4\r\nPING\r\n$13\r\n%s\r\n", marker(i)) }

// check compares replies with the commands that they must belong to.
func (s *talk) check(commands []sent, replies string) {
	s.t.Helper()
	fail := func(format string, args ...any) {
		s.t.Helper()
		s.t.Fatalf("%s\nreplies %q", fmt.Sprintf(format, args...), replies)
	}
	next, owed := 0, 0
	for rest := replies; rest != ""; {
		var r reply
		var err error
		if r, rest, err = decode(rest); err != nil {
			fail("%v", err)
		}
		switch {
		case r.text == marker(next) || len(r.items) == 2 && r.items[0].text == "pong" && r.items[1].text == marker(next):
			if owed > 0 {
				fail("command %d, %q, has %d replies too few", next-1, commands[next-1].args, owed)
			}
			if next < len(commands) {
				owed = commands[next].replies()
			}
			next++
		case isEvent(r):
		default:
			if owed--; owed < 0 {
				fail("a reply too many before marker %d: %q", next, r.show(""))
			}
		}
	}
	if next != len(commands)+1 {
		fail("%d markers came back of %d", next, len(commands)+1)
	}
}

// isEvent reports whether a reply is none, but something that was subscribed to.
func isEvent(r reply) bool {
	return (r.kind == '*' || r.kind == '>') && len(r.items) > 2 && (r.items[0].text == "message" || r.items[0].text == "pmessage")
}

func wellFormed(t *testing.T, replies string) {
	t.Helper()
	for rest := replies; rest != ""; {
		var err error
		if _, rest, err = decode(rest); err != nil {
			// A client that was cut off may miss the end of a reply.
			if !strings.Contains(err.Error(), "unknown type") {
				return
			}
			t.Fatalf("%v in %q", err, replies)
		}
	}
}

// sent is a command as it was sent.
type sent struct {
	wire []byte
	args []string
}

func (c *sent) name() string { return strings.ToUpper(c.args[0]) }

// replies is how many the command must have.
func (c *sent) replies() int {
	switch c.name() {
	case "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE":
		long := slices.ContainsFunc(c.args, func(a string) bool { return len(a) > channelBytesMax })
		if n := len(c.args) - 1; n > 0 && !long {
			return n
		}
	}
	return 1
}

// changesTheRules reports whether replies may be missing, or more of them come,
// after a command.
func changesTheRules(c sent) bool {
	switch c.name() {
	case "QUIT", "MONITOR", "ACL", "MULTI", "SHUTDOWN":
		return true
	case "CLIENT":
		return len(c.args) > 1 && slices.Contains([]string{"REPLY", "KILL", "PAUSE"}, strings.ToUpper(c.args[1]))
	case "UNSUBSCRIBE", "PUNSUBSCRIBE": // of all: one for each
		return len(c.args) == 1
	}
	return false
}

// framed takes whole commands from the head of the traffic, as strictly as
// clients write them, and returns what is left.
func framed(b []byte) (commands []sent, rest []byte) {
	for len(b) > 0 {
		blank := len(b) - len(bytes.TrimLeft(b, "\r\n")) // --pipe sends one: it is no command
		n, at, ok := length(b[blank:], '*')
		at += blank
		if bytes.Count(b[:blank], []byte("\r\n"))*2 != blank || !ok || n < 1 || n > 1000 {
			return commands, b
		}
		c := sent{}
		for range n {
			size, head, ok := length(b[at:], '$')
			at += head
			if !ok || size > len(b) || at+size+2 > len(b) || string(b[at+size:at+size+2]) != "\r\n" {
				return commands, b
			}
			c.args = append(c.args, string(b[at:at+size]))
			at += size + 2
		}
		c.wire, b = b[:at], b[at:]
		commands = append(commands, c)
	}
	return commands, nil
}

// length reads a head such as "*3\r\n".
func length(b []byte, kind byte) (n, size int, ok bool) {
	end := bytes.Index(b[:min(len(b), 20)], []byte("\r\n"))
	if end < 2 || b[0] != kind || b[1] == '0' && end > 2 || b[1] == '+' || b[1] == '-' {
		return 0, 0, false
	}
	n, err := strconv.Atoi(string(b[1:end]))
	return n, end + 2, err == nil
}

// TestTrafficIsWhole makes sure that the recordings are what the fuzzer takes
// them for.
func TestTrafficIsWhole(t *testing.T) {
	files, err := filepath.Glob("testdata/traffic/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		traffic, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if commands, rest := framed(traffic); len(commands) == 0 || len(rest) > 0 {
			t.Errorf("%s: %d commands and %q", file, len(commands), rest)
		}
	}
}

const (
	tracedBy  = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	sampled   = "00-" + tracedBy + "-01"
	unsampled = "00-" + tracedBy + "-00"
)

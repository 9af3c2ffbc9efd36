package commands

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/internal/relay"
	"github.com/faisca/fila/resp"
)

// lockedEngine is a stepper for several goroutines. It wakes every connection after a step.
type lockedEngine struct {
	mu      sync.Mutex
	s       *server
	handler *Handler // whose sessions submit
}

// step does something that may complete tasks.
func (l *lockedEngine) step(do func()) {
	l.mu.Lock()
	do()
	l.mu.Unlock()
	for _, s := range l.handler.list() {
		s.conn.Wake()
	}
}

func (l *lockedEngine) Ready() <-chan struct{} { return l.s.ready }

func (l *lockedEngine) Elapsed() time.Duration { return locked(l, l.s.Elapsed) }

func (l *lockedEngine) now() time.Time { return locked(l, l.s.Now) }

func locked[T any](l *lockedEngine, do func() T) T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return do()
}

func (l *lockedEngine) Submit(tasks []*engine.Task) {
	l.step(func() { l.s.Submit(tasks) })
}

func (l *lockedEngine) Settle(*engine.Client, <-chan struct{}) error { return nil }

func (l *lockedEngine) Leave(c *engine.Client) {
	l.step(func() {
		l.s.Leave(c)
		l.s.Do()
	})
}

func (l *lockedEngine) Prepare(req *engine.Enqueue) error {
	return locked(l, func() error { return l.s.Prepare(req) })
}

func (l *lockedEngine) PrepareCron(cr *engine.Cron) error {
	return locked(l, func() error { return l.s.PrepareCron(cr) })
}

func (l *lockedEngine) PrepareMove(req *engine.BudgetMove) error {
	return locked(l, func() error { return l.s.PrepareMove(req) })
}

func (l *lockedEngine) CompileScript(by hook.Caller, kind hook.Kind, source string) (h hook.Hook, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.CompileScript(by, kind, source)
}

func (l *lockedEngine) ScriptSource(queue string, kind hook.Kind, version string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.ScriptSource(queue, kind, version)
}

func (l *lockedEngine) Snapshot() *engine.Snapshot { return locked(l, l.s.Snapshot) }

func (l *lockedEngine) Load(d *engine.Delivery) error {
	return locked(l, func() error { return l.s.Load(d) })
}

func (l *lockedEngine) Listen(to func([]engine.Event)) { l.s.Listen(to) }

func (l *lockedEngine) Want(kinds engine.EventKind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.s.Want(kinds)
}

// noEngine is what a node has that does not lead: every other method panics.
type noEngine struct {
	Engine
	clock interface{ Elapsed() time.Duration }
	ready chan struct{}
}

func (n noEngine) Ready() <-chan struct{}      { return n.ready }
func (n noEngine) Elapsed() time.Duration      { return n.clock.Elapsed() }
func (n noEngine) Listen(func([]engine.Event)) {}
func (n noEngine) Want(engine.EventKind)       {}
func (n noEngine) Submit(tasks []*engine.Task) { engine.Refuse(tasks, engine.ErrStopped, n.Elapsed()) }
func (n noEngine) Leave(*engine.Client)        {}
func (n noEngine) Snapshot() *engine.Snapshot  { return &engine.Snapshot{} }

// testNode is a node whose leadership does not change: e is nil if it does not lead.
type testNode struct{ e Engine }

func (n testNode) Enter() (Engine, uint64) { return n.e, 1 }
func (n testNode) Exit()                   {}

// followed is a node that leads and one that follows. Clients are connected to the second. It has to be
// made in a bubble.
type followed struct {
	t                *testing.T
	engine           *lockedEngine
	leader, follower *resp.Server
	handler          *Handler // of the follower
	router           *relay.Router
	conns            map[string]*pipeConn
}

func newFollowed(t *testing.T, change func(*Config)) *followed {
	t.Helper()
	time.Sleep(time.Until(startTime()))
	f := &followed{t: t, engine: &lockedEngine{s: newServer(t, nil)}, conns: map[string]*pipeConn{}}
	node := func(e Engine, cluster Cluster, r *relay.Router) (*resp.Server, *Handler) {
		cfg := Config{
			Version: "0.1.0", Addr: "127.0.0.1:5555", MaxClients: 10_000, Now: f.engine.now, Shutdown: func() {},
			Settings: map[string]string{"storage.sync": "always"}, Cluster: cluster, Relay: r,
		}
		change(&cfg)
		h, err := New(cfg, e)
		if err != nil {
			t.Fatal(err)
		}
		rc := resp.DefaultConfig()
		rc.AuthTimeout = 0
		s, err := resp.NewServer(rc, h)
		if err != nil {
			t.Fatal(err)
		}
		return s, h
	}
	f.leader, f.engine.handler = node(f.engine, testNode{f.engine}, relay.NewRouter(relay.Config{Wait: time.Second, Log: zerolog.Nop()}))
	f.router = relay.NewRouter(relay.Config{Wait: 2 * time.Second, Log: zerolog.Nop(), Dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { _ = relay.Serve(far, f.leader.ServeRelayed, zerolog.Nop()) }() // it ends with the test
		return near, nil
	}})
	ready := make(chan struct{})
	close(ready)
	f.follower, f.handler = node(noEngine{clock: f.engine, ready: ready}, testNode{}, f.router)
	// Users are the same at every node of a cluster.
	f.handler.users, f.handler.defaultAccount = f.engine.handler.users, f.engine.handler.defaultAccount
	f.router.Follow("leader")
	t.Cleanup(func() {
		for _, c := range f.conns {
			c.gone()
		}
		for _, h := range []*Handler{f.handler, f.engine.handler} {
			h.Close()
		}
		synctest.Wait()
		f.router.Close()
	})
	return f
}

// pipeConn is a client's side of a connection within the process.
type pipeConn struct {
	net.Conn

	mu     sync.Mutex
	got    []byte
	closed bool
}

func (f *followed) talk(name string) talker {
	if c := f.conns[name]; c != nil {
		return c
	}
	near, far := net.Pipe()
	c := &pipeConn{Conn: near}
	f.conns[name] = c
	go f.follower.ServeConn(&farConn{far, len(f.conns)})
	go func() {
		chunk := make([]byte, 4<<10)
		for {
			n, err := near.Read(chunk)
			c.mu.Lock()
			c.got = append(c.got, chunk[:n]...)
			c.closed = c.closed || err != nil
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	synctest.Wait()
	return c
}

// farConn is the other side, with the addresses that the scripts know.
type farConn struct {
	net.Conn
	number int
}

func (c *farConn) RemoteAddr() net.Addr { return (&fakeConn{id: uint64(c.number)}).RemoteAddr() } //nolint:gosec // a count
func (c *farConn) LocalAddr() net.Addr  { return (&fakeConn{}).LocalAddr() }

func (c *pipeConn) send(cmds ...[]string) {
	var b []byte
	for _, words := range cmds {
		b = append(b, commandOf(words...)...)
	}
	_, _ = c.Write(b) // a connection that is closed shows itself
	synctest.Wait()
}

func (c *pipeConn) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := string(c.got)
	c.got = nil
	return got
}

func (c *pipeConn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func (c *pipeConn) gone() {
	_ = c.Close() // the other side may have closed it
	synctest.Wait()
}

func (f *followed) settle() {
	f.engine.step(func() { f.engine.s.Do() })
	synctest.Wait()
}

func (f *followed) pass(d time.Duration) {
	time.Sleep(min(d, time.Minute)) // for ages in CLIENT LIST; nothing there waits for longer
	f.engine.step(func() { f.engine.s.Advance(d) })
	synctest.Wait()
}

func (f *followed) fail(err error) {
	f.engine.step(func() { f.engine.s.fail(err) })
	synctest.Wait()
}

// inBubble runs a test with simulated time.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// differs are the lines of scripts that are different at a node that does not lead, each with what is
// there in its place.
func differs() map[string][][2]string {
	return map[string][][2]string{
		// The clock of the test stands still while a script runs, so that another limit ends it.
		"script": {{"the time limit of 250ms is exceeded", "the instruction limit is exceeded"}},
	}
}

// turns finds the numbers of turns, tasks and commits in what redis-cli prints.
func turns() *regexp.Regexp {
	return regexp.MustCompile(`("(?:turns|tasks|commits)"(?: => |\n *\d+\) )\(integer\) )\d+`)
}

// Every script has the same replies, byte for byte, from a node that passes its commands on.
func TestScriptsThroughAFollower(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if strings.HasPrefix(name, "redis-") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			inBubble(t, func(t *testing.T) {
				t.Helper()
				got = playScript(t, string(text), func(change func(*Config)) scripted { return newFollowed(t, change) })
			})
			// What a connection submits and what its end submits are turns of their own.
			want := turns().ReplaceAllString(string(text), "$1<n>")
			got = turns().ReplaceAllString(got, "$1<n>")
			for _, d := range differs()[name] {
				if !strings.Contains(want, d[0]) {
					t.Errorf("%s has no %q", file, d[0])
				}
				want = strings.ReplaceAll(want, d[0], d[1])
			}
			if got != want {
				t.Errorf("%s is answered differently by a follower:\n%s", file, firstDifference(want, got))
			}
		})
	}
}

// fakeReplication is the state of a cluster that the test sets.
type fakeReplication struct {
	state ReplicationState
	n     int
	ask   time.Duration
	done  func(int)
	ended int
}

func (f *fakeReplication) State() ReplicationState { return f.state }

func (f *fakeReplication) Await(n int, timeout time.Duration, done func(int)) func() {
	f.n, f.ask, f.done = n, timeout, done
	return func() {
		if f.ended++; f.ended == 1 {
			done(0)
		}
	}
}

func TestTheRoleOfANodeIsTold(t *testing.T) {
	f := &fakeReplication{state: ReplicationState{Leading: true, Applied: 7, Replicas: []Replica{
		{Host: "10.0.0.2", Port: 5555, Online: true, Applied: 7}, {Host: "10.0.0.3", Port: 5556, Applied: 5, Heard: 3 * time.Second},
	}}}
	s := newServer(t, func(c *Config) { c.Replication = f })
	wants := func(command []string, lines ...string) {
		t.Helper()
		got := printed(t, s.do(t, command...))
		for _, line := range lines {
			if !strings.Contains(got, line) {
				t.Errorf("%s does not have %q:\n%s", command, line, got)
			}
		}
	}
	wants([]string{"ROLE"}, "1) \"master\"\n2) (integer) 7\n3) 1) 1) \"10.0.0.2\"\n      2) \"5555\"\n      3) \"7\"\n   2) 1) \"10.0.0.3\"\n")
	wants([]string{"INFO", "replication"}, `role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=5555,state=online,offset=7,lag=0\r\n`+
		`slave1:ip=10.0.0.3,port=5556,state=wait_bgsave,offset=5,lag=3\r\n`, `master_repl_offset:7\r\n`)
	wants([]string{"HELLO"}, "\"role\"\n12) \"master\"")
	f.state = ReplicationState{Host: "10.0.0.2", Port: 5555, LinkUp: true, Heard: 2 * time.Second, Applied: 6}
	wants([]string{"ROLE"}, "1) \"slave\"\n2) \"10.0.0.2\"\n3) (integer) 5555\n4) \"connected\"\n5) (integer) 6")
	wants([]string{"INFO", "replication"}, `role:slave\r\nmaster_host:10.0.0.2\r\nmaster_port:5555\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:2\r\n`,
		`slave_repl_offset:6\r\n`, `connected_slaves:0\r\n`)
	wants([]string{"HELLO"}, "\"role\"\n12) \"replica\"")
	f.state.LinkUp = false
	wants([]string{"ROLE"}, "4) \"connect\"")
	wants([]string{"INFO", "replication"}, `master_link_status:down\r\n`)
}

func TestWaitWaitsForReplicas(t *testing.T) {
	f := &fakeReplication{state: ReplicationState{Leading: true, Applied: 7, Replicas: []Replica{{Applied: 7}, {Applied: 6}}}}
	s := newServer(t, func(c *Config) { c.Replication = f })
	c := s.connect("")
	c.do("FILA.QUEUE", "CREATE", "orders")
	c.send([]string{"FILA.LEASE", "orders", "BLOCK", "1000"}, []string{"WAIT", "2", "500"}, []string{"PING"})
	if f.done != nil {
		t.Error("it waits before the commands in front of it are answered")
	}
	s.Advance(time.Second)
	s.settle()
	if got := c.received(); got != "*0\r\n" || f.done == nil || f.n != 2 || f.ask != 500*time.Millisecond {
		t.Fatalf("got %q, waits for %d nodes for %v", got, f.n, f.ask)
	}
	f.done(1)
	s.settle()
	if got := c.received(); got != ":1\r\n+PONG\r\n" {
		t.Errorf("got %q", got)
	}
	if got := c.do("MULTI") + c.do("WAIT", "2", "0") + c.do("EXEC"); got != "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n" {
		t.Errorf("in a transaction: %q", got)
	}
	c.do("CLIENT", "REPLY", "SKIP")
	c.do("WAIT", "1", "0")
	f.done(2)
	s.settle()
	if got := c.received(); got != "" {
		t.Errorf("with replies off: %q", got)
	}
	c.do("WAIT", "2", "0")
	c.gone() // it does not wait without end
	if f.ended != 1 || len(c.window) != 0 {
		t.Errorf("ended %d times, %d replies are open", f.ended, len(c.window))
	}
}

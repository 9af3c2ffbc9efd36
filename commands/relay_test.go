package commands

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/hook"
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

func (l *lockedEngine) PrepareGroup(req *engine.OpenGroup) error {
	return locked(l, func() error { return l.s.PrepareGroup(req) })
}

func (l *lockedEngine) PreparePublish(req *engine.Publish) error {
	return locked(l, func() error { return l.s.PreparePublish(req) })
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

func (l *lockedEngine) Load(ds []*engine.Delivery) (read int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s.Load(ds)
}

func (l *lockedEngine) LoadResult(r *engine.Result) error {
	return locked(l, func() error { return l.s.LoadResult(r) })
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
		go func() { _ = relay.Serve(far, nil, f.leader.ServeRelayed, zerolog.Nop()) }() // it ends with the test
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
	go f.follower.ServeConn(&farConn{far, len(f.conns)}, 0)
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

func (c *farConn) RemoteAddr() net.Addr { return (&fakeConn{id: uint64(c.number)}).RemoteAddr() }
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
		// A connection of the tests is active when it is made, which that at the leader is with its first command.
		"history": {{"      10) (integer) 20000\n      11) \"consumer\"", "      10) (integer) 0\n      11) \"consumer\""}},
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
	for i, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		if strings.HasPrefix(name, "redis-") {
			continue
		}
		if raced && testing.Short() && i%10 != 0 {
			continue // the goroutines are the same with each script, and the race detector takes long
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

	refreshed int // calls of Refresh

	asked string // of an operator
	err   error
	found []Verified
}

func (f *fakeReplication) State() ReplicationState { return f.state }

func (f *fakeReplication) Refresh(done func()) func() {
	f.refreshed++
	done()
	return func() {}
}

func (f *fakeReplication) Leader() (Member, bool) {
	m := f.state.leader()
	return m, m.ID != ""
}

func (f *fakeReplication) Remove(node string, done func(error)) {
	f.asked = "remove " + node
	done(f.err)
}

func (f *fakeReplication) Learner(node string, done func(error)) {
	f.asked = "learner " + node
	done(f.err)
}

func (f *fakeReplication) Voter(node string, done func(error)) {
	f.asked = "voter " + node
	done(f.err)
}

func (f *fakeReplication) Transfer(to string, done func(error)) {
	f.asked = "transfer " + to
	done(f.err)
}

func (f *fakeReplication) Verify(done func([]Verified, error)) {
	f.asked = "verify"
	done(f.found, f.err)
}

func (f *fakeReplication) Await(n int, timeout time.Duration, done func(int)) func() {
	f.n, f.ask, f.done = n, timeout, done
	return func() {
		if f.ended++; f.ended == 1 {
			done(0)
		}
	}
}

// crowd is a cluster of as many nodes as there may be, which have much to say.
type crowd struct{ fakeReplication }

func (*crowd) State() ReplicationState {
	long := strings.Repeat("x", 2*reasonMax)
	r := ReplicationState{Cluster: "31", Name: "fila", Node: "node-0", Leader: "node-1" + long[:57]}
	for i := range membersMax {
		r.Members = append(r.Members, Member{ID: "node-" + strconv.Itoa(i) + long[:57], Addr: long[:260], Host: long[:253], State: MemberReadOnly, Version: "1.0", Trouble: long, Port: 65535, ClusterPort: 65535, SentinelPort: 65535})
	}
	return r
}

func (*crowd) Await(_ int, _ time.Duration, done func(int)) func() {
	done(0)
	return func() {}
}

func (*crowd) Learner(_ string, done func(error))  { done(nil) }
func (*crowd) Voter(_ string, done func(error))    { done(nil) }
func (*crowd) Remove(_ string, done func(error))   { done(nil) }
func (*crowd) Transfer(_ string, done func(error)) { done(nil) }

func (c *crowd) Verify(done func([]Verified, error)) {
	r := c.State()
	var all []Verified
	for i := range r.Members {
		all = append(all, Verified{Node: r.Members[i].ID, Result: "unknown", Digest: strings.Repeat("f", 64), Reason: r.Members[i].Trouble})
	}
	done(all, nil)
}

// threeNodes is a cluster of three as its leader, a, knows it.
func threeNodes() ReplicationState {
	return ReplicationState{
		Cluster: "31", Name: "test", Node: "a", Leader: "a", Leading: true, LinkUp: true, Term: 4, Commit: 9, Applied: 7, Failovers: 2,
		Members: []Member{
			{ID: "a", Addr: "10.0.0.1:5571", Voter: true, State: MemberOnline, Host: "10.0.0.1", Port: 5555, Version: "1.0", Applied: 7, LogBytes: 4096},
			{ID: "b", Addr: "10.0.0.2:5571", Voter: true, State: MemberOnline, Host: "10.0.0.2", Port: 5555, Version: "1.0", Applied: 7, Heard: time.Second, Skew: -3 * time.Millisecond},
			{ID: "c", Addr: "10.0.0.3:5571", State: MemberBehind, Host: "10.0.0.3", Port: 5556, Version: "1.0", Applied: 5, Behind: 2, Late: 6 * time.Second},
		},
	}
}

// wantParts fails unless the reply to a command has all of these.
func wantParts(t *testing.T, s *server, command []string, parts ...string) {
	t.Helper()
	got := printed(t, s.do(t, command...))
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("%s does not have %q:\n%s", command, part, got)
		}
	}
}

// A leader that is being stopped executes nothing more: what it is sent then waits for the next one.
func TestACommandForALeaderThatIsBeingStoppedHasNoEffect(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		t.Helper()
		f := newFollowed(t, func(*Config) {})
		c := f.talk("")
		waiting := f.talk("waiting")
		c.send([]string{"FILA.QUEUE", "CREATE", "q"})
		c.send([]string{"FILA.QUEUE", "CREATE", "empty"})
		f.settle()
		c.received()
		waiting.send([]string{"FILA.LEASE", "empty", "BLOCK", "10000"})
		f.settle()
		stopped := make(chan error, 1)
		go func() { stopped <- f.leader.Shutdown(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
		c.send([]string{"FILA.ENQUEUE", "q", "x"})              // on a stream that is not read any more, or on a new one
		waiting.send([]string{"FILA.ENQUEUE", "empty", "late"}) // behind a command in progress
		f.pass(10 * time.Second)                                // ends the lease
		f.settle()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := c.received(); !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("an enqueue is answered %q", got)
		}
		if got := waiting.received(); !strings.Contains(got, "\r\n-LOADING ") {
			t.Errorf("a lease and an enqueue are answered %q", got)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// A node that does not lead yet refuses the transaction of another node's client. What it goes on to
// execute for that client is no part of it.
func TestATransactionThatIsRefusedIsOver(t *testing.T) {
	var node testNode
	s := newServer(t, func(c *Config) {
		c.Cluster, c.Relay = &node, relay.NewRouter(relay.Config{Wait: time.Second, Log: zerolog.Nop()})
	})
	t.Cleanup(s.handler.Close)
	c := &fakeConn{server: s, id: 1, created: s.Now(), relayed: true}
	c.session, s.conns["relayed"] = s.handler.open(c), c
	const loading = "-LOADING another node is taking over, try again in a moment\r\n"
	for _, step := range [][2]string{
		{"MULTI", "+OK\r\n"},
		{"FILA.QUEUE CREATE refused", "+QUEUED\r\n"},
		{"EXEC", loading},
		{"FILA.QUEUE CREATE also-refused", loading},
		{"leads", ""},
		{"FILA.QUEUE CREATE orders", "+OK\r\n"},
		{"EXEC", "-ERR EXEC without MULTI\r\n"},
		{"KEYS *", "*2\r\n$6\r\norders\r\n$10\r\norders.dlq\r\n"},
	} {
		if step[0] == "leads" {
			node.e = s
		} else if got := c.do(strings.Fields(step[0])...); got != step[1] {
			t.Errorf("%s answers %q, want %q", step[0], got, step[1])
		}
	}
}

func TestTheRoleOfANodeIsTold(t *testing.T) {
	f := &fakeReplication{state: threeNodes()}
	s := newServer(t, func(c *Config) { c.Replication = f })
	wantParts(t, s, []string{"ROLE"}, "1) \"master\"\n2) (integer) 7\n3) 1) 1) \"10.0.0.2\"\n      2) \"5555\"\n      3) \"7\"\n   2) 1) \"10.0.0.3\"\n")
	wantParts(t, s, []string{"INFO", "replication"}, `role:master\r\nconnected_slaves:2\r\nslave0:ip=10.0.0.2,port=5555,state=online,offset=7,lag=0\r\n`+
		`slave1:ip=10.0.0.3,port=5556,state=online,offset=5,lag=6\r\n`, `master_repl_offset:7\r\n`)
	wantParts(t, s, []string{"HELLO"}, "\"mode\"\n10) \"standalone\"", "\"role\"\n12) \"master\"")
	id := replicationID("31")
	wantParts(t, s, []string{"INFO", "replication"}, "master_replid:"+id)
	f.state.Node, f.state.Leading, f.state.Heard, f.state.Applied = "b", false, 2*time.Second, 6
	wantParts(t, s, []string{"ROLE"}, "1) \"slave\"\n2) \"10.0.0.1\"\n3) (integer) 5555\n4) \"connected\"\n5) (integer) 6")
	wantParts(t, s, []string{"INFO", "replication"}, `role:slave\r\nmaster_host:10.0.0.1\r\nmaster_port:5555\r\nmaster_link_status:up\r\nmaster_last_io_seconds_ago:2\r\n`,
		`slave_repl_offset:6\r\n`, `connected_slaves:0\r\n`, "master_replid:"+id)
	wantParts(t, s, []string{"HELLO"}, "\"role\"\n12) \"replica\"")
	f.state.LinkUp, f.state.Leader = false, ""
	wantParts(t, s, []string{"ROLE"}, "2) \"\"\n3) (integer) 0\n4) \"connect\"")
	wantParts(t, s, []string{"INFO", "replication"}, `master_link_status:down\r\n`)
}

func TestANodeThatIsDownIsNoReplica(t *testing.T) {
	for state, connected := range map[MemberState]bool{MemberOnline: true, MemberBehind: true, MemberReadOnly: true, MemberJoining: false, MemberDown: false} {
		f := &fakeReplication{state: threeNodes()}
		f.state.Members[1].State = state
		s := newServer(t, func(c *Config) { c.Replication = f })
		want := map[bool]string{true: "connected_slaves:2\\r\\nslave0:ip=10.0.0.2,", false: "connected_slaves:1\\r\\nslave0:ip=10.0.0.3,"}[connected]
		wantParts(t, s, []string{"INFO", "replication"}, want)
	}
}

func TestInfoTellsAboutTheCluster(t *testing.T) {
	alone := newServer(t, func(*Config) {})
	if got := printed(t, alone.do(t, "INFO", "cluster")); got != `"# Cluster\r\ncluster_enabled:0\r\n"` {
		t.Errorf("without a cluster: %q", got)
	}
	f := &fakeReplication{state: threeNodes()}
	s := newServer(t, func(c *Config) { c.Replication = f })
	wantParts(t, s, []string{"INFO", "cluster"}, `cluster_enabled:0\r\ncluster_state:ok\r\ncluster_id:31\r\ncluster_name:test\r\nnode:a\r\nnode_state:online\r\nterm:4\r\nleader:a\r\n`+
		`members:3\r\nvoters:2\r\napplied_index:7\r\ncommit_index:9\r\nbehind_entries:0\r\nbehind_ms:0\r\n`,
		`failovers:2\r\nlog_bytes:4096\r\n`, `link_up:1\r\nclock_skew_ms:3\r\nnode_writable:1\r\n`)
	f.state.Node, f.state.Leader = "c", ""
	wantParts(t, s, []string{"INFO", "cluster"}, `cluster_state:fail\r\n`, `node_state:behind\r\n`, `behind_entries:2\r\nbehind_ms:6000\r\n`)
	f.state.Members[2].State = MemberReadOnly
	wantParts(t, s, []string{"INFO", "cluster"}, `node_writable:0\r\n`)
}

func TestWaitWaitsForReplicas(t *testing.T) {
	f := &fakeReplication{state: threeNodes()}
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

func TestOperatorsSeeEachNode(t *testing.T) {
	f := &fakeReplication{state: threeNodes()}
	f.state.Members[0].ClusterPort, f.state.Members[0].SentinelTLSPort = 7000, 26380
	f.state.Members[2].Trouble, f.state.Members[2].Learner = "its disk is slow", true
	s := newServer(t, func(c *Config) { c.Replication = f })
	wantParts(t, s, []string{"FILA.CLUSTER", "STATUS"},
		"1) \"id\"\n    2) \"a\"\n    3) \"role\"\n    4) \"leader\"\n    5) \"state\"\n    6) \"online\"\n    7) \"address\"\n    8) \"10.0.0.1:5571\"\n    9) \"client\"\n   10) \"10.0.0.1:5555\"",
		"\"b\"\n    3) \"role\"\n    4) \"voter\"", "\"c\"\n    3) \"role\"\n    4) \"learner\"\n    5) \"state\"\n    6) \"behind\"", "\"its disk is slow\"\n   29) \"named\"\n   30) (integer) 1", "\"named\"\n   30) (integer) 0\n   31) \"ports\"\n   32) \"plain cluster sentinel_tls\"")
	f.state.Members[2].Heard = -1
	wantParts(t, s, []string{"FILA.CLUSTER", "STATUS"}, "\"last_contact_ms\"\n   18) (integer) 1000", "\"last_contact_ms\"\n   18) (integer) -1")
	f.state.Cluster, f.state.Leader, f.state.Members[2].Host = "", "", ""
	wantParts(t, s, []string{"FILA.CLUSTER", "STATUS"}, "\"role\"\n    4) \"none\"", "\"client\"\n   10) \"\"")
}

func TestOperatorsReachTheLeaderThroughAnyNode(t *testing.T) {
	f := &fakeReplication{state: threeNodes(), found: []Verified{{Node: "a"}}}
	s := newServer(t, func(c *Config) { c.Replication = f })
	c := s.connect("three")
	c.do("HELLO", "3")
	if got := c.do("FILA.CLUSTER", "VERIFY"); !strings.HasPrefix(got, "*1\r\n%5\r\n") {
		t.Errorf("in RESP3: %q", got)
	}
	for _, x := range []struct{ command, asked, want, refused string }{
		{"FILA.CLUSTER REMOVE c", "remove c", "+OK\r\n", "-ERR node c leads\r\n"},
		{"FILA.CLUSTER LEARNER c", "learner c", "+OK\r\n", "-ERR node c leads\r\n"},
		{"FILA.CLUSTER VOTER c", "voter c", "+OK\r\n", "-ERR node c leads\r\n"},
		{"FILA.CLUSTER TRANSFER b", "transfer b", "+OK\r\n", "-ERR node c leads\r\n"},
		{"FILA.CLUSTER TRANSFER", "transfer ", "+OK\r\n", "-ERR node c leads\r\n"},
		{"FILA.CLUSTER VERIFY", "verify", "*1\r\n*10\r\n$2\r\nid\r\n$1\r\na\r\n$6\r\nresult\r\n$5\r\nequal\r\n$6\r\ndigest\r\n$2\r\nd1\r\n$7\r\nrecords\r\n:9\r\n$6\r\nreason\r\n$0\r\n\r\n", "-ERR node c leads\r\n"},
	} {
		f.err, f.found = nil, []Verified{{Node: "a", Result: "equal", Digest: "d1", Records: 9}}
		if got := s.do(t, strings.Fields(x.command)...); got != x.want || f.asked != x.asked {
			t.Errorf("%s: %q, asked %q", x.command, got, f.asked)
		}
		f.err = errors.New("node c leads")
		if got := s.do(t, strings.Fields(x.command)...); got != x.refused {
			t.Errorf("%s: %q", x.command, got)
		}
		f.err = command.Refuse("LOADING", "later")
		if got := s.do(t, strings.Fields(x.command)...); got != "-LOADING later\r\n" {
			t.Errorf("%s: %q", x.command, got)
		}
	}
}

// A transaction whose client has gone is concluded without a reply, from which nothing is written.
func TestAnEmptyReplyToATransactionIsNothing(t *testing.T) {
	var w resp.Writer
	x := splice{w: &w, exec: &execCall{}}
	x.take(nil)
	if got := w.Take(); len(got) != 0 {
		t.Errorf("%q is written", got)
	}
}

// A node that goes on with a command of a leader that was lost sends what is left of its BLOCK.
func TestWhatIsLeftOfABlockIsFoundAmongTheOptions(t *testing.T) {
	c := newServer(t, func(*Config) {}).connect("").session
	for command, want := range map[string]string{
		"FILA.LEASE orders BLOCK 5000":                                  "FILA.LEASE orders BLOCK 3000",
		"FILA.LEASE orders SAMEKEY BLOCK 5000":                          "FILA.LEASE orders SAMEKEY BLOCK 3000",
		"FILA.LEASE orders COUNT 3 samekey CONSUMER SAMEKEY BLOCK 5000": "FILA.LEASE orders COUNT 3 samekey CONSUMER SAMEKEY BLOCK 3000",
		"FILA.LEASE BLOCK CONSUMER BLOCK BLOCK 5000 SAMEKEY":            "FILA.LEASE BLOCK CONSUMER BLOCK BLOCK 3000 SAMEKEY",
		"FILA.MLEASE 2 BLOCK SAMEKEY SAMEKEY BLOCK 0 COUNT 2":           "FILA.MLEASE 2 BLOCK SAMEKEY SAMEKEY BLOCK 0 COUNT 2",
		"FILA.MLEASE 1 SAMEKEY BLOCK 5000 SAMEKEY":                      "FILA.MLEASE 1 SAMEKEY BLOCK 3000 SAMEKEY",
	} {
		var words, wanted [][]byte
		for word := range strings.FieldsSeq(command) {
			words = append(words, []byte(word))
		}
		for word := range strings.FieldsSeq(want) {
			wanted = append(wanted, []byte(word))
		}
		cmd, args, err := c.handler.table.Lookup(words)
		if err == nil {
			err = c.in.Scan(&cmd.Syntax, args)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := restOf(words, len(words)-len(args), &c.in)(2 * time.Second); string(got) != string(relay.AppendCommand(nil, wanted...)) {
			t.Errorf("%s: %q", command, got)
		}
	}
}

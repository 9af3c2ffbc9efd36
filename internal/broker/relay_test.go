package broker

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/engine/loop"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/resp"
	"github.com/faisca/fila/storage"
)

// relayNode is a node of a test: everything but the consensus, which the test stands for.
type relayNode struct {
	*seat
	name    string
	router  *relay.Router
	server  *resp.Server
	handler *commands.Handler
	engine  *loop.Engine // nil: it does not lead
	running chan error
}

// relayPair is two nodes with one store, since what one has written the other would have, too. One of
// them may lead.
type relayPair struct {
	t     *testing.T
	store *storage.Memory
	nodes map[string]*relayNode

	mu      sync.Mutex
	leader  string // the node that leads; "": none
	links   []net.Conn
	budget  int // bytes after which the next link breaks; -1: none does
	clients []*relayClient
	behind  map[string]bool // nodes that do not get changes of the users
}

const pairWait = 2 * time.Second

// withPair runs a test with simulated time. a leads, b follows.
func withPair(t *testing.T, test func(p *relayPair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &relayPair{t: t, store: storage.NewMemory(), nodes: map[string]*relayNode{}, budget: -1, behind: map[string]bool{}}
		for _, name := range []string{"a", "b"} {
			p.nodes[name] = p.newNode(name)
		}
		p.lead("a")
		defer p.end()
		test(p)
	})
}

func (p *relayPair) newNode(name string) *relayNode {
	p.t.Helper()
	n := &relayNode{name: name}
	n.router = relay.NewRouter(relay.Config{
		Wait: pairWait, Log: zerolog.Nop(), Dial: p.dial, Serve: func(c net.Conn) { n.server.ServeRelayed(c) },
	})
	n.seat = newSeat(pairWait, n.router)
	var err error
	n.handler, err = commands.New(commands.Config{
		Version: "0.1.0", MaxClients: 100, Now: time.Now, Cluster: n.seat, Relay: n.router, UserStore: p.users(name),
		Replication: pairReplication{p: p, self: name},
	}, n.seat)
	if err != nil {
		p.t.Fatal(err)
	}
	rc := resp.DefaultConfig()
	rc.MaxClients = 100
	if n.server, err = resp.NewServer(rc, n.handler); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// dial opens a link to a node.
func (p *relayPair) dial(_ context.Context, name string) (net.Conn, error) {
	near, far := net.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = append(p.links, near)
	n := p.nodes[name]
	link := &fragileConn{Conn: near, left: p.budget}
	p.budget = -1
	go func() { _ = relay.Serve(far, nil, n.server.ServeRelayed, zerolog.Nop()) }() // it ends with the test
	return link, nil
}

// fragileConn breaks when a number of bytes has gone through it.
type fragileConn struct {
	net.Conn
	mu   sync.Mutex
	left int // -1: it does not break
}

func (c *fragileConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return c.use(n), err
}

func (c *fragileConn) Write(b []byte) (int, error) {
	n := c.use(len(b))
	n, err := c.Conn.Write(b[:n])
	if err == nil && n < len(b) {
		err = net.ErrClosed
	}
	return n, err
}

// use returns how many of n bytes get through.
func (c *fragileConn) use(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left < 0 {
		return n
	}
	n = min(n, c.left)
	if c.left -= n; c.left == 0 {
		c.left = -1
		_ = c.Conn.Close() // the test waits for what follows
	}
	return n
}

// lead makes a node the leader, with an engine over the store.
func (p *relayPair) lead(name string) {
	p.t.Helper()
	n := p.nodes[name]
	cfg := engine.DefaultConfig()
	cfg.Start = n.Start()
	e, err := loop.New(cfg, p.store)
	if err != nil {
		p.t.Fatal(err)
	}
	n.engine, n.running = e, make(chan error, 1)
	n.Seat(e)
	go func() { n.running <- e.Run(context.Background()) }()
	p.led(name)
	for other, o := range p.nodes {
		if other != name {
			o.Follow(name)
		}
	}
	synctest.Wait()
}

// led notes which node leads, and tells all of them.
func (p *relayPair) led(name string) {
	p.mu.Lock()
	p.leader = name
	p.mu.Unlock()
	for _, n := range p.nodes {
		n.handler.LeaderChanged()
	}
}

// pairReplication is what a node knows of the pair. Other methods panic.
type pairReplication struct {
	commands.Replication

	p    *relayPair
	self string
}

func (r pairReplication) State() commands.ReplicationState {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	s := commands.ReplicationState{Cluster: "31", Name: "fila", Node: r.self, Leader: r.p.leader, Leading: r.self == r.p.leader}
	for _, id := range []string{"a", "b"} {
		s.Members = append(s.Members, commands.Member{
			ID: id, Host: id + ".test", Port: 5555, ClusterPort: 7000, SentinelPort: 26379, Voter: true, State: commands.MemberOnline,
		})
	}
	return s
}

func (r pairReplication) Leader() (commands.Member, bool) {
	s := r.State()
	for _, m := range s.Members {
		if m.ID == s.Leader {
			return m, true
		}
	}
	return commands.Member{}, false
}

func (pairReplication) Await(_ int, _ time.Duration, done func(int)) func() {
	done(1)
	return func() {}
}

// stop ends the engine of a node.
func (p *relayPair) stop(name string) {
	p.t.Helper()
	n := p.nodes[name]
	n.engine.Stop()
	if err := <-n.running; err != nil {
		p.t.Error(err)
	}
	n.engine = nil
	n.Vacate()
}

func (p *relayPair) end() {
	for _, c := range p.clients {
		c.close()
	}
	for _, n := range p.nodes {
		if n.engine != nil {
			p.stop(n.name)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a reply that never comes
	defer cancel()
	for _, n := range p.nodes {
		if err := n.server.Shutdown(ctx); err != nil {
			p.t.Error(err)
		}
		n.handler.Close()
		n.router.Close()
	}
	time.Sleep(time.Second) // links to earlier leaders end
}

// relayClient is a client of a node.
type relayClient struct {
	net.Conn
	p *relayPair

	mu   sync.Mutex
	got  []byte
	over bool
}

func (p *relayPair) client(node string) *relayClient {
	return p.clientOf(node, commands.ModeStandalone)
}

// clientOf is a client of a port of a mode.
func (p *relayPair) clientOf(node string, mode resp.Mode) *relayClient {
	near, far := net.Pipe()
	c := &relayClient{Conn: near, p: p}
	p.clients = append(p.clients, c)
	go p.nodes[node].server.ServeConn(far, mode)
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			n, err := near.Read(chunk)
			c.mu.Lock()
			c.got = append(c.got, chunk[:n]...)
			c.over = c.over || err != nil
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

func (c *relayClient) close() { _ = c.Conn.Close() } // it may be closed already

// send sends commands in one packet. Words are separated by blanks.
func (c *relayClient) send(lines ...string) {
	var b []byte
	for _, line := range lines {
		var words [][]byte
		for w := range strings.FieldsSeq(line) {
			words = append(words, []byte(w))
		}
		b = relay.AppendCommand(b, words...)
	}
	_, _ = c.Write(b) // a broken connection shows in the replies
}

// received returns what has come so far.
func (c *relayClient) received() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := string(c.got)
	c.got = nil
	return got
}

// do sends commands in one packet and returns what came back.
func (c *relayClient) do(lines ...string) string {
	c.send(lines...)
	return c.received()
}

func (c *relayClient) want(want string, lines ...string) {
	c.p.t.Helper()
	if got := c.do(lines...); got != want {
		c.p.t.Errorf("%q answers %q, want %q", lines, clipped(got), clipped(want))
	}
}

func clipped(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%s... (%d bytes)", s[:most], len(s))
	}
	return s
}

// depth returns how many messages a queue has, as the leader says.
func (p *relayPair) depth(queue string) int {
	p.t.Helper()
	for name, n := range p.nodes {
		if n.engine == nil {
			continue
		}
		c := p.client(name)
		got := c.do("FILA.STATS " + queue)
		c.close()
		_, rest, found := strings.Cut(got, "$5\r\nready\r\n:")
		text, _, _ := strings.Cut(rest, "\r\n")
		depth, err := strconv.Atoi(text)
		if !found || err != nil {
			p.t.Fatalf("no depth in %q", got)
		}
		return depth
	}
	p.t.Fatal("no leader")
	return 0
}

func TestLocalAndForwardedCommandsAreAnsweredInOrder(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c := p.client("b")
		c.want("+OK\r\n+PONG\r\n:0\r\n$1\r\nx\r\n:1\r\n*0\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n:2\r\n",
			"FILA.QUEUE CREATE orders NODLQ", "PING", "EXISTS nosuch", "ECHO x", "DBSIZE", "FILA.LEASE orders", "NOSUCH", "EXISTS orders orders")
		got := c.do("FILA.STATS orders", "HELLO 3", "FILA.STATS orders", "CLIENT SETNAME worker", "HELLO 2", "FILA.STATS orders")
		var kinds []byte
		for line := range strings.SplitSeq(got, "\r\n") {
			if strings.HasPrefix(line, "%") || strings.HasPrefix(line, "*") && len(line) > 2 {
				kinds = append(kinds, line[0])
			}
		}
		if !strings.HasPrefix(got, "*") || !slices.Contains(kinds, '%') || kinds[len(kinds)-1] != '*' {
			t.Errorf("not in the protocol of each command: %q", got)
		}
		if got := p.client("a").do("CLIENT LIST"); !strings.Contains(got, "name=worker") {
			t.Errorf("the leader does not know the name of the client: %q", got)
		}
	})
}

func TestALeaseWaitsAtTheLeader(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c, other := p.client("b"), p.client("a")
		c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		c.send("FILA.LEASE orders BLOCK 60000")
		time.Sleep(time.Second)
		if got := c.received(); got != "" {
			t.Fatalf("it does not wait: %q", got)
		}
		if got := p.client("b").do("CLIENT LIST"); !strings.Contains(got, "flags=b") {
			t.Errorf("no client waits: %q", got)
		}
		other.do("FILA.ENQUEUE orders hello")
		if got := c.received(); !strings.Contains(got, "hello") {
			t.Errorf("got %q", got)
		}
	})
}

// Whether a client leaves before or while the leader gives it a message, the message is there for the
// next, in its first attempt.
func TestAClientThatLeavesGivesItsLeasesBack(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c, other := p.client("b"), p.client("a")
				c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
				c.send("FILA.LEASE orders BLOCK 0")
				synctest.Wait()
				if before {
					c.close()
					synctest.Wait()
					other.do("FILA.ENQUEUE orders hello")
				} else { // in the same moment
					go c.close()
					other.send("FILA.ENQUEUE orders hello")
				}
				synctest.Wait()
				other.received()
				if strings.Contains(c.received(), "hello") {
					return // it had the message before it left
				}
				got := other.do("FILA.LEASE orders")
				if !strings.Contains(got, "hello") || !strings.Contains(got, "default\r\n:1\r\n:") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// A reply to a lease that has come as far as the follower, and whose client is gone, is returned.
func TestALeaseThatTheClientDoesNotReadIsReturned(t *testing.T) {
	for _, size := range []int{10, 200 << 10} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				near, far := net.Pipe()
				go p.nodes["b"].server.ServeConn(far, commands.ModeStandalone)
				other := p.client("a")
				other.do("FILA.QUEUE CREATE orders NODLQ", "FILA.ENQUEUE orders "+strings.Repeat("x", size), "FILA.ENQUEUE orders y")
				if _, err := near.Write(relay.AppendCommand(nil, []byte("FILA.LEASE"), []byte("orders"), []byte("COUNT"), []byte("2"))); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the reply waits for a client that does not read
				if got := other.do("FILA.LEASE orders"); got != "*0\r\n" {
					t.Fatalf("not leased: %q", clipped(got))
				}
				_ = near.Close()
				synctest.Wait()
				if got := other.do("FILA.LEASE orders COUNT 2"); strings.Count(got, "default\r\n:1\r\n:") != 2 {
					t.Errorf("not returned: %q", clipped(got))
				}
			})
		})
	}
}

func TestATransactionGoesOverAsOnePiece(t *testing.T) {
	for _, change := range []bool{false, true} {
		t.Run(fmt.Sprint(change), func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c := p.client("b")
				c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
				c.want("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n", "MULTI", "PING", "EXISTS orders", "ECHO x", "EXISTS nosuch", "PING y")
				if change {
					p.handOver("a", "b")
				}
				c.want("*5\r\n+PONG\r\n:1\r\n$1\r\nx\r\n:0\r\n$1\r\ny\r\n+PONG\r\n", "EXEC", "PING")
				c.want("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+PONG\r\n$1\r\nx\r\n", "MULTI", "PING", "ECHO x", "EXEC")
				c.want("-ERR EXEC without MULTI\r\n", "EXEC")
				c.want("+OK\r\n-ERR unknown command 'NOSUCH', with args beginning with: \r\n-EXECABORT Transaction discarded because of previous errors.\r\n", "MULTI", "NOSUCH", "EXEC")
				p.client("b").do("MULTI", "FILA.ENQUEUE orders 1", "FILA.ENQUEUE orders 2", "FILA.LEASE orders", "EXEC")
				if n := p.depth("orders"); n != 1 {
					t.Errorf("%d messages are ready, want 1 of 2", n)
				}
			})
		})
	}
}

func TestEventsReachSubscribersOfAFollower(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c, other := p.client("b"), p.client("a")
		other.do("FILA.QUEUE CREATE orders NODLQ")
		c.do("SUBSCRIBE fila:orders:enqueued fila::lost", "PSUBSCRIBE fila:*:deleted")
		other.do("FILA.ENQUEUE orders hello", "FILA.QUEUE DELETE orders FORCE")
		if got := c.received(); strings.Count(got, "$7\r\nmessage\r\n") != 1 || strings.Count(got, "$8\r\npmessage\r\n") != 1 || !strings.Contains(got, `"event":"enqueued"`) {
			t.Errorf("got %q", got)
		}
		if got := other.do("PUBSUB NUMPAT", "PUBSUB CHANNELS"); got != ":0\r\n*0\r\n" {
			t.Errorf("the leader shows subscriptions of another node: %q", got)
		}
		p.handOver("a", "b") // this node makes the events itself
		other.do("FILA.QUEUE CREATE mails NODLQ", "FILA.QUEUE DELETE mails")
		if got := c.received(); strings.Count(got, `"event":"lost"`) != 1 || strings.Count(got, "fila:mails:deleted") != 1 {
			t.Errorf("after this node has taken over: %q", got)
		}
		p.handOver("b", "a")
		synctest.Wait()
		other.do("FILA.QUEUE CREATE mails NODLQ", "FILA.QUEUE DELETE mails")
		if got := c.received(); !strings.Contains(got, `"event":"lost"`) || strings.Count(got, "fila:mails:deleted") != 1 {
			t.Errorf("after the other node has taken over: %q", got)
		}
		c.do("UNSUBSCRIBE", "PUNSUBSCRIBE")
		other.do("FILA.QUEUE CREATE mails NODLQ", "FILA.QUEUE DELETE mails")
		if got := c.received(); got != "" {
			t.Errorf("after the end: %q", got)
		}
	})
}

func TestLargeMessagesGoThroughAFollower(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c := p.client("b")
		c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		large := strings.Repeat("x", 3<<20)
		for range 3 {
			c.do("FILA.ENQUEUE orders " + large)
		}
		got := c.do("FILA.LEASE orders COUNT 3", "PING")
		if strings.Count(got, large) != 3 || !strings.HasSuffix(got, "+PONG\r\n") {
			t.Errorf("got %d bytes: %q", len(got), clipped(got))
		}
	})
}

func TestUnblockReachesAClientOfThisNode(t *testing.T) {
	withPair(t, func(p *relayPair) {
		p.client("a").do("PING") // the ids of the two nodes are different
		c, operator := p.client("b"), p.client("b")
		id := strings.Trim(c.do("CLIENT ID"), ":\r\n")
		c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		c.send("FILA.LEASE orders BLOCK 0")
		synctest.Wait()
		operator.want(":0\r\n:1\r\n", "CLIENT UNBLOCK 999", "CLIENT UNBLOCK "+id)
		if got := c.received(); got != "*0\r\n" {
			t.Errorf("got %q", got)
		}
		operator.want(":0\r\n", "CLIENT UNBLOCK "+id)
	})
}

func TestALongTransactionHasItsLocalRepliesInPlace(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c := p.client("b")
		large := strings.Repeat("x", 300<<10)
		c.do("FILA.QUEUE CREATE orders NODLQ", "FILA.ENQUEUE orders "+large, "FILA.ENQUEUE orders "+large, "FILA.ENQUEUE orders y")
		got := c.do("MULTI", "PING", "FILA.LEASE orders", "ECHO between", "FILA.LEASE orders COUNT 2", "PING last", "EXEC", "PING")
		_, got, _ = strings.Cut(got, "+QUEUED\r\n*5\r\n")
		places := []string{"+PONG\r\n*1\r\n", large, "$7\r\nbetween\r\n*2\r\n", large, "\r\ny\r\n", "$4\r\nlast\r\n+PONG\r\n"}
		for _, part := range places {
			_, rest, found := strings.Cut(got, part)
			if !found {
				t.Fatalf("no %q in %q", clipped(part), clipped(got))
			}
			got = rest
		}
		if got != "" {
			t.Errorf("%q is left", clipped(got))
		}
	})
}

// Messages whose reply is turned off, or lost within a transaction, are there for the next client.
func TestLeasesThatAreNotRepliedToGoBack(t *testing.T) {
	for name, send := range map[string]func(p *relayPair, c *relayClient){
		"replies are off": func(_ *relayPair, c *relayClient) { c.do("CLIENT REPLY OFF", "FILA.LEASE orders COUNT 2") },
		"a transaction": func(p *relayPair, _ *relayClient) {
			near, far := net.Pipe()
			go p.nodes["b"].server.ServeConn(far, commands.ModeStandalone)
			b := relay.AppendCommand(nil, []byte("MULTI"))
			b = relay.AppendCommand(b, []byte("DBSIZE"))
			b = relay.AppendCommand(b, []byte("PING"))
			b = relay.AppendCommand(b, []byte("FILA.LEASE"), []byte("orders"), []byte("COUNT"), []byte("2"))
			_, _ = near.Write(relay.AppendCommand(b, []byte("EXEC"))) // the replies are not read
			synctest.Wait()
			_ = near.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c, other := p.client("b"), p.client("a")
				other.do("FILA.QUEUE CREATE orders NODLQ", "FILA.ENQUEUE orders x", "FILA.ENQUEUE orders "+strings.Repeat("y", 100<<10))
				send(p, c)
				synctest.Wait()
				if got := other.do("FILA.LEASE orders COUNT 2"); strings.Count(got, "default\r\n:1\r\n:") != 2 {
					t.Errorf("got %q", clipped(got))
				}
			})
		})
	}
}

func TestALeaderWithTooManyClientsSaysSo(t *testing.T) {
	withPair(t, func(p *relayPair) {
		for range 100 {
			p.client("a").want("+PONG\r\n", "PING")
		}
		p.client("b").want("+PONG\r\n-ERR max number of clients reached\r\n", "PING", "DBSIZE")
	})
}

func (c *relayClient) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count("\r\n"+string(c.got), what)
}

func (c *relayClient) ends(with string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.HasSuffix(string(c.got), with)
}

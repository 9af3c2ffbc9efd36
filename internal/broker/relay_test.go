package broker

import (
	"context"
	"fmt"
	"net"
	"runtime"
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
	"github.com/faisca/fila/internal/relay"
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
	engine  *engine.Engine // nil: it does not lead
	running chan error
}

// relayPair is two nodes with one store, since what one has written the other would have, too. One of
// them may lead.
type relayPair struct {
	t     *testing.T
	store *storage.Memory
	nodes map[string]*relayNode

	mu      sync.Mutex
	links   []net.Conn
	budget  int // bytes after which the next link breaks; -1: none does
	clients []*relayClient
}

const pairWait = 2 * time.Second

// withPair runs a test with simulated time. a leads, b follows.
func withPair(t *testing.T, test func(p *relayPair)) {
	t.Helper()
	runtime.GC() // streams keep timers in a pool, which must not meet those of another bubble
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		p := &relayPair{t: t, store: storage.NewMemory(), nodes: map[string]*relayNode{}, budget: -1}
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
	n.handler, err = commands.New(commands.Config{Version: "0.1.0", MaxClients: 100, Now: time.Now, Cluster: n.seat, Relay: n.router}, n.seat)
	if err != nil {
		p.t.Fatal(err)
	}
	if n.server, err = resp.NewServer(resp.DefaultConfig(), n.handler); err != nil {
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
	go func() { _ = relay.Serve(far, n.server.ServeRelayed, zerolog.Nop()) }() // it ends with the test
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
	e, err := engine.New(cfg, p.store)
	if err != nil {
		p.t.Fatal(err)
	}
	n.engine, n.running = e, make(chan error, 1)
	n.Seat(e)
	go func() { n.running <- e.Run(context.Background()) }()
	for other, o := range p.nodes {
		if other != name {
			o.Follow(name)
		}
	}
	synctest.Wait()
}

// handOver makes the other node the leader in order.
func (p *relayPair) handOver(from, to string) {
	p.t.Helper()
	p.nodes[from].Hold()
	p.stop(from)
	p.lead(to)
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
	n.Vacate(nil)
}

// crash breaks all links of the leader, as if its process had ended, and ends its engine.
func (p *relayPair) crash(name string) {
	p.t.Helper()
	for other, o := range p.nodes {
		if other != name {
			o.router.Lose()
		}
	}
	p.cut()
	synctest.Wait()
	p.stop(name)
}

// cut breaks all links.
func (p *relayPair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		_ = l.Close() // that is all
	}
	p.links = nil
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
	for _, n := range p.nodes {
		if err := n.server.Shutdown(context.Background()); err != nil {
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
	near, far := net.Pipe()
	c := &relayClient{Conn: near, p: p}
	p.clients = append(p.clients, c)
	go p.nodes[node].server.ServeConn(far)
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
		for _, w := range strings.Fields(line) {
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
		defer c.close()
		got := c.do("FILA.STATS " + queue)
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
				go p.nodes["b"].server.ServeConn(far)
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
		operator.want(":0\r\n:1\r\n", "CLIENT UNBLOCK 999", "CLIENT UNBLOCK "+id)
		if got := c.received(); got != "*0\r\n" {
			t.Errorf("got %q", got)
		}
		operator.want(":0\r\n", "CLIENT UNBLOCK "+id)
	})
}

func TestWithoutALeaderOnlyWhatNeedsOneWaits(t *testing.T) {
	withPair(t, func(p *relayPair) {
		c, other := p.client("b"), p.client("b")
		c.want(":0\r\n", "DBSIZE")
		p.crash("a")
		c.send("DBSIZE")
		if got := other.do("PING", "CLIENT GETNAME", "INFO replication"); !strings.HasPrefix(got, "+PONG\r\n$-1\r\n$") {
			t.Errorf("got %q", got)
		}
		time.Sleep(pairWait - 1)
		if got := c.received(); got != "" {
			t.Errorf("before its time is over: %q", got)
		}
		time.Sleep(1)
		if got := c.received(); !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("got %q", got)
		}
		c.send("DBSIZE")
		time.Sleep(pairWait / 2)
		p.lead("b")
		if got := c.received(); got != ":0\r\n" {
			t.Errorf("after a node has taken over: %q", got)
		}
	})
}

func TestALeaseOutlivesItsLeader(t *testing.T) {
	for _, next := range []string{"a", "b"} {
		t.Run(next, func(t *testing.T) {
			withPair(t, func(p *relayPair) {
				c := p.client("b")
				c.want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
				c.send("FILA.LEASE orders BLOCK 10000", "DBSIZE", "FILA.ENQUEUE orders x")
				time.Sleep(4 * time.Second)
				p.crash("a")
				time.Sleep(time.Second)
				p.lead(next)
				time.Sleep(5*time.Second - time.Millisecond)
				if got := c.received(); got != "" {
					t.Errorf("before the rest of its time: %q", got)
				}
				time.Sleep(time.Second)
				if got := c.received(); !strings.HasPrefix(got, "*0\r\n:1\r\n-MISCONF ") {
					t.Errorf("got %q", got)
				}
			})
		})
	}
}

// A hand-over under load: every command of every client is answered, none with an error, and each has
// happened once.
func TestAHandOverRefusesNoClient(t *testing.T) {
	withPair(t, func(p *relayPair) {
		p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
		const clients, rounds, pipeline = 8, 60, 5
		var wg sync.WaitGroup
		for i := range clients {
			c := p.client([]string{"a", "b"}[i%2])
			wg.Go(func() {
				for round := range rounds {
					var lines []string
					for n := range pipeline {
						lines = append(lines, fmt.Sprintf("FILA.ENQUEUE orders %d-%d-%d KEY k%d", i, round, n, i))
					}
					c.send(lines...)
					for c.count("\r\n$36\r\n") < pipeline-1 || !c.ends("\r\n") {
						time.Sleep(time.Millisecond)
						if c.count("-") > 0 && c.count("\r\n-") > 0 {
							break
						}
					}
					time.Sleep(time.Duration(i) * time.Millisecond)
					c.mu.Lock()
					if got := string(c.got); strings.HasPrefix(got, "-") || strings.Contains(got, "\r\n-") {
						t.Errorf("client %d got %q", i, clipped(got))
					}
					c.got = nil
					c.mu.Unlock()
				}
			})
		}
		from, to := "a", "b"
		for range 10 {
			time.Sleep(17 * time.Millisecond)
			p.handOver(from, to)
			from, to = to, from
		}
		wg.Wait()
		if n := p.depth("orders"); n != clients*rounds*pipeline {
			t.Errorf("%d messages, want %d", n, clients*rounds*pipeline)
		}
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

// The link breaks after any number of bytes, in either direction. Each command has one reply, and that
// is true.
func TestTheLinkMayBreakAnywhere(t *testing.T) {
	for budget := 1; budget < 1500; budget += 7 {
		withPair(t, func(p *relayPair) {
			p.client("a").want("+OK\r\n", "FILA.QUEUE CREATE orders NODLQ")
			p.budget = budget
			c := p.client("b")
			c.send("FILA.ENQUEUE orders one", "DBSIZE", "FILA.LEASE orders BLOCK 100", "ECHO local", "FILA.ENQUEUE orders two")
			time.Sleep(pairWait)
			got := c.received()
			first, rest, _ := strings.Cut(got, ":1\r\n")
			unknown := strings.HasPrefix(first, "-MISCONF ")
			if !unknown && !strings.HasPrefix(first, "$36\r\n") {
				t.Fatalf("after %d bytes: the first reply of %q", budget, got)
			}
			lease, last, found := strings.Cut(rest, "$5\r\nlocal\r\n")
			if !found || !strings.HasPrefix(lease, "*1\r\n") && !(unknown && lease == "*0\r\n") {
				t.Fatalf("after %d bytes: the lease or what follows it in %q", budget, got)
			}
			lastUnknown := strings.HasPrefix(last, "-MISCONF ")
			if !lastUnknown && !strings.HasPrefix(last, "$36\r\n") {
				t.Fatalf("after %d bytes: the last reply of %q", budget, got)
			}
			time.Sleep(time.Minute) // leases that were lost with the link end
			n := p.depth("orders")
			most, least := 2, 2
			if unknown {
				least--
			}
			if lastUnknown {
				least--
			}
			if n < least || n > most {
				t.Fatalf("after %d bytes: %d messages, but the replies are %q", budget, n, got)
			}
		})
	}
}

package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// wait is the Config.Wait of the tests.
const wait = 2 * time.Second

// node is a leader of a test: it serves streams, and answers each command as the test says.
type node struct {
	t        *testing.T
	answer   func(n *node, words []string) string // "": no reply
	quick    bool                                 // HOLD is answered like anything else
	finished chan struct{}                        // closed: it ends its links in order

	mu    sync.Mutex
	got   []string // the commands, in the order of their arrival
	addrs []string // of the clients
	conns []net.Conn
	links []net.Conn
	gone  int // clients that have closed their side
	wrote int // bytes of replies that streams have taken
}

func (n *node) serve(c net.Conn) {
	defer c.Close()
	n.mu.Lock()
	n.addrs = append(n.addrs, c.RemoteAddr().String())
	n.conns = append(n.conns, c)
	n.mu.Unlock()
	from, held := bufio.NewReader(c), false
	for {
		words, err := readCommand(from)
		if err != nil {
			n.mu.Lock()
			n.gone++
			n.mu.Unlock()
			return
		}
		n.mu.Lock()
		n.got = append(n.got, strings.Join(words, " "))
		n.mu.Unlock()
		reply := n.answer(n, words)
		if held = held || words[0] == "HOLD" && !n.quick; held {
			continue // replies are sent in order
		}
		for reply != "" {
			part := reply[:min(len(reply), 32<<10)]
			if _, err := io.WriteString(c, part); err != nil {
				return
			}
			n.mu.Lock()
			n.wrote += len(part)
			n.mu.Unlock()
			reply = reply[len(part):]
		}
		switch words[0] {
		case "BYE":
			return
		case "LAST":
			_ = c.(interface{ CloseWrite() error }).CloseWrite() //nolint:forcetypeassert // it is a stream
			return
		}
	}
}

func readCommand(from *bufio.Reader) ([]string, error) {
	count := func() (int, error) {
		line, err := from.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := count()
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := count()
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(from, b); err != nil {
			return nil, err
		}
		words[i] = string(b[:size])
	}
	return words, nil
}

// log returns the commands that have arrived since the last call.
func (n *node) log() []string {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.got
	n.got = nil
	return got
}

// crash breaks all links of the node.
func (n *node) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.links {
		_ = l.Close()
	}
	n.links = nil
}

// plain answers as a server does: AS with an id, REFUSE with LOADING, BIG n with n bytes, and anything
// else with itself. Behind HOLD nothing is answered.
func plain(_ *node, words []string) string {
	switch words[0] {
	case "AS":
		return ":7\r\n"
	case "BYE":
		return ""
	case "REFUSE":
		return "-LOADING another node is taking over\r\n"
	case "BIG":
		size, _ := strconv.Atoi(words[1])
		return fmt.Sprintf("$%d\r\n%s\r\n", size, strings.Repeat("x", size))
	}
	return "+" + strings.Join(words, " ") + "\r\n"
}

// cluster is a router and the nodes that may lead.
type cluster struct {
	*Router
	t     *testing.T
	nodes map[string]*node
	self  *node
	conn  *Conn
	who   *Identity
	woken int
	mu    sync.Mutex
	down  map[string]bool
	dials int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, nodes: map[string]*node{}, down: map[string]bool{}, who: identity("ann"), self: &node{t: t, answer: plain}}
	for _, name := range []string{"a", "b"} {
		c.nodes[name] = &node{t: t, answer: plain, finished: make(chan struct{})}
	}
	c.Router = NewRouter(Config{Wait: wait, Log: zerolog.Nop(), Serve: c.self.serve, Dial: c.dial})
	c.conn = c.Open(Client{Addr: "10.0.0.1:5", Wake: func() { c.mu.Lock(); c.woken++; c.mu.Unlock() }})
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) dial(_ context.Context, name string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dials++
	if c.down[name] {
		return nil, errors.New("connection refused")
	}
	near, far := net.Pipe()
	n := c.nodes[name]
	n.mu.Lock()
	n.links = append(n.links, near)
	n.mu.Unlock()
	go func() { _ = Serve(far, n.finished, n.serve, zerolog.Nop()) }() // it ends with the test
	return near, nil
}

// setDown says whether a node can be reached.
func (c *cluster) setDown(name string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[name] = down
}

func identity(user string) *Identity { return &Identity{Wire: wire("AS " + user)} }

// wire makes the bytes of a command of words without blanks.
func wire(line string) []byte {
	var words [][]byte
	for w := range strings.FieldsSeq(line) {
		words = append(words, []byte(w))
	}
	return AppendCommand(nil, words...)
}

// send sends commands in one go. A line that begins with ! may be sent twice.
func (c *cluster) send(lines ...string) []*Command {
	var all []*Command
	for _, line := range lines {
		cmd := &Command{Who: c.who}
		if rest, again := strings.CutPrefix(line, "!"); again {
			cmd.Again, line = Always, rest
		}
		cmd.Wire = wire(line)
		all = append(all, cmd)
	}
	c.conn.Send(all)
	return all
}

// want checks the replies of commands that must have one, "" for those that must not.
func (c *cluster) want(all []*Command, replies ...string) {
	c.t.Helper()
	synctest.Wait()
	for i, want := range replies {
		got := ""
		if all[i].Ready() {
			var b []byte
			if err := all[i].Copy(func(p []byte) { b = append(b, p...) }); err != nil {
				c.t.Error(err)
			}
			got = strings.TrimSpace(string(b))
		}
		if got != want {
			c.t.Errorf("%q has the reply %q, want %q", all[i].Wire, got, want)
		}
	}
}

func wantLog(t *testing.T, n *node, want ...string) {
	t.Helper()
	if got := n.log(); !slices.Equal(got, want) {
		t.Errorf("the leader got %q, want %q", got, want)
	}
}

// bubble runs a test with simulated time.
func bubble(t *testing.T, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		test(c)
		c.conn.Close()
	})
}

const (
	noneLeads = "-LOADING no node of the cluster leads, try again in a moment"
	perhaps   = "-MISCONF the connection to the leader was lost; the command may have happened or not"
)

func TestCommandsGoToTheLeaderInOrderAndBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		c.want(c.send("ONE", "TWO", "THREE"), "+ONE", "+TWO", "+THREE")
		wantLog(t, c.nodes["a"], "AS ann", "ONE", "TWO", "THREE")
		if c.conn.Busy() || c.conn.ID() != 7 || c.nodes["a"].addrs[0] != "10.0.0.1:5" {
			t.Errorf("busy %v, id %d, address %v", c.conn.Busy(), c.conn.ID(), c.nodes["a"].addrs)
		}
		before := c.woken
		c.want(c.send("FOUR", "FIVE"), "+FOUR", "+FIVE")
		if c.woken-before > 2 { // they come in one or two reads
			t.Errorf("woken %d times for two replies", c.woken-before)
		}
	})
}

func TestTheLeaderIsToldWhoSendsEachCommand(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		ann, bob := c.who, identity("bob")
		var all []*Command
		for _, who := range []*Identity{ann, ann, bob, ann} {
			all = append(all, &Command{Who: who, Wire: wire("X")})
		}
		c.conn.Send(all)
		c.want(all, "+X", "+X", "+X", "+X")
		wantLog(t, c.nodes["a"], "AS ann", "X", "X", "AS bob", "X", "AS ann", "X")
		// The next leader gets the identity of the first command, not that of the newest one.
		hold := c.send("!HOLD")
		c.who = bob
		more := c.send("!Y")
		c.nodes["a"].log()
		c.Follow("b")
		time.Sleep(linkGrace)
		c.want(append(hold, more...), "", "")
		wantLog(t, c.nodes["b"], "AS ann", "HOLD", "AS bob", "Y")
	})
}

func TestWithoutALeaderCommandsWaitForTheirTime(t *testing.T) {
	bubble(t, func(c *cluster) {
		early := c.send("EARLY")
		time.Sleep(wait / 2)
		late := c.send("LATE")
		time.Sleep(wait/2 - 1)
		c.want(early, "")
		time.Sleep(time.Nanosecond)
		c.want(early, noneLeads)
		c.want(late, "")
		c.Follow("a")
		c.want(late, "+LATE")
		wantLog(t, c.nodes["a"], "AS ann", "LATE")
	})
}

// A leader that stops answers what it has read and ends the stream: what it has not read was not executed.
func TestWhatALeaderHasNotReadBeforeItStoppedGoesToTheNextOne(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		all := c.send("LAST", "X", "Y")
		c.want(all, "+LAST", "", "")
		c.Follow("b")
		c.want(all, "+LAST", "+X", "+Y")
		wantLog(t, c.nodes["a"], "AS ann", "LAST")
		wantLog(t, c.nodes["b"], "AS ann", "X", "Y")
	})
}

// A leader that stops ends its links, too: then there is nothing that it executes, whether it was read or not.
func TestWhatALeaderHasNotAnsweredBeforeItEndedItsLinkGoesToTheNextOne(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.nodes["b"].quick = true
		c.Follow("a")
		all := c.send("X", "HOLD", "Y")
		c.want(all, "+X", "", "")
		close(c.nodes["a"].finished)
		c.want(all, "+X", "", "")
		c.setDown("a", true)
		all = append(all, c.send("Z")...)
		c.Follow("b")
		c.want(all, "+X", "+HOLD", "+Y", "+Z")
		wantLog(t, c.nodes["b"], "AS ann", "HOLD", "Y", "Z")
	})
}

func TestALeaderThatCannotBeReachedIsTriedAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.setDown("a", true)
		c.Follow("a")
		all := c.send("X")
		time.Sleep(wait - 3*againAfter)
		for range 100 { // news of the client neither hasten nor delay the attempts
			c.conn.nudge()
			synctest.Wait()
		}
		if most := int(wait / againAfter); c.dials < most/2 || c.dials > most {
			t.Errorf("%d attempts in %v", c.dials, wait)
		}
		c.want(all, "")
		c.setDown("a", false)
		time.Sleep(againAfter)
		c.want(all, "+X")
	})
}

func TestWhatALostLeaderMayHaveDoneIsNotSentAgain(t *testing.T) {
	for _, how := range []string{"the link breaks", "another leads", "this node leads", "it is not heard"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(c *cluster) {
				c.Follow("a")
				c.want(c.send("DONE"), "+DONE")
				all := c.send("!HOLD", "WRITE", "!READ", "!HOLD", "WRITE", "!READ")
				synctest.Wait()
				next := c.nodes["b"]
				next.quick, c.self.quick = true, true
				switch how {
				case "the link breaks":
					c.Lose()
					c.nodes["a"].crash()
					synctest.Wait()
					c.Follow("b")
				case "it is not heard":
					c.Lose()
					time.Sleep(lostGrace)
					c.want(all[1:2], perhaps)
					c.Follow("b")
				case "another leads":
					c.Follow("b")
				case "this node leads":
					next = c.self
					c.Lead()
				}
				time.Sleep(linkGrace)
				c.want(all, "+HOLD", perhaps, "+READ", "+HOLD", perhaps, "+READ")
				wantLog(t, next, "AS ann", "HOLD", "READ", "HOLD", "READ")
			})
		})
	}
}

// A node that hands over answers everything that it was sent, some with LOADING. The next leader gets
// exactly those, in order.
func TestWhatTheLeaderRefusesGoesToTheNext(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		c.nodes["a"].answer = func(n *node, words []string) string {
			if words[0] == "W2" || words[0] == "W4" {
				return plain(n, []string{"REFUSE"})
			}
			return plain(n, words)
		}
		all := c.send("W1", "W2", "W3", "W4", "W5")
		synctest.Wait()
		c.want(all, "+W1", "", "+W3", "", "+W5")
		c.nodes["a"].log()
		after := c.send("W6")
		time.Sleep(againAfter - 1)
		if got := c.nodes["a"].log(); len(got) > 0 {
			t.Errorf("sent %q to a leader that refuses, before it is tried again", got)
		}
		c.Follow("b")
		c.want(append(all[1:2:2], all[3], after[0]), "+W2", "+W4", "+W6")
		wantLog(t, c.nodes["b"], "AS ann", "W2", "W4", "W6")
	})
}

func TestALeaderThatKeepsRefusingIsBelievedInTheEnd(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		all := c.send("REFUSE")
		time.Sleep(wait - 1)
		c.want(all, "")
		time.Sleep(againAfter + 1)
		c.want(all, "-LOADING another node is taking over")
		if n := len(c.nodes["a"].log()) / 2; n < 50 || n > 101 {
			t.Errorf("sent %d times in %v", n, wait)
		}
	})
}

func TestALeaseWaitsForTheRestOfItsTime(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		lease := func(name string) *Command {
			return &Command{Who: c.who, Wire: wire("HOLD " + name), Again: Always, Rest: func(waited time.Duration) []byte {
				return wire("HOLD " + name + " " + waited.String())
			}}
		}
		first, second := lease("first"), lease("second")
		c.conn.Send([]*Command{first, second})
		time.Sleep(time.Minute)
		c.Lose()
		c.nodes["a"].crash()
		time.Sleep(time.Second)
		c.Follow("b")
		wantLog(t, c.nodes["b"], "AS ann", "HOLD first 1m1s", "HOLD second")
	})
}

func TestALongReplyIsPassedOnInPieces(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		const size = 20 << 20
		all := c.send("BIG "+strconv.Itoa(size), "NEXT")
		synctest.Wait()
		if got := c.nodes["a"].wrote; got > 1<<20 {
			t.Errorf("the leader has written %d bytes that the client has not taken", got)
		}
		if !all[0].Ready() || all[1].Ready() {
			t.Fatal("the long reply is not the one that is ready")
		}
		total, most := 0, 0
		if err := all[0].Copy(func(b []byte) { total += len(b); most = max(most, len(b)) }); err != nil {
			t.Fatal(err)
		}
		if want := size + len("$20971520\r\n\r\n"); total != want || most > wholeMax+readLarge {
			t.Errorf("%d bytes in pieces of up to %d, want %d", total, most, want)
		}
		c.want(all[1:], "+NEXT")
	})
}

func TestAReplyThatBreaksOffClosesItsClient(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		all := c.send("!BIG "+strconv.Itoa(1<<20), "!NEXT")
		synctest.Wait()
		c.nodes["a"].crash()
		if err := all[0].Copy(func([]byte) {}); !errors.Is(err, ErrCut) {
			t.Errorf("got %v", err)
		}
		time.Sleep(againAfter)
		c.want(all[1:], "+NEXT") // from the next stream
	})
}

// What a client has not received is noted: whether the reply was short, was dropped before it came, or
// after all of it came.
func TestWhatIsNotReceivedIsNoted(t *testing.T) {
	for _, padding := range []int{10, 1 << 20} {
		for _, copied := range []bool{false, true} {
			t.Run(fmt.Sprint(padding, copied), func(t *testing.T) {
				bubble(t, func(c *cluster) {
					c.Follow("a")
					c.nodes["a"].answer = func(n *node, words []string) string {
						if words[0] == "AS" {
							return plain(n, words)
						}
						return fmt.Sprintf("*2\r\n*2\r\n$2\r\nr1\r\n$%d\r\n%s\r\n*2\r\n$2\r\nr2\r\n:5\r\n", padding, strings.Repeat("p", padding))
					}
					var noted []string
					lost := 0
					cmd := &Command{Who: c.who, Wire: wire("LEASE"), Lost: func() { lost++ }, Note: func(path []int, text []byte) {
						if len(path) == 2 && path[1] == 0 {
							noted = append(noted, fmt.Sprint(path, string(text)))
						}
					}}
					c.conn.Send([]*Command{cmd})
					synctest.Wait()
					if !cmd.Ready() {
						t.Fatal("not ready")
					}
					if copied {
						if err := cmd.Copy(func([]byte) {}); err != nil {
							t.Fatal(err)
						}
					}
					cmd.Drop()
					synctest.Wait()
					if want := []string{"[0 0]r1", "[1 0]r2"}; !slices.Equal(noted, want) || lost != 1 {
						t.Errorf("noted %q, lost %d times", noted, lost)
					}
				})
			})
		}
	}
}

func TestTheLeaderSeesThatAClientIsGone(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		all := c.send("!HOLD")
		synctest.Wait()
		c.conn.Close()
		synctest.Wait()
		if c.nodes["a"].gone != 1 {
			t.Errorf("%d clients are gone", c.nodes["a"].gone)
		}
		c.want(all, "") // of no use, but ready: an empty reply
		if !all[0].Ready() || c.conn.Busy() {
			t.Error("a reply stays open")
		}
	})
	bubble(t, func(c *cluster) { // without a leader
		all := c.send("X")
		c.conn.Close()
		synctest.Wait()
		if !all[0].Ready() {
			t.Error("a reply stays open")
		}
	})
}

// A leader that does not read must not keep a session from noticing its client.
func TestSendDoesNotWaitForALeaderThatDoesNotRead(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		read := make(chan struct{})
		c.nodes["a"].answer = func(n *node, words []string) string {
			if words[0] == "STALL" {
				<-read
			}
			return plain(n, words[:1])
		}
		began := time.Now()
		all := c.send("STALL")
		for range 4 {
			all = append(all, c.send("LONG "+strings.Repeat("x", 200<<10), "SHORT")...)
		}
		if took := time.Since(began); took > 2*writeTime {
			t.Errorf("the session waited for %v", took)
		}
		close(read)
		want := []string{"+STALL"}
		for range 4 {
			want = append(want, "+LONG", "+SHORT")
		}
		c.want(all, want...)
	})
}

func TestOnlyTheLastReplyOfATransactionCounts(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		cmd := &Command{Who: c.who, Skip: 2, Wire: slices.Concat(wire("MULTI"), wire("X"), wire("EXEC"))}
		c.conn.Send([]*Command{cmd})
		c.want([]*Command{cmd}, "+EXEC")
		c.want(c.send("Y"), "+Y")
	})
}

func TestARefusedIdentityAnswersTheCommands(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		c.nodes["a"].answer = func(*node, []string) string { return "-ERR max number of clients reached\r\n" }
		c.want(c.send("X", "!Y"), "-ERR max number of clients reached", "-ERR max number of clients reached")
		c.nodes["a"].answer = plain
		time.Sleep(againAfter)
		c.want(c.send("Z"), "+Z")
	})
}

func TestAConnectionThatIsKeptJoinsEachLeaderButThisNode(t *testing.T) {
	bubble(t, func(c *cluster) {
		var joined int
		var pushed [][]byte
		conn := c.Open(Client{Wake: func() {}, Joined: func() { joined++ }, Push: func(f []byte) { pushed = append(pushed, f) }})
		defer conn.Close()
		for _, n := range c.nodes {
			n.answer = func(n *node, words []string) string { return plain(n, words) + ">2\r\n+news\r\n+" + words[1] + "\r\n" }
		}
		conn.Keep(identity("one"))
		c.Follow("a")
		synctest.Wait()
		conn.Keep(identity("two"))
		wantLog(t, c.nodes["a"], "AS one", "AS two")
		c.Follow("b")
		time.Sleep(linkGrace)
		wantLog(t, c.nodes["b"], "AS two")
		c.Lead()
		time.Sleep(linkGrace)
		wantLog(t, c.self)
		c.Follow("a")
		wantLog(t, c.nodes["a"], "AS two")
		conn.Keep(nil)
		c.Follow("b")
		time.Sleep(linkGrace)
		wantLog(t, c.nodes["b"])
		if got := string(bytes.Join(pushed, nil)); joined != 2 || strings.Count(got, "news") != 4 {
			t.Errorf("joined %d times, pushed %q", joined, got)
		}
	})
}

func TestALinkIsSharedAndOutlivesAMomentWithoutALeader(t *testing.T) {
	bubble(t, func(c *cluster) {
		c.Follow("a")
		c.want(c.send("X"), "+X")
		other := c.Open(Client{Wake: func() {}})
		defer other.Close()
		y := &Command{Who: c.who, Wire: wire("Y")}
		other.Send([]*Command{y})
		hold := c.send("HOLD")
		synctest.Wait()
		c.Lose()
		time.Sleep(lostGrace - time.Millisecond)
		c.Follow("a")
		c.want(append(hold, y), "", "+Y")
		if c.dials != 1 {
			t.Errorf("%d links", c.dials)
		}
	})
}

//go:build !race

package commands

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/resp"
)

// portsOf returns a cluster of three with ports for all kinds of clients, as node self knows it: node a leads.
func portsOf(self string) ReplicationState {
	r := threeNodes()
	r.Node, r.Leading, r.Election = self, self == "a", 400*time.Millisecond
	for i := range r.Members {
		m := &r.Members[i]
		m.Port, m.TLSPort, m.ClusterPort, m.ClusterTLSPort, m.SentinelPort, m.SentinelTLSPort = 5550+i, 6550+i, 7000+i, 8000+i, 26000+i, 27000+i
	}
	return r
}

// newNode starts node self of such a cluster. The engine is that of the leader, and not used by others.
func newNode(t *testing.T, self string) (*server, *fakeReplication) {
	t.Helper()
	f := &fakeReplication{state: portsOf(self)}
	var node testNode
	s := newServer(t, func(c *Config) {
		c.Replication, c.Cluster = f, &node
		c.Relay = relay.NewRouter(relay.Config{Wait: time.Second, Log: zerolog.Nop()})
	})
	if self == "a" {
		node.e = s
	}
	t.Cleanup(s.handler.Close)
	return s, f
}

// The texts are those that client libraries of Redis Cluster look for.
func TestClientsOfRedisClusterAreSentToTheLeader(t *testing.T) {
	s, _ := newNode(t, "b")
	c := s.connectTo("cluster", ModeCluster, false)
	wants := func(c *fakeConn, want string, command ...string) {
		t.Helper()
		if got := c.do(command...); got != want {
			t.Errorf("%q answers %q, want %q", command, got, want)
		}
	}
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.ENQUEUE", "orders", "hello")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.LEASE", "orders", "BLOCK", "0")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.MLEASE", "2", "orders", "mails")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "EXISTS", "{orders}.dlq")
	wants(c, "-ERR unknown command 'GET', with args beginning with: 'orders' \r\n", "GET", "orders")
	wants(c, "+PONG\r\n", "PING")
	wants(s.connectTo("secure", ModeCluster, true), "-MOVED 105 10.0.0.1:8000\r\n", "FILA.STATS", "orders")

	wants(c, "+OK\r\n", "MULTI")
	wants(c, "+QUEUED\r\n", "PING")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.ENQUEUE", "orders", "hello")
	wants(c, "-EXECABORT Transaction discarded because of previous errors.\r\n", "EXEC")

	wants(c, "+OK\r\n", "READONLY")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.ENQUEUE", "orders", "hello")
	wants(c, "", "FILA.STATS", "orders") // passed on
	if len(c.window) != 1 {
		t.Errorf("%d commands are on their way to the leader", len(c.window))
	}
	c = s.connectTo("another", ModeCluster, false)
	c.do("READONLY")
	wants(c, "+OK\r\n", "READWRITE")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.STATS", "orders")
	c.do("READONLY")
	c.do("RESET")
	wants(c, "-MOVED 105 10.0.0.1:7000\r\n", "FILA.STATS", "orders")
}

// What was queued at a node that leads no more has not happened: the client sends all of it to the leader.
func TestATransactionIsSentToTheLeaderAsAWhole(t *testing.T) {
	s, f := newNode(t, "a")
	c := s.connectTo("cluster", ModeCluster, false)
	got := c.do("FILA.QUEUE", "CREATE", "orders") + c.do("MULTI") + c.do("PING") + c.do("FILA.ENQUEUE", "orders", "hello")
	if got != "+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n" {
		t.Fatalf("at the leader: %q", got)
	}
	f.state.Leader, f.state.Leading = "c", false
	s.handler.nodes.cluster.(*testNode).e = nil //nolint:forcetypeassert // newNode's
	if got := c.do("EXEC") + c.do("EXEC"); got != "-MOVED 105 10.0.0.3:7002\r\n-ERR EXEC without MULTI\r\n" {
		t.Errorf("EXEC answers %q", got)
	}
}

// A node never sends a client to itself, nor to an address that it does not know: it passes the command on.
func TestClientsOfRedisClusterAreNotSentInCircles(t *testing.T) {
	for name, change := range map[string]func(f *fakeReplication){
		"it leads itself":        func(f *fakeReplication) { f.state.Leader = "b" },
		"none leads":             func(f *fakeReplication) { f.state.Leader = "" },
		"no port for the client": func(f *fakeReplication) { f.state.Members[0].ClusterPort, f.state.Members[0].ClusterTLSPort = 0, 0 },
		"the host is not known":  func(f *fakeReplication) { f.state.Members[0].Host = "" },
	} {
		t.Run(name, func(t *testing.T) {
			s, f := newNode(t, "b")
			change(f)
			c := s.connectTo("cluster", ModeCluster, false)
			if got := c.do("FILA.ENQUEUE", "orders", "hello"); got != "" {
				t.Errorf("it answers %q", got)
			}
			if len(c.window) != 1 {
				t.Errorf("%d commands are on their way to the leader", len(c.window))
			}
		})
	}
}

func TestEachPortHasItsOwnReplies(t *testing.T) {
	const none = "-ERR This instance has cluster support disabled\r\n"
	s, _ := newNode(t, "b")
	for _, x := range []struct {
		command                  string
		plain, cluster, sentinel string // what replies have
	}{
		{"CLUSTER INFO", none, "cluster_state:ok", "-ERR unknown command 'CLUSTER'"},
		{"CLUSTER MYID", none, "$40\r\n", "-ERR unknown command"},
		{"CLUSTER KEYSLOT orders", none, ":105\r\n", "-ERR unknown command"},
		{"CLUSTER SLOTS", none, "10.0.0.1\r\n:7000\r\n", "-ERR unknown command"},
		{"CLUSTER SHARDS", none, "10.0.0.3\r\n", "-ERR unknown command"},
		{"CLUSTER NODES", none, " 10.0.0.2:7001@5571 myself,slave ", "-ERR unknown command"},
		{"CLUSTER HELP", none, "+CLUSTER <subcommand>", "-ERR unknown command"},
		{"CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'", "-ERR unknown subcommand 'NOSUCH'", "-ERR unknown command"},
		{"ASKING", none, "+OK\r\n", "-ERR unknown command"},
		{"READONLY", "+OK\r\n", "+OK\r\n", "-ERR unknown command"},
		{"SENTINEL MASTERS", "-ERR unknown command 'SENTINEL'", "-ERR unknown command 'SENTINEL'", "$4\r\n5550\r\n"},
		{"SENTINEL MYID", "-ERR unknown command", "-ERR unknown command", "$40\r\n"},
		{"FILA.QUEUE LIST", "", "", "-ERR unknown command 'FILA.QUEUE'"},
		{"PING", "+PONG\r\n", "+PONG\r\n", "+PONG\r\n"},
		{"HELLO", "mode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$7\r\nreplica\r\n", "mode\r\n$7\r\ncluster\r\n$4\r\nrole\r\n", "mode\r\n$8\r\nsentinel\r\n$7\r\nmodules\r\n"},
		{"INFO server", "redis_mode:standalone\r\n", "redis_mode:cluster\r\n", "redis_mode:sentinel\r\n"},
		{"INFO cluster", "cluster_enabled:0\r\n", "cluster_enabled:1\r\n", "$0\r\n"},
		{"INFO sentinel", "$0\r\n", "$0\r\n", "sentinel_masters:1\r\n"},
		{"INFO", "redis_mode:standalone", "redis_mode:cluster", "master0:name=test,status=ok,address=10.0.0.1:5550,slaves=2,sentinels=3\r\n"},
		{"ROLE", "$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:5550\r\n", "$5\r\nslave\r\n$8\r\n10.0.0.1\r\n:7000\r\n", "*2\r\n$8\r\nsentinel\r\n*1\r\n$4\r\ntest\r\n"},
		{"COMMAND INFO sentinel cluster", "*2\r\n$-1\r\n*10\r\n", "*2\r\n$-1\r\n*10\r\n", "*2\r\n*10\r\n"},
		{"CLIENT SETNAME x", "+OK\r\n", "+OK\r\n", "+OK\r\n"},
	} {
		for mode, want := range []string{x.plain, x.cluster, x.sentinel} {
			c := s.connectTo(x.command+modeName(resp.Mode(mode)), resp.Mode(mode), false)
			if got := c.do(strings.Fields(x.command)...); !strings.Contains(got, want) || want == "" && got != "" { // "": it is passed on
				t.Errorf("%s at a port of mode %s answers %q, want %q", x.command, modeName(c.mode), got, want)
			}
		}
	}
}

func TestClientsOfSentinelFindTheLeader(t *testing.T) {
	s, f := newNode(t, "b")
	c, secure := s.connectTo("plain", ModeSentinel, false), s.connectTo("secure", ModeSentinel, true)
	wants := func(c *fakeConn, want string, command ...string) {
		t.Helper()
		if got := printed(t, c.do(command...)); got != want {
			t.Errorf("%q answers %q, want %q", command, got, want)
		}
	}
	wants(c, "1) \"10.0.0.1\"\n2) \"5550\"", "SENTINEL", "get-master-addr-by-name", "test")
	wants(secure, "1) \"10.0.0.1\"\n2) \"6550\"", "SENTINEL", "get-master-addr-by-name", "test")
	wants(c, "OK 2 usable Sentinels. Quorum and failover authorization can be reached", "SENTINEL", "CKQUORUM", "test")
	for _, command := range []string{"MASTER", "REPLICAS", "SLAVES", "SENTINELS", "CKQUORUM"} {
		wants(c, "(error) ERR No such master with that name", "SENTINEL", command, "mymaster")
		if got := c.do("SENTINEL", command, "test"); strings.HasPrefix(got, "-") {
			t.Errorf("SENTINEL %s: %q", command, got)
		}
	}
	if got := c.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"); got != "*-1\r\n" {
		t.Errorf("a wrong name: %q", got)
	}
	f.state.Members[1].State = MemberDown
	wants(c, "(error) NOQUORUM 1 usable Sentinels. Not enough available Sentinels to reach the majority and authorize a failover", "SENTINEL", "CKQUORUM", "test")
	f.state.Leader = "" // the last one is told until there is another
	wants(c, "1) \"10.0.0.1\"\n2) \"5550\"", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "test")
	f.state.Leader = "c"
	wants(c, "1) \"10.0.0.3\"\n2) \"5552\"", "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "test")
}

func TestClientsOfSentinelHearOfAnotherLeader(t *testing.T) {
	s, f := newNode(t, "b")
	c, secure, plain := s.connectTo("plain", ModeSentinel, false), s.connectTo("secure", ModeSentinel, true), s.connect("no Sentinel")
	s.handler.LeaderChanged()
	c.do("SUBSCRIBE", "+switch-master")
	secure.do("HELLO", "3")
	secure.do("PSUBSCRIBE", "+switch*")
	plain.do("PSUBSCRIBE", "*")
	heard := func(want, wantSecure string) {
		t.Helper()
		if got := c.received(); got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
		if got := secure.received(); got != wantSecure {
			t.Errorf("with TLS: heard %q, want %q", got, wantSecure)
		}
	}
	s.handler.LeaderChanged() // it is the same
	heard("", "")
	f.state.Leader = ""
	s.handler.LeaderChanged()
	heard("", "")
	f.state.Leader = "c"
	host := f.state.Members[2].Host
	f.state.Members[2].Host = "" // not known yet
	s.handler.LeaderChanged()
	heard("", "")
	f.state.Members[2].Host = host
	c.do("PING")
	s.handler.LeaderChanged()
	heard("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$32\r\ntest 10.0.0.1 5550 10.0.0.3 5552\r\n",
		">4\r\n$8\r\npmessage\r\n$8\r\n+switch*\r\n$14\r\n+switch-master\r\n$32\r\ntest 10.0.0.1 6550 10.0.0.3 6552\r\n")
	if got := plain.received(); got != "" {
		t.Errorf("a client of another port heard %q", got)
	}
	c.gone()
	if channels, _ := s.handler.ports.watchers[0].Size(); channels != 0 {
		t.Error("a client that has left is still subscribed")
	}
}

// LOADING would be an error for applications: clients of Redis Cluster send again what is answered CLUSTERDOWN.
func TestWantOfALeaderIsClusterDownForClientsOfRedisCluster(t *testing.T) {
	s, _ := newNode(t, "a")
	s.do(t, "FILA.QUEUE", "CREATE", "orders")
	s.Halt(engine.ErrDeposed)
	for mode, want := range map[resp.Mode]string{ModeCluster: "-CLUSTERDOWN ", ModeStandalone: "-LOADING "} {
		if got := s.connectTo(modeName(mode), mode, false).do("FILA.ENQUEUE", "orders", "hello"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", modeName(mode), got)
		}
	}
}

func TestSentinelPortsHaveTheCommandsOfSentinel(t *testing.T) {
	s, _ := newNode(t, "b")
	var names []string
	for _, c := range s.handler.ports.tables[ModeSentinel].Commands {
		names = append(names, c.Name)
	}
	want := "auth client command hello info ping psubscribe punsubscribe quit reset role sentinel subscribe unsubscribe"
	if got := strings.Join(names, " "); got != want || !slices.IsSorted(names) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := len(s.handler.ports.tables[ModeStandalone].Commands); n != len(s.handler.table.Commands)-1 {
		t.Errorf("a port for any client has %d commands of %d", n, len(s.handler.table.Commands))
	}
}

// modeOf returns the mode of the ports at which a command does what it is for.
func modeOf(c *entry) resp.Mode {
	switch c.Spec.Group {
	case clusterGroup:
		return ModeCluster
	case sentinelGroup:
		return ModeSentinel
	default:
		return ModeStandalone
	}
}

// On other ports they are errors, so the examples of the table do not show their types.
func TestRepliesAboutNodesAreOfTheirTypes(t *testing.T) {
	tried := 0
	for _, c := range everyCommand() {
		mode := modeOf(c)
		if mode == ModeStandalone || !c.Spec.Executable() {
			continue
		}
		for _, proto := range []string{"2", "3"} {
			s, f := newNode(t, "a")
			f.state.Name = "fila" // as in the examples
			conn := s.connectTo("", mode, false)
			conn.do("HELLO", proto)
			args := strings.Fields(c.Display)
			if len(c.Spec.Examples) > 0 {
				args = strings.Fields(c.Spec.Examples[0].Command())
			}
			v, _, err := decode(conn.do(args...))
			if err != nil {
				t.Fatal(err)
			}
			tried++
			if is, err := fits(c.Spec.Returns, proto, v); err != nil || !is {
				t.Errorf("RESP%s %s: %c %s is not %s, %v", proto, c.Name, v.kind, v.text, c.Spec.Returns, err)
			}
		}
	}
	if tried < 30 {
		t.Errorf("%d replies: the test looks for them in the wrong way", tried)
	}
}

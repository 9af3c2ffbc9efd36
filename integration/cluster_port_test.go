package integration_test

import (
	"crypto/tls"
	bits "encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// greeting is what a node sends when it connects to the node port of another.
type greeting struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
}

// greetNode connects to a node port, with TLS unless secure is nil, and returns what it answers: "welcome",
// the reason of a refusal, or "closed".
func greetNode(t *testing.T, addr string, secure *tls.Config, kind byte, g greeting) string {
	t.Helper()
	body, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	var c net.Conn = kit.Dial(t, addr)
	defer c.Close()
	if secure != nil {
		secure = secure.Clone()
		secure.ServerName = "127.0.0.1"
		c = tls.Client(c, secure)
	}
	if _, err := c.Write(append(bits.BigEndian.AppendUint16([]byte{kind}, uint16(len(body))), body...)); err != nil {
		return "closed"
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(c, answer); err != nil {
		return "closed"
	}
	if answer[0] == 0 {
		return "welcome"
	}
	length := make([]byte, 2)
	if _, err := io.ReadFull(c, length); err != nil {
		return "closed"
	}
	reason, err := io.ReadAll(io.LimitReader(c, int64(bits.BigEndian.Uint16(length))))
	if err != nil {
		t.Error(err)
	}
	return string(reason)
}

// Only nodes of the cluster get an answer on the node port: not without TLS, not with a certificate of
// another authority, not of another cluster, and not under the name of another node.
func TestTheNodePortIsForNodesOfTheClusterOnly(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	before, after := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	ca.issue(t, "node", "node", before, after)
	ca.issue(t, "expired", "node", before, time.Now().Add(-time.Minute))
	other.issue(t, "node", "node", before, after)
	files := func(a *authority, trusts *authority) []string {
		return []string{"--cluster.cert_file", a.file("node"), "--cluster.key_file", a.file("node-key"), "--cluster.ca_file", trusts.file("ca")}
	}
	n := cluster(t, files(ca, ca)...)
	c := kit.Connect(t, n.Node("c").Addr(), 3)
	kit.Do(t, c, "FILA.QUEUE", "CREATE", "q")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "x")

	own := greeting{Version: 1, Name: "fila", Node: "x"}
	with := func(change func(g *greeting)) greeting {
		g := own
		change(&g)
		return g
	}
	for name, x := range map[string]struct {
		secure *tls.Config
		kind   byte
		g      greeting
		want   string
	}{
		"a node that is new":                   {ca.client(t, "node"), 'Q', own, "welcome"},
		"plain text":                           {nil, 'Q', own, "closed"},
		"no certificate":                       {ca.client(t, ""), 'Q', own, "closed"},
		"an expired certificate":               {ca.client(t, "expired"), 'Q', own, "closed"},
		"a certificate of another authority":   {func() *tls.Config { s := other.client(t, "node"); s.RootCAs = ca.client(t, "").RootCAs; return s }(), 'Q', own, "closed"},
		"another cluster":                      {ca.client(t, "node"), 'Q', with(func(g *greeting) { g.Name = "other" }), "cluster.name"},
		"another cluster of the same name":     {ca.client(t, "node"), 'Q', with(func(g *greeting) { g.Cluster = "1234" }), "formed apart"},
		"the name of this node":                {ca.client(t, "node"), 'Q', with(func(g *greeting) { g.Node = "a" }), "two nodes have the name a"},
		"another version":                      {ca.client(t, "node"), 'Q', with(func(g *greeting) { g.Version = 2 }), "upgrade the older one"},
		"Raft of a node that has not joined":   {ca.client(t, "node"), 'R', own, "has not joined the cluster yet"},
		"a link of a node that has not joined": {ca.client(t, "node"), 'L', own, "has not joined the cluster yet"},
	} {
		if got := greetNode(t, n.Node("a").Port(), x.secure, x.kind, x.g); !strings.Contains(got, x.want) {
			t.Errorf("%s is answered %q, want %q", name, got, x.want)
		}
	}
	n.refuses("without TLS", nil, "a", "waiting for b, c")
	n.refuses("with another authority", files(other, other), "a", "waiting for b, c")
	n.refuses("of another cluster", append(files(ca, ca), "--cluster.name", "other"), "a", `is of cluster \"other\"`)
	n.refuses("under the name of another", files(ca, ca), "a", "two nodes have the name a")
	kit.Do(t, c, "FILA.ENQUEUE", "q", "y")
	kit.WantStats(t, c, "q", map[string]int64{"ready": 2})
}

// refuses starts one more node with an empty disk and waits until it says why it does not become a member.
func (n *nodes) refuses(what string, args []string, id, want string) {
	n.t.Helper()
	peers := []string{id + "=" + kit.Reserve(n.t)}
	for _, other := range []string{"a", "b", "c"} {
		if other != id {
			peers = append(peers, other+"="+n.Node(other).Port())
		}
	}
	b := kit.Prepare(n.t, append([]string{"--cluster.node_id", id, "--cluster.peers", strings.Join(peers, ",")}, args...)...)
	if err := b.Start(); err != nil {
		n.t.Fatal(err)
	}
	defer kit.Stop(n.t, b)
	testkit.Eventually(n.t, "a node "+what+" is refused", func() bool {
		return strings.Contains(kit.Log(n.t, b), want)
	})
}

func TestNodesDoNotTalkInPlainTextToOtherMachines(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--cluster.peers", "a=127.0.0.1:18001,b=192.0.2.1:18002,c=127.0.0.1:18003"},
		{"--cluster.peers", "a=127.0.0.1:18001,b=127.0.0.1:18002,c=127.0.0.1:18003", "--cluster.listen_addr", "0.0.0.0:18001"},
	} {
		out, code := kit.Run(t, append([]string{"--cluster.node_id", "a", "--storage.path", t.TempDir(), "--server.listen_addr", "127.0.0.1:0"}, args...)...)
		if code != 2 || !strings.Contains(out, "cluster.cert_file") {
			t.Errorf("%v: exit code %d: %s", args, code, out)
		}
	}
}

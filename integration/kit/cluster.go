package kit

import (
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/internal/testkit"
)

// Cluster is the nodes of a cluster, which end with the test.
type Cluster struct {
	*harness.Cluster

	tb testing.TB
}

// Homes returns a directory of the test for each of so many nodes.
func Homes(tb testing.TB, count int) []string {
	tb.Helper()
	homes := make([]string, count)
	for i := range homes {
		homes[i] = tb.TempDir()
	}
	return homes
}

// ServeNodes starts three nodes and waits until they serve. They reach each other directly.
func ServeNodes(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	return ServeNodesIn(tb, Homes(tb, 3), harness.Same(args...))
}

// ServeNodesIn is ServeNodes with the directory of each node, and arguments by node. On a busy machine a leader stays one,
// and commands wait longer for the next, unless the arguments have these times.
func ServeNodesIn(tb testing.TB, homes []string, args harness.Arguments) *Cluster {
	tb.Helper()
	pace := []string{"--cluster.election_ms", slowed(400 * time.Millisecond), "--cluster.wait_ms", slowed(2 * time.Second)}
	nodes, err := harness.NewDirectCluster(Binary(tb), homes, func(id string) []string { return slices.Concat(pace, args(id)) })
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{nodes, tb}
	for _, n := range c.Nodes {
		ends(tb, "node "+n.ID, n.Broker)
	}
	if err := c.Start(testkit.Context(tb)); err != nil {
		tb.Fatal(err)
	}
	return c
}

// slowed is a default of the configuration, longer on a busy machine, in milliseconds.
func slowed(d time.Duration) string {
	return strconv.FormatInt(testkit.Slowed(d, 10).Milliseconds(), 10)
}

// leads is the log line of a node that has taken over.
var leads = regexp.MustCompile(`"term":(\d+)[^\n]*"this node leads the cluster"`)

// Leader returns the node that has begun to lead last, by what the nodes log.
func (c *Cluster) Leader() *harness.Node {
	c.tb.Helper()
	var leader *harness.Node
	newest := 0
	for _, n := range c.Nodes {
		for _, m := range leads.FindAllStringSubmatch(Log(c.tb, n.Broker), -1) {
			if term, err := strconv.Atoi(m[1]); err == nil && term > newest {
				leader, newest = n, term
			}
		}
	}
	if leader == nil {
		c.tb.Fatal("no node leads")
	}
	return leader
}

// Follower returns a node other than the leader.
func (c *Cluster) Follower() *harness.Node {
	c.tb.Helper()
	return c.Others(c.Leader().ID)[0]
}

package topology

import (
	"crypto/sha1" //nolint:gosec // an identifier, not a secret
	"encoding/hex"
	"net"
	"strconv"
	"time"
)

// Node is a node, with the addresses of one kind of clients.
type Node struct {
	ID      string // as configured
	Host    string
	Port    int // for clients; 0: it has none for them
	Bus     int // of its node port; 0: unknown
	Watch   int // for clients of Sentinel; 0: it has none for them
	Voter   bool
	Up      bool
	Applied uint64        // index of the newest entry in its store
	Heard   time.Duration // since it was last heard
}

// View is what one node tells one kind of clients about its cluster.
type View struct {
	Name   string // of the cluster, which is that of the master for clients of Sentinel
	Self   string // id of the node that answers
	Leader string // id of the leader, or of the last one; "": none was known yet
	Led    bool   // Leader leads, as far as is known
	Term   uint64
	Nodes  []Node        // all members, sorted by id
	Down   time.Duration // without a sign of the leader, after which another node is elected
	Now    time.Time
}

// Master returns the leader, or the last one. It returns nil if none was known yet, or if it has no port
// for these clients.
func (v *View) Master() *Node {
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.ID == v.Leader && v.Leader != "" && n.reachable() {
			return n
		}
	}
	return nil
}

// Replicas returns the other nodes that have a port for these clients.
func (v *View) Replicas() []*Node {
	var all []*Node
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.ID != v.Leader && n.reachable() {
			all = append(all, n)
		}
	}
	return all
}

func (n *Node) reachable() bool { return n.Host != "" && n.Port != 0 }

// Addr returns the address for clients, as net.Dial takes it.
func (n *Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(n.Port)) }

// runID returns forty hexadecimal digits for a node, the same from every node and after every start. Clients
// compare them, and some take nothing else.
func (v *View) runID(kind, node string) string {
	sum := sha1.Sum([]byte(kind + "/" + v.Name + "/" + node)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// NodeID returns the id of a node in replies of CLUSTER.
func (v *View) NodeID(node string) string { return v.runID("node", node) }

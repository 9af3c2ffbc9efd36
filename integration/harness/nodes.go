package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Node is a broker that is a node of a cluster.
type Node struct {
	*Broker

	ID   string
	Home string // its data, the replicated log and the text that it writes are below
	port string // address of its node port
}

// Cluster is the nodes of a cluster on this machine. What they say to each other goes through
// Network, which can cut it.
type Cluster struct {
	Nodes   []*Node
	Network *Network
}

// Arguments are those that a node is started with, by its id.
type Arguments func(id string) []string

// Same returns the same arguments for all nodes.
func Same(args ...string) Arguments { return func(string) []string { return args } }

// NewCluster prepares a node below each of the homes, which must exist. Nodes are named a, b, c and so on.
// It starts no process.
func NewCluster(bin string, homes []string, args Arguments) (*Cluster, error) {
	listens, err := listens(homes)
	if err != nil {
		return nil, err
	}
	network, reached, err := NewNetwork(listens)
	if err != nil {
		return nil, err
	}
	c, err := newCluster(bin, homes, listens, reached, args)
	if err != nil {
		return nil, errors.Join(err, network.Close())
	}
	c.Network = network
	return c, nil
}

// NewDirectCluster is NewCluster without a network in between.
func NewDirectCluster(bin string, homes []string, args Arguments) (*Cluster, error) {
	listens, err := listens(homes)
	if err != nil {
		return nil, err
	}
	return newCluster(bin, homes, listens, listens, args)
}

// listens returns an address for the node port of each node.
func listens(homes []string) (map[string]string, error) {
	all := map[string]string{}
	for i := range homes {
		addr, err := Reserve()
		if err != nil {
			return nil, err
		}
		all[idOf(i)] = addr
	}
	return all, nil
}

// idOf returns the name of a node.
func idOf(i int) string { return string(rune('a' + i)) }

func newCluster(bin string, homes []string, listens, reached map[string]string, args Arguments) (*Cluster, error) {
	var peers []string
	for i := range homes {
		peers = append(peers, idOf(i)+"="+reached[idOf(i)])
	}
	c := &Cluster{}
	for i, home := range homes {
		id := idOf(i)
		b, err := New(bin, home, append([]string{
			"--cluster.node_id", id, "--cluster.peers", strings.Join(peers, ","), "--cluster.listen_addr", listens[id],
		}, args(id)...)...)
		if err != nil {
			return nil, err
		}
		c.Nodes = append(c.Nodes, &Node{Broker: b, ID: id, Home: home, port: listens[id]})
	}
	return c, nil
}

// Close kills all nodes and ends the network.
func (c *Cluster) Close() error {
	for _, n := range c.Nodes {
		_ = n.Signal(syscall.SIGCONT) // a stopped process dies as well, but its exit is reported later
		_ = n.Kill()
	}
	if c.Network == nil {
		return nil
	}
	return c.Network.Close()
}

// Start starts all nodes and waits until they serve.
func (c *Cluster) Start(ctx context.Context) error {
	for _, n := range c.Nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.Ready(ctx); err != nil {
			return fmt.Errorf("node %s: %w", n.ID, err)
		}
	}
	return nil
}

// Node returns the node of a name.
func (c *Cluster) Node(id string) *Node {
	for _, n := range c.Nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Others returns the nodes but one.
func (c *Cluster) Others(id string) (all []*Node) {
	for _, n := range c.Nodes {
		if n.ID != id {
			all = append(all, n)
		}
	}
	return all
}

// Port returns the address of the node port, at which the node listens for others.
func (n *Node) Port() string { return n.port }

// ClusterPath returns the directory of the replicated log.
func (n *Node) ClusterPath() string { return n.Data() + "-cluster" }

// CopyDisk copies all data of a node whose process has ended to a directory that does not exist yet.
func (n *Node) CopyDisk(to string) error {
	if n.PID() != 0 {
		return fmt.Errorf("node %s runs", n.ID)
	}
	names, err := filepath.Glob(n.Data() + "*")
	for _, name := range names {
		err = errors.Join(err, os.CopyFS(filepath.Join(to, filepath.Base(name)), os.DirFS(name)))
	}
	return err
}

// BringBack replaces all data of a node whose process has ended by what CopyDisk has copied to a directory.
func (n *Node) BringBack(from string) error {
	if err := n.Wipe(); err != nil {
		return err
	}
	return os.CopyFS(filepath.Dir(n.Data()), os.DirFS(from))
}

// Wipe removes all data of a node whose process has ended, as if it got a new disk.
func (n *Node) Wipe() error {
	if n.PID() != 0 {
		return fmt.Errorf("node %s runs", n.ID)
	}
	names, err := filepath.Glob(n.Data() + "*")
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}

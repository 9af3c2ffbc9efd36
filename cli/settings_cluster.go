package cli

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faisca/fila/cli/remote"
)

// Cluster configures replication among several nodes.
type Cluster struct {
	NodeID       string // empty: no replication
	Name         string
	Path         string // expanded; empty: derived from storage.path, see Config.ClusterPath
	Peers        []Peer // all nodes, this one too, in the order of their ids
	ListenAddr   string // empty: that of this node in Peers
	Advertise    string // host at which clients reach this node; empty: that of this node in Peers
	CertFile     string // mutual TLS between nodes; empty: none
	KeyFile      string
	CAFile       string
	TrustNetwork bool // addresses beyond loopback may be without TLS

	// Ports for clients of Redis Cluster and of Redis Sentinel; empty: none.
	ClientAddr, ClientTLSAddr     string
	SentinelAddr, SentinelTLSAddr string

	Wait     time.Duration
	Election time.Duration
	LogBytes int64
}

// Peer is a node of a cluster.
type Peer struct{ ID, Addr string }

// ClusterPath returns the directory of Raft's log and of the node's identity.
func (c *Config) ClusterPath() string {
	if c.Cluster.Path != "" {
		return c.Cluster.Path
	}
	return filepath.Clean(c.Storage.Path) + ClusterSuffix
}

// ClusterSuffix is appended to the data directory to get the default directory of the replicated log.
const ClusterSuffix = "-cluster"

// Own returns this node's entry of Peers.
func (c *Cluster) Own() Peer {
	i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.ID == c.NodeID })
	if i < 0 {
		return Peer{}
	}
	return c.Peers[i]
}

// Listen returns the address at which this node listens for the others.
func (c *Cluster) Listen() string {
	if c.ListenAddr != "" {
		return c.ListenAddr
	}
	return c.Own().Addr
}

// Host returns the host at which clients reach this node, as other nodes tell it.
func (c *Cluster) Host() string {
	if c.Advertise != "" {
		return c.Advertise
	}
	host, _, err := net.SplitHostPort(c.Own().Addr)
	if err != nil {
		return ""
	}
	return host
}

// Port is an address for one kind of clients.
type Port struct {
	Setting, Addr string
	TLS, Sentinel bool
}

// Ports returns the addresses for clients of Redis Cluster and of Redis Sentinel that are set.
func (c *Cluster) Ports() []Port {
	all := []Port{
		{Setting: "cluster.client_addr", Addr: c.ClientAddr}, {Setting: "cluster.client_tls_addr", Addr: c.ClientTLSAddr, TLS: true},
		{Setting: "cluster.sentinel_addr", Addr: c.SentinelAddr, Sentinel: true}, {Setting: "cluster.sentinel_tls_addr", Addr: c.SentinelTLSAddr, TLS: true, Sentinel: true},
	}
	return slices.DeleteFunc(all, func(p Port) bool { return p.Addr == "" })
}

// nodesMin is the least number of nodes: with two, neither may go on without the other, so
// they would stop more often than one.
const nodesMin = 3

// clusterSettings are about replication.
func clusterSettings(c *Cluster) []setting {
	path := func(to *string) text { return text{to: to, of: "path", says: "a file"} }
	return []setting{
		entry("cluster.node_id", text{to: &c.NodeID, check: checkNodeID, of: "name", says: "empty, or letters, digits and -"},
			"The name of this node in a cluster of several that replicate each other's data; empty: no replication. It must be one of `cluster.peers` and "+
				"must never be given to two nodes. Replication is being built: try it, and do not entrust data to it yet."),
		entry("cluster.name", text{to: &c.Name, def: "fila", check: checkClusterName, of: "name", says: "letters, digits and -"},
			"The name of the cluster, the same on all nodes. Nodes with another name are refused, so that two clusters never mix."),
		entry("cluster.peers", peers{&c.Peers},
			"All nodes, this one too, the same list on each: at least three, each as `id=host:port` of its node port. An array in a file, separated by commas "+
				"elsewhere. Three or five of them vote; of four, or of more than five, those that join last only keep a copy."),
		entry("cluster.path", text{to: &c.Path, of: "path", says: "empty, or a directory"},
			"The directory of the replicated log and of this node's identity, created if it does not exist. Empty: `storage.path` with the suffix `-cluster`. "+
				"Removing it and `storage.path` makes the node join again with a copy of the others' data."),
		entry("cluster.listen_addr", text{to: &c.ListenAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Where this node listens for the others. Empty: at its address in `cluster.peers`."),
		entry("cluster.advertise_host", text{to: &c.Advertise, check: checkAdvertised, of: "host", says: "a host without a port, or empty"},
			"The host at which clients reach this node, which other nodes and `ROLE` tell them; the port is that of the listener. Empty: the host of this "+
				"node in `cluster.peers`."),
		entry("cluster.cert_file", path(&c.CertFile),
			"This node's certificate in PEM, for both directions: connections between nodes use TLS, and each side shows one. It must be valid for the host in "+
				"`cluster.peers`. The three files are reloaded when they change. Without them only addresses of this machine are accepted, unless "+
				"`cluster.trust_network` is true."),
		entry("cluster.key_file", path(&c.KeyFile), "The certificate's private key in PEM."),
		entry("cluster.ca_file", path(&c.CAFile), "Certificates, in PEM, of the authorities whose certificates other nodes may show. Any of these may join: use an authority for this cluster alone."),
		entry("cluster.trust_network", boolean{to: &c.TrustNetwork},
			"Allows connections between nodes without TLS beyond this machine. Anything that reaches the node port can then read and change all data: only for "+
				"a network that nothing else is on."),
		entry("cluster.wait_ms", millis(&c.Wait, 2000, 0, 60_000),
			"How long a command waits while no node leads, before it is answered `LOADING`."),
		entry("cluster.election_ms", millis(&c.Election, 400, 50, 60_000),
			"Time without a sign of the leader after which another node is elected; an election takes about as long again. At least ten times the round trip "+
				"between nodes."),
		entry("cluster.log_bytes", sized(&c.LogBytes, gib, 4*mib, 1024*gib),
			"Size of the replicated log above which its older half is cut off. A node that has missed more than what is left gets a copy of the data instead of "+
				"the log."),
	}
}

// clusterPorts are about clients that know of several nodes.
func clusterPorts(c *Cluster) []setting {
	return []setting{
		entry("cluster.client_addr", text{to: &c.ClientAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Where this node listens for clients of Redis Cluster; empty: nowhere. A node that does not lead sends such a client to the leader (`MOVED`), where "+
				"`server.listen_addr` passes its commands on. Set it on all nodes."),
		entry("cluster.client_tls_addr", text{to: &c.ClientTLSAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"The same with TLS, with the files of `tls`."),
		entry("cluster.sentinel_addr", text{to: &c.SentinelAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"Where this node tells clients of Redis Sentinel which node leads; empty: nowhere. They are sent to `server.listen_addr` of the leader, and know it "+
				"by the name `cluster.name`. Set it on all nodes."),
		entry("cluster.sentinel_tls_addr", text{to: &c.SentinelTLSAddr, check: checkOptionalAddr, of: "host:port", says: "host:port or empty"},
			"The same with TLS, with the files of `tls`; such clients are sent to `tls.listen_addr`."),
	}
}

func isName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-"
	return s != "" && len(s) <= 64 && strings.Trim(s, letters) == ""
}

func checkNodeID(s string) error {
	if s != "" && !isName(s) {
		return fmt.Errorf("must be up to 64 letters, digits and -, not %.80q", s)
	}
	return nil
}

func checkAdvertised(s string) error {
	if strings.ContainsAny(s, " \t\r\n/") || strings.Count(s, ":") == 1 {
		return fmt.Errorf("must be a host without a port, not %.80q", s)
	}
	return nil
}

func checkClusterName(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return checkNodeID(s)
}

// peers is a list of nodes, sorted by id.
type peers struct{ to *[]Peer }

func (p peers) reset() { *p.to = nil }

func (p peers) set(raw any) error {
	list, ok := raw.([]any)
	if !ok {
		return errors.New("must be a list of texts in quotes, each id=host:port")
	}
	words := make([]string, len(list))
	for i, each := range list {
		if words[i], ok = each.(string); !ok {
			return errors.New("must be a list of texts in quotes, each id=host:port")
		}
	}
	return p.take(words)
}

func (p peers) parse(s string) error {
	return p.take(strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }))
}

func (p peers) take(words []string) error {
	var all []Peer
	for _, w := range words {
		id, addr, ok := strings.Cut(w, "=")
		if !ok || !isName(id) {
			return fmt.Errorf("must consist of id=host:port, the id of letters, digits and -, not %.160q", w)
		}
		if err := remote.CheckAddr(addr); err != nil {
			return fmt.Errorf("with the address of %s: it %w", id, err)
		}
		for _, other := range all {
			switch {
			case other.ID == id:
				return fmt.Errorf("must name each node once, %s is there twice", id)
			case other.Addr == addr:
				return fmt.Errorf("must have an address of its own for each node, %s and %s have %s", other.ID, id, addr)
			}
		}
		all = append(all, Peer{ID: id, Addr: addr})
	}
	slices.SortFunc(all, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	*p.to = all
	return nil
}

func (p peers) words() []string {
	words := make([]string, len(*p.to))
	for i, each := range *p.to {
		words[i] = each.ID + "=" + each.Addr
	}
	return words
}

func (p peers) String() string  { return strings.Join(p.words(), ",") }
func (p peers) kind() string    { return "id=host:port,..." }
func (p peers) bounds() string  { return "a list of id=host:port" }
func (p peers) literal() string { w := p.words(); return lines{to: &w}.literal() }

// checkCluster refuses settings that replication does not go with.
func (c *Config) checkCluster() error {
	l := &c.Cluster
	if l.NodeID == "" {
		if len(l.Peers) > 0 {
			return errors.New("cluster.peers needs cluster.node_id, which says which of them this node is")
		}
		if ports := l.Ports(); len(ports) > 0 {
			return fmt.Errorf("%s needs cluster.node_id: without a cluster, clients of any kind connect to server.listen_addr", ports[0].Setting)
		}
		return nil
	}
	switch {
	case len(l.Peers) < nodesMin:
		return fmt.Errorf("cluster.peers names %d nodes, and must name at least %d: of two, neither may go on without the other, so they would stop more "+
			"often than a single node", len(l.Peers), nodesMin)
	case l.Own() == Peer{}:
		return fmt.Errorf("cluster.peers must name this node, %s, with the address at which others reach it", l.NodeID)
	case c.Storage.Engine == EngineMemory:
		return errors.New("cluster.node_id does not go with storage.engine memory: a node that forgets what it has acknowledged would lose the data of all")
	case c.Storage.Sync != SyncAlways:
		return fmt.Errorf("cluster.node_id does not go with storage.sync %s: a node that forgets what it has acknowledged breaks the promise of all; set it to always", c.Storage.Sync)
	case l.sharesAddr(c) != "":
		return fmt.Errorf("%s has the address of another listener: choose a port of its own", l.sharesAddr(c))
	case c.Server.QueuesFile != "", !c.Empty():
		return errors.New("cluster.node_id does not go with server.queues_file, [[queues]], [[topics]] or [[throttles]]: a change of the leader would undo what was altered since; use `fila queues apply`")
	}
	return l.checkTLS()
}

// sharesAddr returns the first of Ports that has the address of another listener, "" if none has. Port 0 is
// never the same.
func (c *Cluster) sharesAddr(all *Config) string {
	taken := []string{all.Server.ListenAddr, all.TLS.ListenAddr, all.Admin.ListenAddr, c.Listen()}
	for _, p := range c.Ports() {
		if slices.Contains(taken, p.Addr) && !strings.HasSuffix(p.Addr, ":0") {
			return p.Setting
		}
		taken = append(taken, p.Addr)
	}
	return ""
}

// checkTLS refuses connections between nodes that others could read.
func (c *Cluster) checkTLS() error {
	given := 0
	for _, file := range []string{c.CertFile, c.KeyFile, c.CAFile} {
		if file != "" {
			given++
		}
	}
	switch {
	case given == 3:
		return nil
	case given > 0:
		return errors.New("cluster.cert_file, cluster.key_file and cluster.ca_file belong together: set all three")
	case c.TrustNetwork:
		return nil
	}
	addrs := []string{c.Listen()}
	for _, p := range c.Peers {
		addrs = append(addrs, p.Addr)
	}
	for _, addr := range addrs {
		if !loopback(addr) {
			return fmt.Errorf("cluster address %s is not of this machine alone: set cluster.cert_file, cluster.key_file and cluster.ca_file, or "+
				"cluster.trust_network if nothing else is on that network", addr)
		}
	}
	return nil
}

package commands

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/faisca/fila/engine"
	"github.com/faisca/fila/internal/cluster/topology"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/events"
	"github.com/faisca/fila/resp"
)

// This file has the modes of ports, and all in which their replies differ.
//
// A mode says which kind of client a port of a node is for. The commands are the same, but for those that are
// about the nodes:
//
//	standalone  any client. A node that does not lead passes commands on to the leader (relay.go), so that
//	            no client is ever sent to another node. A broker without replication has no other mode
//	cluster     clients of Redis Cluster. A node that does not lead answers commands that name a queue with
//	            MOVED and the address of the leader, once it is known. Before, and commands that name none,
//	            it passes them on. What is refused for lack of a leader is CLUSTERDOWN instead of LOADING:
//	            clients of Redis Cluster send such commands again
//	sentinel    clients that ask a Redis Sentinel where the master is. There are no queues, but SENTINEL,
//	            and another node that leads is an event

// The modes of ports.
const (
	ModeStandalone resp.Mode = iota
	ModeCluster
	ModeSentinel
	modes
)

// modeName returns the name of a mode in HELLO and INFO.
func modeName(m resp.Mode) string { return [modes]string{"standalone", "cluster", "sentinel"}[m] }

// served reports whether ports of a mode have a command.
func served(m resp.Mode, c *entry) bool {
	if m != ModeSentinel {
		return c.Name != "sentinel"
	}
	return slices.Contains([]string{
		"auth", "client", "command", "hello", "info", "ping", "psubscribe", "punsubscribe", "quit", "reset", "role", "sentinel", "subscribe",
		"unsubscribe",
	}, c.Name)
}

// ports is what a handler has for the modes.
type ports struct {
	tables [modes]*command.Table[*Session, call]
	self   string // id of this node; "" without replication
	// watchers have the subscriptions of clients of Sentinel: of those without TLS, and of those with it:
	// these are told other ports.
	watchers [2]*events.Hub

	mu   sync.Mutex
	last Member // the newest leader whose address was known; zero: there was none
}

// noSource is the source of hubs to which the engine delivers nothing.
type noSource struct{}

// Want implements events.Source.
func (noSource) Want(_, _ engine.EventKind) {}

// openPorts prepares the modes.
func (h *Handler) openPorts() {
	p := &h.ports
	for m := range modes {
		p.tables[m] = h.table.Only(func(c *entry) bool { return served(m, c) })
	}
	p.watchers = [2]*events.Hub{events.New(noSource{}), events.New(noSource{})}
	if h.cfg.Replication != nil {
		p.self = h.cfg.Replication.State().Node
	}
}

// table returns the commands of the session's port.
func (s *Session) table() *command.Table[*Session, call] { return s.handler.ports.tables[s.mode] }

// hub returns where the session subscribes.
func (s *Session) hub() *events.Hub {
	switch p := &s.handler.ports; {
	case s.mode != ModeSentinel:
		return s.handler.hub
	case s.secure:
		return p.watchers[1]
	default:
		return p.watchers[0]
	}
}

// port returns the port at which clients of a mode reach a node, with TLS if they use it and the node has
// such a port; 0: there is none. Clients of Sentinel are sent to the port for any client.
func (m *Member) port(mode resp.Mode, secure bool) int {
	if mode == ModeCluster {
		return choosePort(m.ClusterPort, m.ClusterTLSPort, secure)
	}
	return choosePort(m.Port, m.TLSPort, secure)
}

func choosePort(plain, tls int, secure bool) int {
	if secure && tls != 0 || plain == 0 {
		return tls
	}
	return plain
}

// node returns what clients of a mode are told of a node.
func (m *Member) node(mode resp.Mode, secure bool) topology.Node {
	n := topology.Node{
		ID: m.ID, Host: m.Host, Port: m.port(mode, secure), Watch: choosePort(m.SentinelPort, m.SentinelTLSPort, secure),
		Voter: m.Voter, Up: m.Connected(), Applied: m.Applied, Heard: m.Heard,
	}
	if _, port, err := net.SplitHostPort(m.Addr); err == nil {
		n.Bus, _ = strconv.Atoi(port) // 0 is unknown
	}
	return n
}

// view returns what clients of the session's port are told of the nodes.
func (s *Session) view() *topology.View {
	h := s.handler
	last := h.LeaderChanged()
	r := h.replication()
	v := &topology.View{
		Name: r.Name, Self: r.Node, Leader: r.Leader, Led: r.Leader != "", Term: r.Term, Down: r.Election, Now: h.cfg.Now(),
	}
	if v.Leader == "" {
		v.Leader = last
	}
	for i := range r.Members {
		v.Nodes = append(v.Nodes, r.Members[i].node(s.mode, s.secure))
	}
	return v
}

// LeaderChanged tells clients of Sentinel of another leader, once its address is known. It is called when
// another node leads, and returns the id of the newest leader that could be told.
func (h *Handler) LeaderChanged() (last string) {
	if h.cfg.Replication == nil {
		return ""
	}
	r := h.cfg.Replication.State()
	p, leader := &h.ports, r.leader()
	p.mu.Lock()
	defer p.mu.Unlock()
	if leader.Host == "" {
		return p.last.ID
	}
	for i, hub := range p.watchers {
		from, to := p.last.node(ModeSentinel, i == 1), leader.node(ModeSentinel, i == 1)
		if p.last.ID != "" && from.Addr() != to.Addr() {
			hub.Deliver(h.cfg.Now(), []byte(topology.SwitchMaster), []byte(topology.Switched(r.Name, &from, &to)))
		}
	}
	p.last = leader
	return leader.ID
}

// slot returns the slot of the queue that the current command names first, or else -1. A transaction has
// that of its first command with a queue.
func (s *Session) slot(c *entry) int {
	if c.Name == "exec" {
		if s.tx.open == nil || s.tx.open.failed {
			return -1
		}
		return s.tx.open.slot
	}
	keys := s.in.Keys()
	if len(keys) == 0 {
		return -1
	}
	return topology.Slot(keys[0])
}

// redirect returns the error that sends a client of Redis Cluster to another node for the current command;
// nil: it is executed from here.
func (s *Session) redirect(c *entry) error {
	if s.mode != ModeCluster || s.nodes.readsHere && c.Spec.Has("readonly") {
		return nil
	}
	slot := s.slot(c)
	if slot < 0 {
		return nil
	}
	leader, known := s.handler.cfg.Replication.Leader()
	if !known || leader.ID == s.handler.ports.self {
		return nil
	}
	n := leader.node(s.mode, s.secure)
	if n.Host == "" || n.Port == 0 {
		return nil // not known yet, or it has no port for this client
	}
	return command.Refuse("MOVED", n.Moved(slot))
}

// redirected answers the current command with the address of another node, if redirect says so, and
// reports whether it has.
func (s *Session) redirected(c *entry, silent bool) bool {
	err := s.redirect(c)
	if err == nil {
		return false
	}
	s.failTransaction(c, 0)
	s.reject(c, silent, err)
	return true
}

// code returns the code of an error as ports of the session's mode have it.
func (s *Session) code(code string) string {
	if s.mode == ModeCluster && code == "LOADING" {
		return clusterDown
	}
	return code
}

// checkPort refuses commands that only ports of another mode have, but that are commands of Redis on all ports.
func (s *Session) checkPort(c *entry) error {
	if c.Spec.Group == clusterGroup && c.Parent != nil && s.mode != ModeCluster && !s.nodes.relayed {
		return errNoCluster()
	}
	return nil
}

// clusterDown is the code by which clients of Redis Cluster try again.
const clusterDown = "CLUSTERDOWN"

func errNoCluster() error { return command.Refuse("ERR", "This instance has cluster support disabled") }

const (
	clusterGroup  = "cluster"
	sentinelGroup = "sentinel"
)

// nodesRoom is the room of a command that describes all nodes.
func nodesRoom(s *Session, _ *input) int {
	return tinyRoom + len(s.handler.replication().Members)*topology.NodeBytes
}

// aboutNodes describes a subcommand of CLUSTER or SENTINEL that is answered from what this node knows.
// write writes its reply, for a view that has a master if it takes the name of one.
func aboutNodes(s Spec, room func(*Session, *input) int, write func(s *Session, v *topology.View, in *input, w *resp.Writer) error) Spec {
	s.Complexity = "O(N) where N is the number of nodes"
	s.Flags, s.Tips = append(s.Flags, "loading", "stale"), []string{"nondeterministic_output"}
	if s.Room = room; room != nil {
		s.Memory = "2 KiB for each node"
	}
	s.Local = func(s *Session, in *input, w *resp.Writer) error { return write(s, s.view(), in, w) }
	return s
}

func cluster() Spec {
	about := func(s Spec, room func(*Session, *input) int, write func(s *Session, v *topology.View, in *input, w *resp.Writer) error) Spec {
		s.Group = clusterGroup
		s.Differs = "An error but on `cluster.client_addr`, the port for clients of Redis Cluster."
		s.Examples = []Example{{"CLUSTER " + s.Name + strings.Repeat(" orders", len(s.Args)), "(error) ERR This instance has cluster support disabled"}}
		return aboutNodes(s, room, write)
	}
	text := func(write func(v *topology.View) string) func(*Session, *topology.View, *input, *resp.Writer) error {
		return func(_ *Session, v *topology.View, _ *input, w *resp.Writer) error {
			w.Verbatim(write(v))
			return nil
		}
	}
	return container("CLUSTER", clusterGroup, "3.0.0", "commands about the nodes, for clients of Redis Cluster",
		about(Spec{Name: "INFO", Since: "3.0.0", Returns: "text", Summary: "Returns the state of the cluster: fail while no node leads."}, nil, text((*topology.View).InfoText)),
		about(Spec{
			Name: "KEYSLOT", Since: "3.0.0", Returns: "integer", Summary: "Returns the slot of the name of a queue.", Args: []Arg{{Name: "key", Type: String}},
		}, nil, func(_ *Session, _ *topology.View, in *input, w *resp.Writer) error {
			w.Int(int64(topology.Slot(in.Bytes("key"))))
			return nil
		}),
		about(Spec{Name: "MYID", Since: "3.0.0", Returns: "string", Summary: "Returns the id by which replies of CLUSTER name this node."}, nil,
			func(_ *Session, v *topology.View, _ *input, w *resp.Writer) error {
				w.BulkString(v.NodeID(v.Self))
				return nil
			}),
		about(Spec{Name: "NODES", Since: "3.0.0", Returns: "text", Summary: "Describes the nodes, one on a line."}, nodesRoom, text((*topology.View).NodesText)),
		about(Spec{Name: "SHARDS", Since: "7.0.0", Returns: "array of map", Summary: "Describes the one shard: its slots and its nodes."}, nodesRoom,
			func(s *Session, v *topology.View, _ *input, w *resp.Writer) error {
				v.WriteShards(w, s.secure)
				return nil
			}),
		about(Spec{
			Name: "SLOTS", Since: "3.0.0", Returns: "array of array", Summary: "Returns the one range of slots with its nodes, the leader first, then its replicas.",
		}, nodesRoom, func(_ *Session, v *topology.View, _ *input, w *resp.Writer) error {
			v.WriteSlots(w)
			return nil
		}),
	)
}

func asking() Spec {
	return Spec{
		Name: "ASKING", Group: clusterGroup, Since: "3.0.0", Complexity: "O(1)", Returns: "status",
		Summary: "Does nothing: no slot is ever moved to another node.",
		Differs: "An error but on `cluster.client_addr`, the port for clients of Redis Cluster.",
		Flags:   []string{"fast"}, ACL: []string{"connection"},
		Examples: []Example{{"ASKING", "(error) ERR This instance has cluster support disabled"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			if s.mode != ModeCluster {
				return errNoCluster()
			}
			w.OK()
			return nil
		},
	}
}

// readsHere describes READONLY and READWRITE.
func readsHere(name, summary string, yes bool) Spec {
	return Spec{
		Name: name, Group: clusterGroup, Since: "3.0.0", Complexity: "O(1)", Returns: "status",
		Summary: summary,
		Differs: "No node answers reads from its own copy. Replies OK, without effect, but on `cluster.client_addr`, where Redis refuses.",
		Flags:   []string{"loading", "stale", "fast"}, ACL: []string{"connection"},
		Examples: []Example{{name, "OK"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			s.nodes.readsHere = yes
			w.OK()
			return nil
		},
	}
}

func readonly() Spec {
	return readsHere("READONLY", "Lets the connection read at a node that does not lead, which asks the leader, instead of sending the client there.", true)
}

func readwrite() Spec {
	return readsHere("READWRITE", "Ends the effect of READONLY.", false)
}

// errNoMaster is Redis Sentinel's error for a name that it does not watch.
func errNoMaster() error { return command.Refuse("ERR", "No such master with that name") }

func sentinel() Spec {
	about := func(s Spec, room func(*Session, *input) int, write func(v *topology.View, w *resp.Writer) error) Spec {
		s.Group = sentinelGroup
		s.Differs = "A command of Redis Sentinel, on `cluster.sentinel_addr` only; the name of the master is `cluster.name`."
		s.Examples = []Example{{"SENTINEL " + s.Name + strings.Repeat(" fila", len(s.Args)), "..."}}
		named := len(s.Args) > 0
		return aboutNodes(s, room, func(_ *Session, v *topology.View, in *input, w *resp.Writer) error {
			if named && (in.Text("master-name") != v.Name || v.Master() == nil) {
				if s.Name == "GET-MASTER-ADDR-BY-NAME" {
					w.NullArray()
					return nil
				}
				return errNoMaster()
			}
			return write(v, w)
		})
	}
	written := func(write func(v *topology.View, w *resp.Writer)) func(*topology.View, *resp.Writer) error {
		return func(v *topology.View, w *resp.Writer) error {
			write(v, w)
			return nil
		}
	}
	name := []Arg{{Name: "master-name", Type: String}}
	replicas := func(as, since string) Spec {
		return about(Spec{Name: as, Since: since, Returns: "array of map", Summary: "Describes the nodes that do not lead.", Args: name}, nodesRoom, written((*topology.View).WriteReplicas))
	}
	return container("SENTINEL", sentinelGroup, "2.8.4", "commands about the leader, for clients of Redis Sentinel",
		about(Spec{Name: "CKQUORUM", Since: "2.8.4", Returns: "status", Summary: "Tells whether as many nodes are up as it takes to elect a leader.", Args: name}, nil,
			func(v *topology.View, w *resp.Writer) error {
				text, ok := v.Quorum()
				if !ok {
					return command.Refuse("NOQUORUM", text)
				}
				w.Status("OK " + text)
				return nil
			}),
		about(Spec{
			Name: "GET-MASTER-ADDR-BY-NAME", Since: "2.8.4", Returns: "array (string, string) or nil",
			Summary: "Returns host and port of the leader, of the last one while none leads.", Args: name,
		}, nil, written(func(v *topology.View, w *resp.Writer) { v.WriteAddr(w, v.Name) })),
		about(Spec{Name: "MASTER", Since: "2.8.4", Returns: "map", Summary: "Describes the leader.", Args: name}, nil, written((*topology.View).WriteMaster)),
		about(Spec{Name: "MASTERS", Since: "2.8.4", Returns: "array of map", Summary: "Describes the leader, the one master."}, nil, written((*topology.View).WriteMasters)),
		about(Spec{Name: "MYID", Since: "6.2.0", Returns: "string", Summary: "Returns the id by which replies of SENTINEL name this node."}, nil,
			written(func(v *topology.View, w *resp.Writer) { w.BulkString(v.SentinelID(v.Self)) })),
		replicas("REPLICAS", "5.0.0"),
		about(Spec{Name: "SENTINELS", Since: "2.8.4", Returns: "array of map", Summary: "Describes the other nodes with a port for clients of Redis Sentinel.", Args: name}, nodesRoom,
			written((*topology.View).WriteSentinels)),
		replicas("SLAVES", "2.8.0"),
	)
}

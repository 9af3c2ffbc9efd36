package commands

import (
	"crypto/sha1" //nolint:gosec // an identifier, not a secret
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/internal/cluster/relay"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/resp"
)

// This file has what a node tells of its cluster: ROLE, WAIT, and the sections replication and cluster
// of INFO. All of it comes from what this node knows by itself, so no node waits for another one, and a
// node says what it knows also when there is no leader.

// Replication tells what a node knows of its cluster. It is safe for concurrent use, and no method
// waits.
type Replication interface {
	// State returns what this node knows. Nodes ask each other once a second, and at once when another one
	// leads.
	State() ReplicationState
	// Refresh has all other nodes asked anew, and calls done when each has answered or has failed to: it
	// takes seconds if one is silent. done is called once, from any goroutine, also when end is called.
	Refresh(done func()) (end func())
	// Leader returns the node that leads, false if none is known to. It is cheap.
	Leader() (Member, bool)
	// Await calls done with the number of other nodes that hold everything that this node holds when
	// it is called: as soon as these are n, after the timeout (0: none), or when end is called. done is
	// called once, from any goroutine. Await does not wait, and end may be called several times.
	Await(n int, timeout time.Duration, done func(nodes int)) (end func())
	// Learner, Voter, Remove, Transfer and Verify have the leader do what the subcommands of FILA.CLUSTER of
	// these names are for. done is called once, from any goroutine. An error that is no *command.Error has
	// the code ERR.
	Learner(node string, done func(error))
	Voter(node string, done func(error))
	Remove(node string, done func(error))
	Transfer(to string, done func(error))
	Verify(done func(nodes []Verified, err error))
}

// Verified is what Verify has found of the store of a node.
type Verified struct {
	Node    string
	Result  string // equal, differs or unknown
	Digest  string // hexadecimal; "": unknown
	Records uint64
	Reason  string // why it is unknown
}

// ReplicationState is what a node knows of its cluster at one time.
type ReplicationState struct {
	Cluster string // id of the cluster; "": this node is not a member yet
	Name    string // of the cluster, as configured
	Node    string // id of this node
	Leader  string // id of the node that leads; "": none is known to
	Leading bool   // this node leads, and has the engine
	// Election is the time without a sign of the leader after which another node is elected.
	Election time.Duration
	Trouble  string // why this node is not a member yet; "": nothing
	Term     uint64 // Raft's
	Commit   uint64 // index of the newest entry of the log that a majority has, as far as this node knows
	Applied  uint64 // index of the newest batch in the store of this node
	// Heard is the time since this node heard of the leader; 0 if it leads. LinkUp says that it did so
	// lately.
	Heard   time.Duration
	LinkUp  bool
	Sending int // copies of the store that this node sends to others
	// Failovers counts the changes from one leader to another that this node has seen since its start.
	Failovers uint64
	// Members are all nodes, sorted by id, this one too. Before this node is a member, these are the
	// nodes that the configuration names.
	Members []Member
}

// Member is a node of a cluster. What it tells of itself is zero if it was never heard.
type Member struct {
	ID      string
	Addr    string // of its node port
	Voter   bool
	Learner bool // FILA.CLUSTER LEARNER has named it
	State   MemberState

	// Host and the ports are where clients reach it. A port is 0 if it does not listen.
	Host            string
	Port            int // of plain clients; that with TLS if there is no other
	TLSPort         int
	ClusterPort     int // of clients that follow MOVED
	ClusterTLSPort  int
	SentinelPort    int // of clients that ask for the leader
	SentinelTLSPort int

	Version  string        // of Fila
	Applied  uint64        // index of the newest batch in its store
	Behind   uint64        // entries of the log that others have had for a second, and it has not
	Late     time.Duration // since it had all that the others had; 0 if Behind is
	Heard    time.Duration // since it was last heard; 0 for this node, negative: never
	Skew     time.Duration // its clock less that of this node
	Free     uint64        // bytes of its disk; 0: unknown
	Trouble  string        // why it does not answer, or is not a member yet; "": nothing
	LogBytes int64         // of its replicated log
}

// MemberState says how a node is.
type MemberState string

// The states of a member, the best first.
const (
	MemberOnline   MemberState = "online"   // it has what the others have
	MemberBehind   MemberState = "behind"   // it lacks entries for longer than some seconds, or has not had them since it came
	MemberReadOnly MemberState = "readonly" // its store or its log takes no writes
	MemberJoining  MemberState = "joining"  // it waits for a copy of the data, for its vote, or for the others
	MemberDown     MemberState = "down"     // it does not answer
)

// MemberStates returns all states.
func MemberStates() []MemberState {
	return []MemberState{MemberOnline, MemberBehind, MemberReadOnly, MemberJoining, MemberDown}
}

// Connected reports whether another node is heard and has data.
func (m *Member) Connected() bool {
	return m.State == MemberOnline || m.State == MemberBehind || m.State == MemberReadOnly
}

// leader returns the node that leads, a zero one if none is known to.
func (r *ReplicationState) leader() Member {
	for i := range r.Members {
		if r.Members[i].ID == r.Leader && r.Leader != "" {
			return r.Members[i]
		}
	}
	return Member{}
}

// replicas returns the other nodes that are connected, as Redis counts the replicas of a master.
func (r *ReplicationState) replicas() []Member {
	var all []Member
	for i := range r.Members {
		if m := &r.Members[i]; m.ID != r.Node && m.Connected() {
			all = append(all, *m)
		}
	}
	return all
}

// voters returns how many nodes vote.
func (r *ReplicationState) voters() (n int64) {
	for i := range r.Members {
		if r.Members[i].Voter {
			n++
		}
	}
	return n
}

// self returns this node.
func (r *ReplicationState) self() Member {
	for i := range r.Members {
		if r.Members[i].ID == r.Node {
			return r.Members[i]
		}
	}
	return Member{}
}

// skew returns the greatest difference between the clock of this node and that of another one.
func (r *ReplicationState) skew() (most time.Duration) {
	for i := range r.Members {
		most = max(most, r.Members[i].Skew.Abs())
	}
	return most
}

// upToDate returns how many other nodes hold everything that this one holds.
func (r *ReplicationState) upToDate() (n int) {
	for _, m := range r.replicas() {
		if m.Applied >= r.Applied {
			n++
		}
	}
	return n
}

// role returns the name of this node's role in ROLE, INFO and HELLO; slave is that of a node which does
// not lead.
func (r *ReplicationState) role(slave string) string {
	if r.Leading {
		return "master"
	}
	return slave
}

// replication returns the state of this node. Without a cluster it leads, and there are no others.
func (h *Handler) replication() ReplicationState {
	if h.cfg.Replication == nil {
		return ReplicationState{Leading: true}
	}
	return h.cfg.Replication.State()
}

func (h *Handler) infoReplication(mode resp.Mode, secure bool) fields {
	var f fields
	r := h.replication()
	f.text("role", r.role("slave"))
	if !r.Leading {
		leader := r.leader()
		f.text("master_host", leader.Host)
		f.number("master_port", int64(leader.port(mode, secure)))
		f.text("master_link_status", map[bool]string{true: "up", false: "down"}[r.LinkUp])
		f.number("master_last_io_seconds_ago", int64(r.Heard/time.Second))
		f.flag("master_sync_in_progress", r.self().State == MemberJoining)
		f.count("slave_read_repl_offset", r.Applied)
		f.count("slave_repl_offset", r.Applied)
		f.number("slave_priority", 100)
		f.number("slave_read_only", 0) // it passes writes on
		f.number("replica_announced", 1)
	}
	var replicas []Member
	if r.Leading {
		replicas = r.replicas()
	}
	f.number("connected_slaves", int64(len(replicas)))
	for i := range replicas {
		m := &replicas[i]
		f.text("slave"+strconv.Itoa(i), fmt.Sprintf("ip=%s,port=%d,state=online,offset=%d,lag=%d", m.Host, m.port(mode, secure), m.Applied, int64(m.Late/time.Second)))
	}
	f.text("master_failover_state", "no-failover")
	id := h.runID
	if r.Cluster != "" { // the same on all nodes
		id = replicationID(r.Cluster)
	}
	f.text("master_replid", id)
	f.text("master_replid2", strings.Repeat("0", len(id)))
	f.count("master_repl_offset", r.Applied)
	f.number("second_repl_offset", -1)
	f.number("repl_backlog_active", 0)
	f.number("repl_backlog_size", 0)
	f.number("repl_backlog_first_byte_offset", 0)
	f.number("repl_backlog_histlen", 0)
	return f
}

// mean returns the mean of some durations, 0 of none.
func mean(sum time.Duration, n uint64) time.Duration {
	return sum / time.Duration(max(n, 1))
}

// replicationID returns forty hexadecimal digits, as Redis has for a history of writes.
func replicationID(cluster string) string {
	sum := sha1.Sum([]byte(cluster)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// infoCluster is the section cluster of INFO. Without replication it has one field.
func (h *Handler) infoCluster(mode resp.Mode) fields {
	var f fields
	f.flag("cluster_enabled", mode == ModeCluster)
	if h.cfg.Replication == nil {
		return f
	}
	r := h.cfg.Replication.State()
	self := r.self()
	f.text("cluster_state", map[bool]string{true: "ok", false: "fail"}[r.Leader != ""])
	f.text("cluster_id", r.Cluster)
	f.text("cluster_name", r.Name)
	f.text("node", r.Node)
	f.text("node_state", string(self.State))
	f.count("term", r.Term)
	f.text("leader", r.Leader)
	f.number("members", int64(len(r.Members)))
	f.number("voters", r.voters())
	f.count("applied_index", r.Applied)
	f.count("commit_index", r.Commit)
	f.count("behind_entries", self.Behind)
	f.millis("behind_ms", self.Late)
	f.millis("last_contact_ms", r.Heard)
	f.count("failovers", r.Failovers)
	f.number("log_bytes", self.LogBytes)
	f.number("snapshot_sending", int64(r.Sending))
	f.count("forwarded_commands", h.nodes.forwarded.Load())
	confirms, _ := h.latency.Replication()
	_, commits := h.latency.Durations()
	f.count("confirms", confirms.Count())
	f.micros("confirm_us", mean(confirms.Sum(), confirms.Count()))
	f.micros("commit_us", mean(commits.Sum(), commits.Count()))
	f.flag("link_up", r.LinkUp)
	f.millis("clock_skew_ms", r.skew())
	f.flag("node_writable", self.State != MemberReadOnly)
	return f
}

func role() Spec {
	return Spec{
		Name: "ROLE", Group: "server", Since: "2.8.12", Complexity: "O(N) where N is the number of nodes", Returns: "array of any",
		Summary: "Returns the role of the server in replication: that of a master, without replicas if there is no cluster, or of a replica.",
		Reply: "An array: master, its offset, and for each replica an array of host, port and offset. " +
			"Of a replica: slave, host and port of its master, connected or connect, its offset. Offsets count the entries of the log.",
		Flags: []string{"noscript", "loading", "stale", "fast"}, ACL: []string{"admin", "dangerous"}, Quiet: true,
		Examples: []Example{{"ROLE", "1) \"master\"\n2) (integer) 0\n3) (empty array)"}},
		Local: func(s *Session, _ *input, w *resp.Writer) error {
			r := s.handler.replication()
			if s.mode == ModeSentinel {
				w.Array(2)
				w.BulkString("sentinel")
				w.Array(1)
				w.BulkString(r.Name)
				return nil
			}
			if !r.Leading {
				leader := r.leader()
				w.Array(5)
				w.BulkString("slave")
				w.BulkString(leader.Host)
				w.Int(int64(leader.port(s.mode, s.secure)))
				w.BulkString(map[bool]string{true: "connected", false: "connect"}[r.LinkUp])
				w.Int(int64(r.Applied))
				return nil
			}
			w.Array(3)
			w.BulkString("master")
			w.Int(int64(r.Applied))
			replicas := r.replicas()
			w.Array(len(replicas))
			for i := range replicas {
				m := &replicas[i]
				w.Array(3)
				w.BulkString(m.Host)
				w.BulkString(strconv.Itoa(m.port(s.mode, s.secure)))
				w.BulkString(strconv.FormatUint(m.Applied, 10))
			}
			return nil
		},
	}
}

func wait() Spec {
	return Spec{
		Name: "WAIT", Group: "generic", Since: "3.0.0", Complexity: "O(1)", Returns: "integer",
		Summary: "Waits until as many replicas have the connection's earlier writes, or for the time in milliseconds, 0 without end. Returns how many have them: 0 without a cluster.",
		Differs: "Replies at once if there is no cluster. With one, a majority of the nodes has what was acknowledged, without WAIT.",
		Flags:   []string{"noscript"}, ACL: []string{"connection"},
		Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
		Args: []Arg{{Name: "numreplicas", Type: Integer, Min: 0}, {Name: "timeout", Type: Integer, Min: 0}},
		Refuse: func(near []byte, integer bool) error {
			if n, ok := command.ParseInt(near); integer && ok && n < 0 {
				return command.Refuse("ERR", "timeout is negative")
			}
			return nil
		},
		Examples: []Example{{"WAIT 1 100", "(integer) 0"}},
		Local: func(s *Session, in *input, w *resp.Writer) error {
			if s.handler.cfg.Replication == nil {
				w.Int(0)
				return nil
			}
			most := int64(math.MaxInt64 / time.Millisecond)
			nodes, timeout := int(min(in.Integer("numreplicas", 0), math.MaxInt32)), time.Duration(min(in.Integer("timeout", 0), most))*time.Millisecond
			return s.await(func(r Replication, done func(func(*resp.Writer))) (end func()) {
				return r.Await(nodes, timeout, func(n int) { done(func(w *resp.Writer) { w.Int(int64(n)) }) })
			}, func(state *ReplicationState, w *resp.Writer) { w.Int(int64(state.upToDate())) })
		},
	}
}

// await answers the current command when ask has called done, with what done is given. ask is called when
// the reply is the first of the reply queue: then the writes before it have been answered. It does not
// wait; end, which it returns, is called when the client is gone. In a transaction, which does not wait,
// the answer is that of atOnce; nil: the command is not allowed in one.
func (s *Session) await(ask func(r Replication, done func(write func(*resp.Writer))) (end func()), atOnce func(*ReplicationState, *resp.Writer)) error {
	if s.handler.cfg.Replication == nil {
		return errNotANode()
	}
	s.later = &nodeReply{session: s, ask: ask, atOnce: atOnce, proto: s.prefs.proto}
	return nil
}

// nodeReply is the reply of a command that waits for other nodes.
type nodeReply struct {
	session *Session
	ask     func(r Replication, done func(write func(*resp.Writer))) (end func())
	atOnce  func(*ReplicationState, *resp.Writer)
	proto   int
	silent  bool // the client has turned replies off

	begin sync.Once
	end   func()
	done  atomic.Bool
	write func(*resp.Writer) // set before done
}

// Ready begins the wait. It is called for the first of the reply queue only.
func (r *nodeReply) Ready() bool {
	r.begin.Do(func() {
		r.end = r.ask(r.session.handler.cfg.Replication, func(write func(*resp.Writer)) {
			r.write = write
			r.done.Store(true)
			r.session.conn.Wake()
		})
		r.session.nodes.awaits.Store(r)
		if r.session.nodes.left.Load() { // before it was stored
			r.end()
		}
	})
	return r.done.Load()
}

// Append writes the reply.
func (r *nodeReply) Append(w *resp.Writer) {
	if !r.silent {
		w.Proto = r.proto
		r.write(w)
	}
}

// Drop does nothing.
func (r *nodeReply) Drop() {}

// stopAwaiting ends the wait of a client that is gone.
func (s *Session) stopAwaiting() {
	s.nodes.left.Store(true)
	if r := s.nodes.awaits.Load(); r != nil {
		r.end()
	}
}

// commandOf returns a command as it is sent to another node.
func commandOf(words ...string) []byte {
	args := make([][]byte, len(words))
	for i, w := range words {
		args[i] = []byte(w)
	}
	return relay.AppendCommand(nil, args...)
}

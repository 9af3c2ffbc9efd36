package commands

import (
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/errtext"
	"github.com/faisca/fila/resp"
)

// FILA.CLUSTER is for the operators of a cluster. STATUS is answered by each node from what it knows,
// also without a leader; the others are done by the leader, whichever node gets them.

func filaCluster() Spec {
	return container("FILA.CLUSTER", "fila", "0.1.0", "the commands of a cluster of nodes, see docs/how-to/cluster.md", clusterLearner(), clusterRemove(), clusterStatus(), clusterTransfer(), clusterVerify(), clusterVoter())
}

// noCluster is what they answer without one.
const noCluster = `(error) ERR this broker is no node of a cluster (cluster.node_id)`

func errNotANode() error {
	return command.Refuse("ERR", strings.TrimPrefix(noCluster, "(error) ERR "))
}

// membersMax is the greatest number of nodes, as in internal/cluster.
const membersMax = 16

func clusterStatus() Spec {
	return Spec{
		Name: "STATUS", Group: "fila", Since: "0.1.0", Complexity: "O(N) where N is the number of nodes", Returns: "array of map",
		Summary: "Asks all nodes of the cluster, and returns what this node knows of each, itself among them. A node that is silent takes it seconds. It needs no leader: if none is known, no node has the role leader. In a transaction it asks none.",
		Reply: "An array of maps, one for each node: " + memberFields(&ReplicationState{}, &Member{}).names() + ". role is leader, voter, learner or none, " +
			"state is online, behind, readonly, joining or down, and online only of a node whose present process has answered, has caught up and votes, unless it is to be a learner. address is that for other nodes, client that for clients. last_contact_ms is the time since this " +
			"node heard of it, -1 if it never has. behind counts the batches that it lacks, behind_ms is since when. named is 1 for a learner that FILA.CLUSTER LEARNER has named. ports are the kinds of ports for clients that it has: plain, cluster, sentinel, each also with _tls.",
		Flags: []string{"admin", "noscript", "loading", "stale"}, Quiet: true,
		Tips:     []string{"nondeterministic_output"},
		Examples: []Example{{"FILA.CLUSTER STATUS", noCluster}},
		Room:     always(smallRoom + membersMax*1024), Memory: "1 KiB for each node",
		Local: func(s *Session, _ *input, _ *resp.Writer) error {
			return s.await(func(r Replication, done func(func(*resp.Writer))) (end func()) {
				return r.Refresh(func() {
					state := r.State()
					done(state.writeMembers)
				})
			}, (*ReplicationState).writeMembers)
		},
	}
}

// writeMembers writes what is known of each node.
func (r *ReplicationState) writeMembers(w *resp.Writer) {
	w.Array(len(r.Members))
	for i := range r.Members {
		memberFields(r, &r.Members[i]).write(w)
	}
}

// memberFields are what STATUS says of a node.
func memberFields(r *ReplicationState, m *Member) *fields {
	var f fields
	f.text("id", m.ID)
	f.text("role", r.roleOf(m))
	f.text("state", string(m.State))
	f.text("address", m.Addr)
	f.text("client", m.client())
	f.count("applied", m.Applied)
	f.count("behind", m.Behind)
	f.millis("behind_ms", m.Late)
	contact := m.Heard.Milliseconds()
	if m.Heard < 0 {
		contact = -1
	}
	f.number("last_contact_ms", contact)
	f.text("version", m.Version)
	f.count("free_bytes", m.Free)
	f.number("log_bytes", m.LogBytes)
	f.millis("clock_skew_ms", m.Skew)
	f.text("trouble", clipReason(m.Trouble))
	f.flag("named", m.Learner)
	f.text("ports", m.kinds())
	return &f
}

// node is the argument that names one.
func nodeArg(optional bool) Arg { return Arg{Name: "node", Type: String, Optional: optional} }

// clusterSpec is the common part of what the leader does.
func clusterSpec(name, complexity, returns, summary string, args ...Arg) Spec {
	return Spec{
		Name: name, Group: "fila", Since: "0.1.0", Complexity: complexity, Returns: returns, Summary: summary, Args: args,
		Flags: []string{"admin", "noscript", "no_multi"},
	}
}

// clusterOperation describes what the leader does with a node, and answers with OK.
func clusterOperation(name, example string, node Arg, do func(r Replication, node string, done func(error)), summary string) Spec {
	s := clusterSpec(name, "O(1)", "status", summary, node)
	s.Examples = []Example{{example, noCluster}}
	s.Local = func(s *Session, in *input, _ *resp.Writer) error {
		node := in.Text("node")
		return s.await(func(r Replication, done func(func(*resp.Writer))) func() {
			do(r, node, func(err error) {
				done(func(w *resp.Writer) {
					if err != nil {
						s.writeError(w, clusterError(err))
						return
					}
					w.OK()
				})
			})
			return func() {}
		}, nil)
	}
	return s
}

func clusterLearner() Spec {
	return clusterOperation("LEARNER", "FILA.CLUSTER LEARNER c", nodeArg(false), Replication.Learner,
		"Takes the vote of a node that does not lead, until FILA.CLUSTER VOTER. It keeps a copy of everything. A learner that may vote gets a vote in its place. It is refused if fewer than three voters were left, or no majority of them answers.")
}

func clusterVoter() Spec {
	return clusterOperation("VOTER", "FILA.CLUSTER VOTER c", nodeArg(false), Replication.Voter,
		"Ends FILA.CLUSTER LEARNER: the node gets a vote as soon as it has caught up and there is room for a voter, of which there are three, or five with five nodes. Does not wait for that. Refused for other learners while there is no room.")
}

func clusterRemove() Spec {
	return clusterOperation("REMOVE", "FILA.CLUSTER REMOVE c", nodeArg(false), Replication.Remove,
		"Removes a node that does not lead from the cluster. Its process ends; to bring it back, start it with an empty disk. It is refused if the nodes that are left and answer were no majority.")
}

func clusterTransfer() Spec {
	return clusterOperation("TRANSFER", "FILA.CLUSTER TRANSFER b", nodeArg(true), Replication.Transfer,
		"Hands the leadership over to a node, or without one to that which has most of the log. Clients see a pause and no error.")
}

func clusterVerify() Spec {
	s := clusterSpec("VERIFY", "O(N) where N is the size of the store", "array of map",
		"Compares the stores of all nodes as they are at one entry of the log. A node whose store differs from that of the majority ends and does not start again with it.")
	s.Reply = "An array of maps, one for each node: " + verifiedFields(&Verified{}).names() + ". result is equal, differs or unknown, reason why it is unknown."
	s.Examples = []Example{{"FILA.CLUSTER VERIFY", noCluster}}
	s.Room, s.Memory = always(smallRoom+membersMax*1024), "1 KiB for each node"
	s.Local = func(s *Session, _ *input, _ *resp.Writer) error {
		return s.await(func(r Replication, done func(func(*resp.Writer))) func() {
			r.Verify(func(nodes []Verified, err error) {
				done(func(w *resp.Writer) {
					if err != nil {
						s.writeError(w, clusterError(err))
						return
					}
					w.Array(len(nodes))
					for i := range nodes {
						verifiedFields(&nodes[i]).write(w)
					}
				})
			})
			return func() {}
		}, nil)
	}
	return s
}

func verifiedFields(v *Verified) *fields {
	var f fields
	f.text("id", v.Node)
	f.text("result", v.Result)
	f.text("digest", v.Digest)
	f.count("records", v.Records)
	f.text("reason", clipReason(v.Reason))
	return &f
}

// reasonMax bounds what a reply says of the troubles of one node, in bytes.
const reasonMax = 400

func clipReason(s string) string { return errtext.Clip(s, reasonMax) }

// clusterError is the error of a command that the leader does. Those of commands have a code.
func clusterError(err error) error {
	if _, ok := errors.AsType[*command.Error](err); ok {
		return err
	}
	return command.Refuse("ERR", clipReason(err.Error()))
}

// roleOf returns what a node does in the cluster.
func (r *ReplicationState) roleOf(m *Member) string {
	switch {
	case m.ID == r.Leader:
		return "leader"
	case m.Voter:
		return "voter"
	case r.Cluster != "":
		return "learner"
	default:
		return "none"
	}
}

// kinds returns the kinds of ports for clients that a node has, separated by spaces; none if it was never
// heard.
func (m *Member) kinds() string {
	var all []string
	for _, k := range []struct {
		name string
		has  bool
	}{
		{"plain", m.Port != m.TLSPort}, {"plain_tls", m.TLSPort != 0}, {"cluster", m.ClusterPort != 0}, {"cluster_tls", m.ClusterTLSPort != 0},
		{"sentinel", m.SentinelPort != 0}, {"sentinel_tls", m.SentinelTLSPort != 0},
	} {
		if k.has {
			all = append(all, k.name)
		}
	}
	return strings.Join(all, " ")
}

// client returns the address for clients, empty if it is unknown.
func (m *Member) client() string {
	if m.Host == "" {
		return ""
	}
	return net.JoinHostPort(m.Host, strconv.Itoa(m.Port))
}

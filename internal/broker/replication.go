package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/faisca/fila/cli"
	"github.com/faisca/fila/commands"
	"github.com/faisca/fila/internal/cluster"
	"github.com/faisca/fila/internal/command"
	"github.com/faisca/fila/internal/ops/metrics"
	"github.com/faisca/fila/storage/rocks"
)

// This file is what a node tells its clients about the cluster: member implements commands.Replication.

var _ commands.Replication = (*member)(nil)

// lateAfter is how long a node may lack entries before it counts as behind. What nodes know of each
// other is a second or two old.
const lateAfter = 5 * time.Second

// downAfter is how long a node may be silent before it counts as down, although no question to it has
// failed: nodes ask each other once a second, and wait for two.
const downAfter = 4 * time.Second

// contact returns where clients reach this node.
func (b *broker) contact() cluster.Contact {
	c := cluster.Contact{Host: b.cfg.Cluster.Host(), Port: portOf(b.plain), TLSPort: portOf(b.secure)}
	opened := b.server.More() // of respConfig
	for i, p := range b.cfg.Cluster.Ports() {
		port := map[bool]map[bool]*int{
			false: {false: &c.ClusterPort, true: &c.ClusterTLSPort}, true: {false: &c.SentinelPort, true: &c.SentinelTLSPort},
		}[p.Sentinel][p.TLS]
		*port = portOf(opened[i])
	}
	return c
}

// portOf returns the port of an address, 0 of nil.
func portOf(addr net.Addr) int {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return 0
}

// State implements commands.Replication.
func (m *member) State() commands.ReplicationState {
	s := m.node.Status()
	r := commands.ReplicationState{
		Cluster: s.Cluster, Name: m.b.cfg.Cluster.Name, Node: s.Node, Leader: s.Leader.ID, Leading: m.leads(), Trouble: s.Trouble,
		Term: s.Term, Commit: s.Commit, Applied: s.Applied, Heard: max(time.Duration(s.Contacted), 0), Failovers: s.Failovers, Election: m.b.cfg.Cluster.Election, Sending: s.Sending,
	}
	// Without a sign of the leader for the time of an election and its heartbeat, another one is elected.
	r.LinkUp = r.Leading || r.Leader != "" && s.Contacted >= 0 && r.Heard <= 2*m.b.cfg.Cluster.Election
	for _, n := range m.node.Members() {
		r.Members = append(r.Members, memberOf(&n, s.Node))
	}
	return r
}

// figures returns the figures of the node for metrics.
func (m *member) figures() metrics.Replication {
	r := m.State()
	f := metrics.Replication{
		Leads: r.Leading, HasLeader: r.Leader != "", Term: r.Term, Applied: r.Applied, Commit: r.Commit, Heard: r.Heard, LinkUp: r.LinkUp,
		Sending: int64(r.Sending), Failovers: r.Failovers, States: map[string]uint64{},
	}
	for _, state := range commands.MemberStates() {
		f.States[string(state)] = 0
	}
	for i := range r.Members {
		n := &r.Members[i]
		f.States[string(n.State)]++
		f.Skew = max(f.Skew, n.Skew.Abs())
		if n.Voter {
			f.Voters++
		}
		if n.ID == r.Node {
			f.Behind, f.Late, f.LogBytes, f.Writable = n.Behind, n.Late, n.LogBytes, n.State != commands.MemberReadOnly
		}
	}
	confirms, applies := m.b.latency.Replication()
	f.Confirms, f.Applies = &confirms, &applies
	return f
}

// Leader implements commands.Replication.
func (m *member) Leader() (commands.Member, bool) {
	n, ok := m.node.LeaderMember()
	if !ok {
		return commands.Member{}, false
	}
	return memberOf(&n, m.b.cfg.Cluster.NodeID), true
}

// Refresh implements commands.Replication.
func (m *member) Refresh(done func()) (end func()) { return m.node.Refresh(done) }

// Await implements commands.Replication.
func (m *member) Await(n int, timeout time.Duration, done func(nodes int)) (end func()) {
	return m.node.Await(n, timeout, done)
}

// Learner implements commands.Replication.
func (m *member) Learner(node string, done func(error)) {
	go func() { done(refusal(m.node.Learner(context.Background(), node))) }()
}

// Voter implements commands.Replication.
func (m *member) Voter(node string, done func(error)) {
	go func() { done(refusal(m.node.Voter(context.Background(), node))) }()
}

// Remove implements commands.Replication.
func (m *member) Remove(node string, done func(error)) {
	go func() { done(refusal(m.node.Remove(context.Background(), node))) }()
}

// Transfer implements commands.Replication.
func (m *member) Transfer(to string, done func(error)) {
	go func() { done(refusal(m.node.Transfer(context.Background(), to))) }()
}

// Verify implements commands.Replication.
func (m *member) Verify(done func(nodes []commands.Verified, err error)) {
	go func() {
		v, err := m.node.Verify(context.Background())
		if err != nil {
			done(nil, refusal(err))
			return
		}
		nodes := make([]commands.Verified, len(v.Nodes))
		for i, n := range v.Nodes {
			nodes[i] = commands.Verified{Node: n.Node, Result: n.Result, Digest: n.Digest, Records: n.Records, Reason: n.Trouble}
		}
		done(nodes, nil)
	}()
}

// refusal gives the error of a cluster without a leader the code that has clients try again.
func refusal(err error) error {
	if errors.Is(err, cluster.ErrNoLeader) {
		return command.Refuse("LOADING", err.Error())
	}
	return err
}

// memberOf returns a member as commands know it. self is the id of this node.
func memberOf(n *cluster.Member, self string) commands.Member {
	c := &n.Contact
	m := commands.Member{
		ID: n.Node, Addr: n.Addr, Voter: n.Voter, Learner: n.Learner, Version: n.Version, Applied: n.Applied, Behind: n.Behind, Late: n.Late, Heard: n.Heard, Skew: n.Skew,
		Free: n.Free, LogBytes: n.LogBytes, Trouble: cmp.Or(n.Refusal, n.Trouble),
		Host: c.Host, Port: cmp.Or(c.Port, c.TLSPort), TLSPort: c.TLSPort, ClusterPort: c.ClusterPort, ClusterTLSPort: c.ClusterTLSPort,
		SentinelPort: c.SentinelPort, SentinelTLSPort: c.SentinelTLSPort,
	}
	switch {
	case n.Node != self && (n.Heard < 0 || n.Heard > downAfter || n.Refusal != ""):
		m.State = commands.MemberDown
	case n.State == cluster.StateEntering || n.Applied == 0 || n.Waiting:
		m.State = commands.MemberJoining
	case !n.Writable:
		m.State = commands.MemberReadOnly
	case n.Late > lateAfter || !n.Current:
		m.State = commands.MemberBehind
	default:
		m.State = commands.MemberOnline
	}
	return m
}

// detach makes the store of a node that of a single broker.
func detach(dir, clusterPath string) (cli.DetachReport, error) {
	return leaveCluster(dir, clusterPath, cluster.Detach)
}

// recoverNode makes a node a cluster of its own.
func recoverNode(dir, clusterPath string) (cli.DetachReport, error) {
	return leaveCluster(dir, clusterPath, cluster.Recover)
}

func leaveCluster(dir, clusterPath string, leave func(cluster.LocalStore, string) (*cluster.Left, error)) (cli.DetachReport, error) {
	dir = filepath.Clean(dir)
	clusterPath = cmp.Or(clusterPath, dir+cli.ClusterSuffix)
	report := cli.DetachReport{Path: dir}
	if _, err := os.Stat(filepath.Join(dir, "CURRENT")); err != nil {
		return report, fmt.Errorf("%s: it is not a data directory: %w", dir, err)
	}
	node, err := cluster.Known(clusterPath)
	if err != nil {
		return report, fmt.Errorf("%s: %w", clusterPath, err)
	}
	// The newest log of a node may have a torn end, which its replicated log has whole.
	s, err := rocks.Open(rocks.Options{Path: dir, Replica: node})
	if errors.Is(err, rocks.ErrNoCgo) {
		return report, cli.UsageError{Err: err}
	}
	if err != nil {
		return report, fmt.Errorf("%s: %w", dir, err)
	}
	left, err := leave(localStore{s, s, dir, func(time.Duration) {}}, clusterPath)
	if err := errors.Join(err, s.Close()); err != nil {
		return report, fmt.Errorf("%s: %w", dir, err)
	}
	return cli.DetachReport{Path: dir, Cluster: left.Cluster, Node: left.Node, Entry: left.Entry, Replayed: left.Replayed, Kept: left.Kept, New: left.New}, nil
}

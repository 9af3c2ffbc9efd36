package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// membersMax bounds the members of a cluster: each costs the leader a copy of everything.
const membersMax = 16

// snapshotsPerLog is how many snapshots are taken while the log grows to its bound.
const snapshotsPerLog = 16

// onlyOneTime bounds the question whether a node is where its members expect it.
const onlyOneTime = time.Second

// memberTime bounds a change of the members, which a majority has to take.
const memberTime = 5 * time.Second

// joining is the body of askJoin.
type joining struct {
	Addr   string `json:"addr"`   // of the node port
	Member bool   `json:"member"` // it has an identity, and comes with another address
}

// joined is the answer.
type joined struct {
	Cluster  string `json:"cluster"`
	Admitted uint64 `json:"admitted"` // entry of the log that makes the node a member
}

// join asks the leader to admit this node, which has no identity. records and of say what its
// store holds.
func (n *Node) join(ctx context.Context, answers []*Status, records bool, of string) (*identity, error) {
	var id, addr string
	for _, s := range answers {
		switch {
		case s.Cluster == "":
		case id != "" && s.Cluster != id:
			return nil, fmt.Errorf("the other nodes belong to two clusters, %s and %s: empty cluster.path and storage.path of the ones to give up", id, s.Cluster)
		default:
			if id = s.Cluster; s.Leader.Addr != "" {
				addr = s.Leader.Addr
			}
		}
	}
	switch {
	case of != "" && of != id, of == "" && records:
		return nil, fmt.Errorf("the other nodes have formed the cluster %s, and storage.path of this node holds data that is not of it: move it away, and the node joins", id)
	case addr == "":
		return nil, errors.New("waiting for a leader")
	}
	if err := n.emptyRaft(); err != nil {
		return nil, fatalError{err}
	}
	reply, err := n.askToJoin(ctx, addr, &joining{Addr: n.own().Addr})
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if reply.Cluster != id {
		return nil, fmt.Errorf("join: the leader is of cluster %s, others of %s", reply.Cluster, id)
	}
	if err := n.step(stepAdmitted); err != nil {
		return nil, fatalError{err}
	}
	own := &identity{Format: identityFormat, Cluster: id, Name: n.cfg.Name, Node: n.cfg.ID, Admitted: reply.Admitted}
	if err := own.write(n.cfg.Dir); err != nil {
		return nil, fatalError{err}
	}
	n.cfg.Log.Info().Str("cluster", id).Msg("joined the cluster; a copy of its data follows")
	if err := n.step(stepNamed); err != nil {
		return nil, fatalError{err}
	}
	return own, nil
}

func (n *Node) askToJoin(ctx context.Context, leader string, j *joining) (*joined, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*memberTime)
	defer cancel()
	body, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	reply, err := n.port.ask(ctx, leader, askJoin, body)
	if err != nil {
		return nil, err
	}
	var to joined
	return &to, json.Unmarshal(reply, &to)
}

// admit makes another node a member that does not vote yet. It runs on the leader.
func (n *Node) admit(node string, j *joining) ([]byte, error) {
	n.mu.Lock()
	r, id := n.raft, n.identity
	n.mu.Unlock()
	if r == nil || r.State() != raft.Leader {
		return nil, fmt.Errorf("node %s does not lead", n.cfg.ID)
	}
	members := n.members()
	var old *raft.Server
	for i := range members {
		if string(members[i].ID) == node {
			old = &members[i]
		} else if string(members[i].Address) == j.Addr {
			return nil, fmt.Errorf("node %s has the address %s already (cluster.peers)", members[i].ID, j.Addr)
		}
	}
	err := n.mustBeThere(node, j, id.Cluster, old)
	if err != nil {
		return nil, err
	}
	to := joined{Cluster: id.Cluster}
	switch {
	case j.Member && old == nil:
		return nil, fmt.Errorf("node %s was removed from the cluster", node)
	case j.Member && old.Suffrage == raft.Voter:
		err = r.AddVoter(old.ID, raft.ServerAddress(j.Addr), 0, memberTime).Error()
	case !j.Member && old != nil:
		// The new one does not know what the old one has voted for and acknowledged. Before it
		// may do either, a majority must have the removal.
		if err := r.RemoveServer(old.ID, 0, memberTime).Error(); err != nil {
			return nil, err
		}
		fallthrough
	case len(members) < membersMax:
		f := r.AddNonvoter(raft.ServerID(node), raft.ServerAddress(j.Addr), 0, memberTime)
		if err = f.Error(); err == nil {
			to.Admitted = f.Index()
		}
	default:
		return nil, fmt.Errorf("the cluster has %d members, the maximum", len(members))
	}
	if err != nil {
		return nil, err
	}
	n.cfg.Log.Info().Str("node", node).Str("address", j.Addr).Bool("moved", j.Member).Msg("a node joins the cluster")
	return json.Marshal(to)
}

// mustBeThere refuses a node that cannot be reached at the address that it gives, or whose name a
// running member has. old is the member of that name, nil if there is none.
func (n *Node) mustBeThere(node string, j *joining, cluster string, old *raft.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	s, err := n.askStatusOf(ctx, Peer{ID: node, Addr: j.Addr})
	if err != nil {
		return fmt.Errorf("the leader does not reach node %s at %s (cluster.peers): %w", node, j.Addr, err)
	}
	n.mu.Lock()
	writes := n.writes
	n.mu.Unlock()
	if !s.Reads.Reads(writes) {
		return fmt.Errorf("node %s has a version of Fila, %s, that does not read what the members write: upgrade it", node, s.Version)
	}
	if j.Member && s.Cluster == cluster {
		if old == nil || string(old.Address) == j.Addr {
			return nil
		}
		at, err := n.askStatusOf(ctx, Peer{ID: node, Addr: string(old.Address)})
		if err == nil && at.Instance != s.Instance {
			return twins(node, string(old.Address))
		}
		return nil // nothing is there any more, or both are addresses of one node
	}
	if s.Cluster == "" && old != nil && string(old.Address) != j.Addr {
		if s, err = n.askStatusOf(ctx, Peer{ID: node, Addr: string(old.Address)}); err != nil {
			return nil // it is gone, as it should be
		}
	}
	if s.Cluster != "" {
		return fmt.Errorf("two nodes have the name %s, a member and one that has no identity (cluster.node_id)", node)
	}
	return nil
}

// twins refuses a node when another one answers at the address of its name.
func twins(node, addr string) error {
	return fmt.Errorf("two nodes have the name %s, one of them at %s: if one is a copy of the other's directories, stop it and empty its cluster.path and storage.path", node, addr)
}

// check refuses connections of nodes that are not the member of their name, or not any more.
func (n *Node) check(from *greeting) error {
	if err := n.onlyOne(from); err != nil {
		return err
	}
	return n.checkStanding(from)
}

// onlyOne refuses connections of a node while another process answers at the address of that node. Two
// that have copies of one directory would vote twice. A node that does not answer may be the one that
// connects, so it is not refused.
func (n *Node) onlyOne(from *greeting) error {
	n.mu.Lock()
	known := n.instances[from.Node] == from.Instance
	n.mu.Unlock()
	if known || from.Instance == "" {
		return nil
	}
	addr := ""
	for _, s := range n.members() {
		if string(s.ID) == from.Node {
			addr = string(s.Address)
		}
	}
	if addr == "" {
		return nil // it is being admitted
	}
	ctx, cancel := context.WithTimeout(context.Background(), onlyOneTime)
	defer cancel()
	s, err := n.askStatusOf(ctx, Peer{ID: from.Node, Addr: addr})
	if err != nil {
		return nil // see above
	}
	if s.Instance != from.Instance {
		return twins(from.Node, addr)
	}
	n.mu.Lock()
	n.instances[from.Node] = from.Instance
	n.mu.Unlock()
	return nil
}

// goWatch looks after the node itself at each tick. It returns what stops it.
func (n *Node) goWatch(tick <-chan time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			n.boundLog()
			n.tellAddress(ctx)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// boundLog takes a snapshot when the log has grown by a part of what it may have, so that a start
// has little to read again, and cuts off its older half when it has more than it may have.
func (n *Node) boundLog() {
	bytes, err := n.log.Bytes()
	if err != nil {
		return
	}
	n.logBytes.Store(bytes)
	first, err := n.log.FirstIndex()
	if err != nil || first == 0 {
		return
	}
	last, err := n.log.LastIndex()
	if err != nil {
		return
	}
	appended := n.log.appended.Load()
	full := bytes > n.cfg.LogBytes
	if !full && appended-n.noted < n.cfg.LogBytes/snapshotsPerLog {
		return
	}
	trailing := uint64(never)
	if full {
		trailing = uint64(float64(last-first+1) * float64(n.cfg.LogBytes/2) / float64(bytes))
	}
	if err := n.reload(func(c *raft.ReloadableConfig) { c.TrailingLogs = trailing }); err != nil {
		n.cfg.Log.Error().Err(err).Msg("the replicated log was not cut off")
		return
	}
	if err := n.raft.Snapshot().Error(); err != nil {
		n.cfg.Log.Debug().Err(err).Msg("no snapshot of the replicated log")
		return
	}
	n.noted = appended
}

// tellAddress tells the leader if this node has another address than the members know. The leader
// cannot reach it then, so the others say who leads.
func (n *Node) tellAddress(ctx context.Context) {
	own := n.own()
	members := n.members()
	if !slices.ContainsFunc(members, func(s raft.Server) bool { return string(s.ID) == own.ID && string(s.Address) != own.Addr }) {
		return
	}
	leader := n.leaderNow()
	if leader.ID == own.ID {
		if len(members) == 1 { // there is no next leader, which would change it
			if err := n.raft.AddVoter(members[0].ID, raft.ServerAddress(own.Addr), 0, memberTime).Error(); err != nil {
				n.cfg.Log.Warn().Err(err).Str("address", own.Addr).Msg("the new address of this node was not written")
			}
		}
		return
	}
	answers, _ := n.askAll(ctx)
	for _, s := range answers {
		if leader.Addr == "" {
			leader = s.Leader
		}
	}
	if leader.Addr == "" {
		return
	}
	if _, err := n.askToJoin(ctx, leader.Addr, &joining{Addr: own.Addr, Member: true}); err != nil {
		n.cfg.Log.Warn().Err(err).Str("address", own.Addr).Msg("the leader did not take the new address of this node")
	}
}

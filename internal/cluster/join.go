package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/storage"
)

// membersMax bounds the members of a cluster: each costs the leader a copy of everything.
const membersMax = 16

// memberTime bounds a change of the members, which a majority has to take.
const memberTime = 5 * time.Second

// joining is the body of askJoin.
type joining struct {
	Addr   string `json:"addr"`   // of the node port
	Member bool   `json:"member"` // it has an identity, and comes with another address
}

// joined is the answer.
type joined struct {
	Cluster string `json:"cluster"`
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
	own := &identity{Format: identityFormat, Cluster: id, Name: n.cfg.Name, Node: n.cfg.ID}
	if err := own.write(n.cfg.Dir); err != nil {
		return nil, fatalError{err}
	}
	n.cfg.Log.Info().Str("cluster", id).Msg("joined the cluster; a copy of its data follows")
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
	var err error
	switch {
	case j.Member && old == nil:
		return nil, fmt.Errorf("node %s was removed from the cluster", node)
	case j.Member && old.Suffrage == raft.Voter:
		err = r.AddVoter(old.ID, raft.ServerAddress(j.Addr), 0, memberTime).Error()
	case !j.Member && old != nil:
		if err := n.mustBeGone(old, j.Addr); err != nil {
			return nil, err
		}
		// The new one does not know what the old one has voted for and acknowledged. Before it
		// may do either, a majority must have the removal.
		if err := r.RemoveServer(old.ID, 0, memberTime).Error(); err != nil {
			return nil, err
		}
		fallthrough
	case len(members) < membersMax:
		err = r.AddNonvoter(raft.ServerID(node), raft.ServerAddress(j.Addr), 0, memberTime).Error()
	default:
		return nil, fmt.Errorf("the cluster has %d members, the maximum", len(members))
	}
	if err != nil {
		return nil, err
	}
	n.cfg.Log.Info().Str("node", node).Str("address", j.Addr).Bool("moved", j.Member).Msg("a node joins the cluster")
	return json.Marshal(joined{Cluster: id.Cluster})
}

// mustBeGone refuses a node that comes without an identity while a member of its id is there.
func (n *Node) mustBeGone(old *raft.Server, addr string) error {
	if string(old.Address) == addr {
		return nil // there is the one that asks
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	s, err := n.askStatusOf(ctx, Peer{ID: string(old.ID), Addr: string(old.Address)})
	if err == nil && s.Cluster != "" {
		return fmt.Errorf("two nodes have the name %s, at %s and %s (cluster.node_id)", old.ID, old.Address, addr)
	}
	return nil
}

// votersWanted returns how many of so many nodes vote: an even one more would not make a majority
// safer, and more than five make each write wait for more.
func votersWanted(nodes int) int {
	if nodes >= 5 {
		return 5
	}
	return 3
}

// goTend looks after the members while this node leads: it makes voters of those that have caught
// up. It returns what stops it.
func (n *Node) goTend(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(n.cfg.Pace.Ask)
		defer again.Stop()
		seen := map[string]uint64{}
		for {
			n.promote(ctx, seen)
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// promote makes voters of nodes whose logs have what that of the leader had at the last call, which
// seen keeps for each: they are at most one interval behind. What counts is the log, not the data, which
// may have come with a snapshot: a voter whose log lacks changes of the members refuses its vote to
// candidates that it does not know as voters.
func (n *Node) promote(ctx context.Context, seen map[string]uint64) {
	for _, s := range n.members() {
		if s.Suffrage == raft.Voter {
			continue
		}
		f := n.raft.GetConfiguration()
		if f.Error() != nil || len(n.voters()) >= votersWanted(len(n.cfg.Peers)) {
			clear(seen)
			return
		}
		id := string(s.ID)
		wanted, before := seen[id]
		seen[id] = n.raft.LastIndex()
		if !before {
			continue
		}
		answer, err := n.askTermOf(ctx, string(s.Address))
		if err != nil || answer.last < max(wanted, f.Index()) {
			continue
		}
		if err := n.raft.AddVoter(s.ID, s.Address, 0, memberTime).Error(); err != nil {
			n.cfg.Log.Warn().Err(err).Str("node", id).Msg("a node that has caught up did not get its vote")
			return
		}
		delete(seen, id)
		n.cfg.Log.Info().Str("node", id).Msg("a node has caught up and votes from now on")
	}
}

func (n *Node) askTermOf(ctx context.Context, addr string) (termAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	reply, err := n.port.ask(ctx, addr, askTerm, nil)
	if err != nil {
		return termAnswer{}, err
	}
	return parseTermAnswer(reply)
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

// boundLog cuts off the older half of Raft's log if it has more bytes than it may have.
func (n *Node) boundLog() {
	bytes, err := n.log.Bytes()
	if err != nil || bytes <= n.cfg.LogBytes {
		return
	}
	first, err := n.log.FirstIndex()
	if err != nil {
		return
	}
	last, err := n.log.LastIndex()
	if err != nil || first == 0 {
		return
	}
	c := n.raft.ReloadableConfig()
	c.TrailingLogs = uint64(float64(last-first+1) * float64(n.cfg.LogBytes/2) / float64(bytes))
	if err := n.raft.ReloadConfig(c); err != nil {
		n.cfg.Log.Error().Err(err).Msg("the replicated log was not cut off")
		return
	}
	if err := n.raft.Snapshot().Error(); err != nil && !errors.Is(err, storage.ErrReopen) {
		n.cfg.Log.Debug().Err(err).Msg("the replicated log was not cut off yet")
	}
}

// tellAddress tells the leader if this node has another address than the members know.
func (n *Node) tellAddress(ctx context.Context) {
	n.mu.Lock()
	leader := n.leader
	n.mu.Unlock()
	own := n.own()
	if leader.Addr == "" {
		return
	}
	for _, s := range n.members() {
		if string(s.ID) != own.ID || string(s.Address) == own.Addr {
			continue
		}
		if leader.ID == own.ID {
			return // the next leader changes it
		}
		if _, err := n.askToJoin(ctx, leader.Addr, &joining{Addr: own.Addr, Member: true}); err != nil {
			n.cfg.Log.Warn().Err(err).Str("address", own.Addr).Msg("the leader did not take the new address of this node")
		}
	}
}

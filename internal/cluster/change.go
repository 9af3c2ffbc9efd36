package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// What an operator asks of a cluster is done by its leader. Any node takes it, and asks the leader if it
// is another one.

// ErrNoLeader refuses what only a leader can do.
var ErrNoLeader = errors.New("no node of the cluster leads, try again in a moment")

// change is the body of askChange.
type change struct {
	Do   string `json:"do"`
	Node string `json:"node,omitempty"`
}

const (
	doRemove   = "remove"
	doTransfer = "transfer"
	doVerify   = "verify"
	doLearner  = "learner"
	doVoter    = "voter"
)

// silentAfter is after how many intervals without an answer a node does not count as running.
const silentAfter = 4

// Remove removes a member that does not lead, for good: its process ends, and a node of that name
// joins with an empty disk only. It is refused if the voters that are left and answer were no majority.
func (n *Node) Remove(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	_, err := n.operate(ctx, &change{Do: doRemove, Node: node})
	return err
}

// Transfer hands the leadership over to a voter, or to the one that has most of the log if node is
// empty. It returns when that has happened, or was refused and nothing has changed.
func (n *Node) Transfer(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	_, err := n.operate(ctx, &change{Do: doTransfer, Node: node})
	return err
}

// Verify compares the stores of all members as they are at one entry of the log. A node whose store
// differs from that of a majority ends. It takes as long as reading a store.
func (n *Node) Verify(ctx context.Context) (*Verification, error) {
	reply, err := n.operate(ctx, &change{Do: doVerify})
	if err != nil {
		return nil, err
	}
	v := new(Verification)
	return v, json.Unmarshal(reply, v)
}

// operate does what is asked for, here or at the leader.
func (n *Node) operate(ctx context.Context, c *change) ([]byte, error) {
	n.mu.Lock()
	r, leader := n.raft, n.leader
	n.mu.Unlock()
	if r != nil && r.State() == raft.Leader {
		return n.perform(ctx, c)
	}
	if leader.Addr == "" || leader.ID == n.cfg.ID {
		return nil, ErrNoLeader
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return n.port.ask(ctx, leader.Addr, askChange, body)
}

// perform does what is asked for, on the leader, until the node ends.
func (n *Node) perform(ctx context.Context, c *change) ([]byte, error) {
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	if r == nil || r.State() != raft.Leader {
		return nil, ErrNoLeader // it did when it was asked
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(n.life, cancel)
	defer stop()
	switch c.Do {
	case doRemove:
		return nil, n.remove(ctx, c.Node)
	case doTransfer:
		return nil, n.transferTo(ctx, c.Node)
	case doLearner:
		return nil, n.makeLearner(ctx, c.Node)
	case doVoter:
		return nil, n.makeVoter(ctx, c.Node)
	case doVerify:
		v, err := n.verify(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	default:
		return nil, fmt.Errorf("node %s does not know how to %s: upgrade it", n.cfg.ID, c.Do)
	}
}

// findMember returns a member, or an error that names those that there are.
func (n *Node) findMember(node string) (*Member, error) {
	all := n.Members()
	i := slices.IndexFunc(all, func(m Member) bool { return m.Node == node })
	if i < 0 {
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Node
		}
		return nil, fmt.Errorf("no member of the cluster is named %.64q; these are: %v", node, names)
	}
	return &all[i], nil
}

// answers reports whether a node was heard of lately.
func (n *Node) answers(m *Member) bool {
	return m.Node == n.cfg.ID || m.Heard >= 0 && m.Refusal == "" && m.Heard < silentAfter*n.cfg.Pace.Watch
}

func (n *Node) remove(ctx context.Context, node string) error {
	m, err := n.findMember(node)
	if err != nil {
		return err
	}
	if node == n.cfg.ID {
		return leadsFirst(node)
	}
	if m.Voter {
		left, answering := 0, 0
		for _, other := range n.Members() {
			if !other.Voter || other.Node == node {
				continue
			}
			if left++; n.answers(&other) {
				answering++
			}
		}
		if answering <= left/2 {
			return noMajority(node, answering, left)
		}
	}
	if err := n.raft.RemoveServer(raft.ServerID(node), 0, memberTime).Error(); err != nil {
		return fmt.Errorf("node %s was not removed: %w", node, err)
	}
	n.cfg.Log.Warn().Str("node", node).Msg("a node was removed from the cluster")
	if m.Learner { // a node of that name that joins is another one
		if err := n.cfg.SetLearner(ctx, node, false); err != nil {
			return fmt.Errorf("node %s was removed, and is a learner when it comes back (FILA.CLUSTER VOTER): %w", node, err)
		}
	}
	return nil
}

// handover is what Transfer has asked for.
type handover struct {
	to   Peer       // zero: any
	done chan error // capacity 1
}

func (n *Node) transferTo(ctx context.Context, node string) error {
	h := &handover{done: make(chan error, 1)}
	if node != "" {
		m, err := n.findMember(node)
		switch {
		case err != nil:
			return err
		case node == n.cfg.ID:
			return fmt.Errorf("node %s leads already", node)
		case !m.Voter || m.Learner:
			return fmt.Errorf("node %s does not vote, so it cannot lead", node)
		case !n.answers(m):
			return fmt.Errorf("node %s does not answer: %s", node, cmp.Or(m.Refusal, "nothing was heard of it for a moment"))
		case !m.Writable:
			return fmt.Errorf("the store of node %s takes no writes", node)
		case m.Late > silentAfter*n.cfg.Pace.Watch: // Raft itself sends the last ones
			return fmt.Errorf("node %s lacks %d entries: wait until it has caught up", node, m.Behind)
		}
		h.to = Peer{ID: m.Node, Addr: m.Addr}
	}
	n.mu.Lock()
	if n.asked != nil || n.yield == nil {
		n.mu.Unlock()
		return errors.New("the leader changes already, try again in a moment")
	}
	n.asked = h
	n.yield()
	n.mu.Unlock()
	select {
	case err := <-h.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeAsked returns the handover that was asked for, nil if none was.
func (n *Node) takeAsked() *handover {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.asked
	n.asked = nil
	return h
}

// transfer asks Raft to make another node the leader, if this one is it.
func (n *Node) transfer() {
	h := n.takeAsked()
	var err error
	if n.raft.State() == raft.Leader {
		if h != nil && h.to.ID != "" {
			err = n.raft.LeadershipTransferToServer(raft.ServerID(h.to.ID), raft.ServerAddress(h.to.Addr)).Error()
		} else {
			err = n.raft.LeadershipTransfer().Error()
		}
	}
	if err != nil {
		err = fmt.Errorf("leadership was not handed over: %w", err)
		n.cfg.Log.Warn().Msg(err.Error())
	}
	if h != nil {
		h.done <- err
	}
}

// changeTime bounds what an operator asks for, but for Verify.
const changeTime = 30 * time.Second

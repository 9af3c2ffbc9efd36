package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/storage"
)

// Which members vote. While a node leads it looks at them at intervals (tend):
//
//	learner ──has caught up, fewer voters than wanted, no record──► voter
//	voter ──a record, the others are enough and a majority of them answers──► learner
//
// The record says that an operator has named the node a learner (storage.LearnerKey). The engine of the
// leader writes it, so each node has it, and the next leader goes on with what this one has begun. A node
// with a record does not count as a voter here: another one gets its vote first, if there is one.

// votersWanted returns how many of so many nodes vote: an even one more would not make a majority
// safer, and more than five make each write wait for more.
func votersWanted(nodes int) int {
	if nodes >= 5 {
		return 5
	}
	return votersMin
}

// votersMin is how many voters are left at least when an operator names a learner: of two, neither may go
// on without the other.
const votersMin = 3

// goTend looks after the members while this node leads. It begins when everything that was committed
// before is in the store, and returns what stops it.
func (n *Node) goTend(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(n.cfg.Pace.Ask)
		defer again.Stop()
		seen := map[string]uint64{}
		for {
			n.tend(ctx, seen)
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

// tend makes voters of members that have caught up, and learners of those that an operator has named.
func (n *Node) tend(ctx context.Context, seen map[string]uint64) {
	named, err := storage.ReadLearners(n.cfg.Store)
	if err != nil {
		n.cfg.Log.Error().Err(err).Msg("the members that are to be learners cannot be read; all stay what they are")
		return
	}
	n.promote(ctx, seen, named)
	if len(named) > 0 {
		n.demote()
	}
}

// promote makes voters of nodes whose logs have what that of the leader had at the last call, which
// seen keeps for each: they are at most one interval behind. What counts is the log, not the data, which
// may have come with a snapshot: entries are acknowledged with what the logs of the voters have.
func (n *Node) promote(ctx context.Context, seen map[string]uint64, named []string) {
	for _, s := range n.members() {
		id := string(s.ID)
		if s.Suffrage == raft.Voter || slices.Contains(named, id) {
			delete(seen, id)
			continue
		}
		f := n.raft.GetConfiguration()
		if f.Error() != nil || !n.room(named) {
			clear(seen)
			return
		}
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

// votersBut returns the voters without those that are to be learners.
func (n *Node) votersBut(named []string) []Peer {
	return slices.DeleteFunc(n.voters(), func(p Peer) bool { return slices.Contains(named, p.ID) })
}

// room reports whether another member is to vote, beside those that vote and are not to be learners.
func (n *Node) room(named []string) bool {
	return len(n.votersBut(named)) < votersWanted(len(n.cfg.Peers))
}

// demote takes the vote of members that an operator has named learners, as long as the others are enough.
// This node hands over first if it is one of them: it was named before it led.
func (n *Node) demote() {
	all := n.Members()
	for i := range all {
		m := &all[i]
		if !m.Voter || !m.Learner || n.enoughWithout(m.Node, all, false) != nil {
			continue
		}
		if m.Node == n.cfg.ID {
			n.Yield()
			return
		}
		if err := n.raft.DemoteVoter(raft.ServerID(m.Node), 0, memberTime).Error(); err != nil {
			n.cfg.Log.Warn().Err(err).Str("node", m.Node).Msg("a node that is to be a learner has kept its vote")
			return
		}
		n.cfg.Log.Warn().Str("node", m.Node).Msg("a node is a learner now and does not vote, as an operator has asked for")
	}
}

// enoughWithout refuses to take the vote of a node if the voters that are left were too few, or those of
// them that answer no majority. With spare, members count that are about to get a vote.
func (n *Node) enoughWithout(node string, all []Member, spare bool) error {
	left, answering := 0, 0
	for i := range all {
		m := &all[i]
		if m.Node == node || m.Learner {
			continue
		}
		well := n.answers(m)
		if !m.Voter && (!spare || !well) {
			continue
		}
		if left++; well {
			answering++
		}
	}
	switch {
	case left < votersMin:
		return fmt.Errorf("without node %s, %d voters would be left, and %d are the least: start another node first (cluster.peers)", node, left, votersMin)
	case answering <= left/2:
		return noMajority(node, answering, left)
	}
	return nil
}

// noMajority refuses to do without a voter.
func noMajority(node string, answering, left int) error {
	return fmt.Errorf("without node %s, %d of %d voters would answer, which is no majority: bring one of the others back first", node, answering, left)
}

// Learner makes a member that does not lead one that does not vote, for good: until Voter, whichever node
// leads. It returns when that has happened. It is refused if fewer than three voters were left, or no
// majority of them answers.
func (n *Node) Learner(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	_, err := n.operate(ctx, &change{Do: doLearner, Node: node})
	return err
}

// Voter ends what Learner has begun: the member gets a vote as soon as it has caught up and fewer than
// three, or five, have one. It does not wait for that.
func (n *Node) Voter(ctx context.Context, node string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	_, err := n.operate(ctx, &change{Do: doVoter, Node: node})
	return err
}

func (n *Node) makeLearner(ctx context.Context, node string) error {
	m, err := n.findMember(node)
	switch {
	case err != nil:
		return err
	case node == n.cfg.ID:
		return leadsFirst(node)
	case m.Learner && !m.Voter:
		return nil
	}
	if m.Voter {
		if err := n.enoughWithout(node, n.Members(), true); err != nil {
			return err
		}
	}
	if !m.Learner {
		if err := n.cfg.SetLearner(ctx, node, true); err != nil {
			return err
		}
	}
	again := time.NewTicker(n.cfg.Pace.Ask / 10)
	defer again.Stop()
	for {
		m, err := n.findMember(node)
		switch {
		case err != nil:
			return err
		case !m.Voter:
			return nil
		case n.raft.State() != raft.Leader:
			return errors.New("the leader has changed meanwhile, and the next one goes on with it: look at FILA.CLUSTER STATUS")
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("node %s is to be a learner, and keeps its vote until another node has caught up: %w", node, ctx.Err())
		}
	}
}

func (n *Node) makeVoter(ctx context.Context, node string) error {
	m, err := n.findMember(node)
	switch {
	case err != nil:
		return err
	case m.Learner:
		return n.cfg.SetLearner(ctx, node, false)
	case m.Voter:
		return nil
	}
	if voters, wanted := len(n.voters()), votersWanted(len(n.cfg.Peers)); voters >= wanted {
		return fmt.Errorf("the cluster has %d voters, as many as it needs: make one of them a learner, and node %s takes its place", voters, node)
	}
	return nil // it gets its vote without being named, once it has caught up
}

// leadsFirst refuses what is not done to the node that leads.
func leadsFirst(node string) error {
	return fmt.Errorf("node %s leads: hand the leadership over first (FILA.CLUSTER TRANSFER)", node)
}

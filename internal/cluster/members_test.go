package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// record is what a leader is to write of a learner.
type record struct {
	node    string
	learner bool
	done    chan error // capacity 1
}

// setLearner is the Config.SetLearner of all nodes.
func (c *trial) setLearner(ctx context.Context, node string, learner bool) error {
	r := &record{node, learner, make(chan error, 1)}
	select {
	case c.records <- r:
		return <-r.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// recording is work that commits the records of learners, and a batch at each tick.
func (c *trial) recording(done *atomic.Int64) func(context.Context, string, *Leadership) error {
	return func(ctx context.Context, node string, l *Leadership) error {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-l.Yield:
				return nil
			case r := <-c.records:
				var b storage.Batch
				storage.PutLearner(&b, r.node, r.learner)
				r.done <- l.Store.Commit(&b, true)
			case <-time.After(time.Millisecond):
			}
			if err := put(l, fmt.Sprintf("%s-%d-%06d", node, l.Term, i)); err != nil {
				return err
			}
			done.Add(1)
		}
	}
}

// choosing starts nodes whose leaders write the records of learners, and waits until voters are there.
func choosing(t *testing.T, voters int, nodes ...string) (c *trial, done *atomic.Int64) {
	t.Helper()
	c, done = newTrial(t, nodes...), new(atomic.Int64)
	c.work = c.recording(done)
	c.startAll()
	testkit.Eventually(t, "a leader with its voters", func() bool { return len(c.votes()) == voters })
	c.heard()
	return c, done
}

// first waits until a node leads, and returns the one that leads in the newest term.
func (c *trial) first() (leader string) {
	c.t.Helper()
	testkit.Eventually(c.t, "a node leads", func() bool {
		leader = c.newest()
		return leader != ""
	})
	return leader
}

// newest returns the node that leads in the newest term, "" if none does.
func (c *trial) newest() (leader string) {
	term := uint64(0)
	for id, r := range c.nodes {
		if r.node == nil {
			continue
		}
		if s := r.node.Status(); s.State == "leader" && s.Term > term {
			leader, term = id, s.Term
		}
	}
	return leader
}

// votes returns the voters as the leader knows them, in order.
func (c *trial) votes() (ids []string) {
	for _, p := range c.nodes[c.first()].node.voters() {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids
}

// spare returns the member that does not vote.
func (c *trial) spare() string {
	voters := c.votes()
	for id := range c.nodes {
		if !slices.Contains(voters, id) {
			return id
		}
	}
	c.t.Fatal("all members vote")
	return ""
}

// follower returns a voter that does not lead.
func (c *trial) follower() string {
	leader := c.first()
	voters := slices.DeleteFunc(c.votes(), func(id string) bool { return id == leader })
	return voters[0]
}

// operated has the leader do something, until it is not refused because the leader changes meanwhile.
func (c *trial) operated(what string, do func(*Node) error) {
	c.t.Helper()
	var err error
	testkit.Eventually(c.t, what, func() bool {
		if err = do(c.nodes[c.first()].node); err != nil {
			c.t.Logf("%s: %v", what, err)
		}
		return err == nil
	})
}

// learner has the leader make a node a learner, until it is one.
func (c *trial) learner(id string) {
	c.t.Helper()
	c.operated(id+" as a learner", func(n *Node) error {
		c.deposed(id)
		return n.Learner(c.t.Context(), id)
	})
}

// record has the leader write that a node is a learner, until it has.
func (c *trial) record(id string) {
	c.t.Helper()
	testkit.Eventually(c.t, "the record of "+id, func() bool { return c.setLearner(c.t.Context(), id, true) == nil })
}

// The one that is named keeps its copy and gets no vote, whatever happens, until it is named again.
func TestALearnerOfAnOperatorDoesNotVoteUntilItMay(t *testing.T) {
	c, done := choosing(t, 3, "a", "b", "c", "d")
	named, spare := c.follower(), c.spare()
	ctx := t.Context()
	for range 2 { // the second time it is one already
		// After an election the leader does not know at once that the spare one has caught up.
		testkit.Eventually(t, named+" as a learner", func() bool {
			c.deposed(named)
			return c.nodes[spare].node.Learner(ctx, named) == nil
		})
		if v := c.votes(); len(v) != 3 || slices.Contains(v, named) || !slices.Contains(v, spare) {
			t.Fatalf("%v vote, %s is a learner", v, named)
		}
	}
	progress := func(n int64) {
		t.Helper()
		before := done.Load()
		testkit.Eventually(t, "batches", func() bool { return done.Load() > before+n })
	}
	progress(5)
	refusedAtLast(t, func() error { return c.nodes[c.first()].node.Transfer(ctx, named) }, "does not vote")
	// A restart of all, and a failover.
	for id := range c.nodes {
		c.kill(id)
	}
	c.startAll()
	progress(5)
	c.heard()
	lost := c.first()
	c.kill(lost)
	progress(5)
	c.removed(c.first(), lost)
	// There are fewer voters than wanted now, and it has caught up.
	progress(200)
	if v := c.votes(); len(v) != 2 || slices.Contains(v, named) {
		t.Errorf("%v vote, %s is a learner", v, named)
	}
	// It loses its disk and joins again.
	c.end(named)
	c.wipe(named)
	c.start(named)
	testkit.Eventually(t, "a copy of the data", func() bool { return c.nodes[named].node.applied() > 0 })
	progress(200)
	if m := c.member(c.first(), named); m.Voter || !m.Learner {
		t.Errorf("a learner that has lost its disk: %+v", m)
	}
	for range 2 {
		c.operated("the vote of "+named, func(n *Node) error { return n.Voter(ctx, named) })
		testkit.Eventually(t, named+" voting", func() bool { return slices.Contains(c.votes(), named) && len(c.votes()) == 3 })
	}
	c.wipe(lost)
}

func TestALearnerIsRefusedWhereTheOthersWereTooFew(t *testing.T) {
	c, _ := choosing(t, 3, "a", "b", "c")
	other := c.follower()
	n, ctx := c.nodes[other].node, t.Context()
	refusedAtLast(t, func() error { return n.Learner(ctx, "x") }, "no member", `"x"`, "[a b c]")
	refusedAtLast(t, func() error { return n.Voter(ctx, "x") }, "no member", `"x"`)
	testkit.Eventually(t, "a refusal of the node that leads", func() bool {
		leader := c.first()
		err := n.Learner(ctx, leader)
		return err != nil && strings.Contains(err.Error(), leader+" leads") && strings.Contains(err.Error(), "TRANSFER")
	})
	refusedAtLast(t, func() error { return n.Learner(ctx, c.follower()) }, "2 voters would be left, and 3 are the least", "cluster.peers")
	testkit.Eventually(t, "a voter is to vote", func() bool { return n.Voter(ctx, other) == nil })
	for id, r := range c.nodes {
		if nodes, err := storage.ReadLearners(r.store); err != nil || len(nodes) > 0 {
			t.Errorf("after the refusals %s has the learners %v, %v", id, nodes, err)
		}
	}
	if len(c.votes()) != 3 {
		t.Errorf("%v vote", c.votes())
	}
}

func TestALearnerIsRefusedWhereTheOthersWereNoMajority(t *testing.T) {
	c, _ := choosing(t, 5, "a", "b", "c", "d", "e")
	leader := c.first()
	off := slices.DeleteFunc(slices.Sorted(maps.Keys(c.nodes)), func(id string) bool { return id == leader })
	wanted := off[0]
	for _, id := range off[1:3] {
		c.kill(id)
	}
	n := c.nodes[leader].node
	testkit.Eventually(t, "two that do not answer", func() bool { return c.member(leader, off[1]).Refusal != "" && c.member(leader, off[2]).Refusal != "" })
	refusedAtLast(t, func() error { // of a node that is there and does not lead
		return n.Learner(t.Context(), map[bool]string{true: leader, false: wanted}[c.first() == wanted])
	}, "2 of 4 voters would answer", "no majority")
	// Of five, two may be learners.
	for _, id := range off[1:3] {
		c.start(id)
	}
	c.heard()
	for i, id := range off[:2] {
		c.learner(id)
		if v := c.votes(); len(v) != 4-i || slices.Contains(v, id) {
			t.Errorf("%v vote, %s is a learner", v, id)
		}
	}
	c.heard()
	refusedAtLast(t, func() error { return c.nodes[c.first()].node.Learner(t.Context(), c.follower()) }, "2 voters would be left")
}

// What comes between the record and the change of the members does not matter: the record counts.
func TestALeaderThatIsToBeALearnerHandsOver(t *testing.T) {
	c, done := choosing(t, 3, "a", "b", "c", "d")
	old := c.first()
	c.record(old)
	testkit.Eventually(t, "another leader and three voters without "+old, func() bool {
		return c.first() != old && len(c.votes()) == 3 && !slices.Contains(c.votes(), old)
	})
	before := done.Load()
	testkit.Eventually(t, "batches", func() bool { return done.Load() > before+20 })
	testkit.EventuallyEqual(t, "the state of the learner", "follower", func() string { return c.nodes[old].node.Status().State })
}

// A member without a vote takes the place of one that becomes a learner, unless an operator has named it.
func TestANodeThatIsNotNeededIsNotMadeAVoter(t *testing.T) {
	c, done := choosing(t, 3, "a", "b", "c", "d")
	spare := c.spare()
	refusedAtLast(t, func() error { return c.nodes[c.first()].node.Voter(t.Context(), spare) }, "3 voters, as many as it needs", "make one of them a learner")
	c.learner(spare) // by name, too
	refusedAtLast(t, func() error { return c.nodes[c.first()].node.Learner(t.Context(), c.follower()) }, "2 voters would be left")
	// Its record goes with it: the next node of its name is another one.
	c.removed(c.first(), spare)
	if err := c.ended(spare); err == nil || !strings.Contains(err.Error(), "was removed") {
		t.Error(err)
	}
	testkit.Eventually(t, "no record of a learner", func() bool { // at the leader, which may be another one by now
		nodes, err := storage.ReadLearners(c.nodes[c.first()].store)
		return err == nil && len(nodes) == 0
	})
	c.wipe(spare)
	c.start(spare)
	c.learner(c.follower())
	testkit.Eventually(t, "the vote of "+spare, func() bool { return slices.Contains(c.votes(), spare) })
	before := done.Load()
	testkit.Eventually(t, "batches", func() bool { return done.Load() > before+20 })
}

func TestWithoutALeaderNoNodeIsMadeALearner(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.start("a")
	for name, do := range map[string]func(*Node) error{
		"learner": func(n *Node) error { return n.Learner(t.Context(), "b") },
		"voter":   func(n *Node) error { return n.Voter(t.Context(), "b") },
	} {
		if err := do(c.nodes["a"].node); !errors.Is(err, ErrNoLeader) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node whose vote only the lost leader and itself know of leads with the third one, which lacks that
// entry, and what came after it.
func TestANodeLeadsWhoseVoteTheOthersHaveNotLearntOf(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	var done atomic.Int64
	c.work = c.recording(&done)
	c.startAll()
	c.formed()
	c.heard()
	other := c.follower()
	// With this record the leader leaves it to the test to give the vote back.
	c.record(other)
	addr := ""
	for _, p := range c.peers {
		if p.ID == other {
			addr = p.Addr
		}
	}
	leader, late := "", ""
	testkit.Eventually(t, "a vote that only two nodes know of", func() bool {
		c.deposed(other)
		leader = c.first()
		late = map[bool]string{true: ring(other), false: ring(leader)}[ring(leader) == other]
		r := c.nodes[leader].node.raft
		if leader == other || r.DemoteVoter(raft.ServerID(other), 0, memberTime).Error() != nil {
			return false
		}
		testkit.Eventually(t, "all know that it does not vote", func() bool { return len(c.nodes[late].node.voters()) == 2 && len(c.nodes[other].node.voters()) == 2 })
		c.net.isolate(late, true)
		if r.AddVoter(raft.ServerID(other), raft.ServerAddress(addr), 0, memberTime).Error() == nil {
			return true
		}
		c.net.isolate(late, false) // without it the leader soon ceases to be one, which may be before the vote
		return false
	})
	before := done.Load()
	testkit.Eventually(t, "batches without the third node", func() bool { return done.Load() > before+10 })
	c.kill(leader)
	c.net.isolate(late, false)
	testkit.Eventually(t, "the node with all data leads", func() bool { return c.nodes[other].node.Status().State == "leader" })
	before = done.Load()
	testkit.Eventually(t, "batches of both", func() bool { return done.Load() > before+10 })
	c.start(leader)
	c.formed()
	c.equalAfter(&done)
}

package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// heard waits until all nodes have heard of each other.
func (c *trial) heard() {
	c.t.Helper()
	for of := range c.nodes {
		for id := range c.nodes {
			testkit.Eventually(c.t, of+" hearing of "+id, func() bool {
				m := c.member(of, id)
				_, known := c.nodes[of].node.LeaderMember()
				return known && m.Heard >= 0 && m.Refusal == "" && m.Applied > 0
			})
		}
	}
}

// serving starts all nodes with a leader that commits batches, and waits until all are well.
func serving(t *testing.T, nodes ...string) (c *trial, done *atomic.Int64) {
	t.Helper()
	c, done = newTrial(t, nodes...), new(atomic.Int64)
	c.work = steady(done)
	c.startAll()
	c.formed()
	c.heard()
	return c, done
}

// removed asks a node to remove another one, until that is done: on a machine with little time nothing was heard of the
// others for a moment, and without them it is refused.
func (c *trial) removed(asked, gone string) {
	c.t.Helper()
	testkit.Eventually(c.t, gone+" removed", func() bool {
		c.deposed(gone)
		err := c.nodes[asked].node.Remove(c.t.Context(), gone)
		return err == nil || strings.Contains(err.Error(), "no member")
	})
}

// deposed has a node hand over if it leads: on a machine with little time it may have been elected meanwhile, and what is
// done to a node that leads is refused.
func (c *trial) deposed(id string) {
	if c.newest() == id {
		_ = c.nodes[id].node.Transfer(c.t.Context(), "") // or another one leads already
	}
}

// refused fails unless an error says all parts.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

// refusedAtLast waits until what is asked again and again is refused with all parts: there may be no leader for a
// moment.
func refusedAtLast(t *testing.T, ask func() error, parts ...string) {
	t.Helper()
	var err error
	testkit.Eventually(t, fmt.Sprintf("a refusal with %q", parts), func() bool {
		err = ask()
		return err != nil && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(err.Error(), part) })
	})
}

// ended waits for the end of a node that ends by itself, and returns the reason.
func (c *trial) ended(id string) error {
	c.t.Helper()
	r := c.nodes[id]
	testkit.Eventually(c.t, "the end of "+id, func() bool { return len(r.done) > 0 })
	c.net.listens(id, "")
	if err := r.port.Close(); err != nil {
		c.t.Error(err)
	}
	r.node = nil
	return <-r.done
}

// verified compares the stores, by way of a node that may follow, in the leadership of one node: on a
// machine with little time it may change.
func (c *trial) verified() (v *Verification) {
	c.t.Helper()
	testkit.Eventually(c.t, "a comparison", func() (done bool) {
		for _, r := range c.nodes {
			var err error
			if r.node == nil {
				continue
			}
			if v, err = r.node.Verify(c.t.Context()); err == nil {
				return true
			}
		}
		return false
	})
	return v
}

// compared compares the stores until the digests of all nodes but one are known: one that is late with its digest is
// unknown.
func (c *trial) compared(but string) (v *Verification) {
	c.t.Helper()
	testkit.Eventually(c.t, "digests of all nodes but "+but, func() bool {
		v = c.verified()
		return !slices.ContainsFunc(v.Nodes, func(n Verified) bool { return n.Node != but && n.Result == VerifiedUnknown })
	})
	return v
}

// ring returns the node behind another one.
func ring(id string) string { return map[string]string{"a": "b", "b": "c", "c": "a"}[id] }

func TestLeadershipIsHandedOverToTheNodeThatIsNamed(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	for range 3 {
		old := c.leader()
		to, asked := ring(old), ring(ring(old))            // asked by the third
		testkit.Eventually(t, to+" leading", func() bool { // on a machine with little time the leader may change by itself
			if now := c.leads(); now != "" && now != to {
				_ = c.nodes[asked].node.Transfer(t.Context(), to)
			}
			return c.leads() == to
		})
		before := done.Load()
		testkit.Eventually(t, "batches of the next leader", func() bool { return done.Load() > before+5 })
		c.heard()
	}
	old := c.leader()
	testkit.Eventually(t, "another leader", func() bool { // a hand-over takes at most an election, or fails
		l := c.leads()
		if l == old {
			_ = c.nodes[old].node.Transfer(t.Context(), "")
		}
		return l != "" && l != old
	})
}

func TestATransferThatCannotSucceedChangesNothing(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	leader := c.leader()
	n := c.nodes[leader].node
	refusedAtLast(t, func() error { return n.Transfer(t.Context(), c.first()) }, "leads already")
	refusedAtLast(t, func() error { return n.Transfer(t.Context(), "x") }, "no member", `"x"`, "[a b c]")
	full := ring(leader)
	c.nodes[full].store.setRefuse(storage.ErrFull)
	before := done.Load()
	testkit.Eventually(t, "a store that refuses writes", func() bool { return done.Load() > before+5 && !c.member(leader, full).Writable })
	testkit.Eventually(t, "a transfer that is refused for the store", func() bool { // or nothing was heard of the node for a moment
		err := n.Transfer(t.Context(), full)
		return err != nil && strings.Contains(err.Error(), "takes no writes")
	})
	c.nodes[full].store.setRefuse(nil)
	off := ring(full)
	c.net.isolate(off, true)
	testkit.Eventually(t, "a node that does not answer", func() bool { return c.member(leader, off).Refusal != "" })
	refusedAtLast(t, func() error { return n.Transfer(t.Context(), off) }, "does not answer")
	before = done.Load()
	testkit.Eventually(t, "batches", func() bool { return done.Load() > before+5 })
	c.net.isolate(off, false)
}

func TestANodeThatIsRemovedEndsAndComesBackEmptyOnly(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	leader := c.leader()
	gone, asked := ring(leader), ring(ring(leader))
	refusedAtLast(t, func() error { return c.nodes[asked].node.Remove(t.Context(), c.leader()) }, "leads", "TRANSFER")
	refusedAtLast(t, func() error { return c.nodes[asked].node.Remove(t.Context(), "x") }, "no member")
	c.removed(asked, gone)
	refused(t, c.ended(gone), "was removed", "empty its storage.path and cluster.path")
	before := done.Load()
	testkit.Eventually(t, "batches of the two that are left", func() bool { return done.Load() > before+20 })
	c.wipe(gone)
	c.start(gone)
	c.formed()
	c.heard()
}

func TestAVoterIsNotRemovedWhenTheOthersWereNoMajority(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	leader := c.leader()
	off, wanted := ring(leader), ring(ring(leader))
	c.net.isolate(off, true)
	for _, of := range []string{leader, wanted} {
		testkit.Eventually(t, "silence of "+off+" for "+of, func() bool { return c.member(of, off).Refusal != "" })
	}
	refusedAtLast(t, func() error { // of the two that are left, the one that does not lead
		return c.nodes[leader].node.Remove(t.Context(), map[bool]string{true: leader, false: wanted}[c.first() == wanted])
	}, "1 of 2 voters would answer")
	// The one that does not answer may go.
	c.removed(leader, off)
	before := done.Load()
	testkit.Eventually(t, "batches", func() bool { return done.Load() > before+5 })
}

func TestWithoutALeaderNothingIsChanged(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.start("a")
	for name, do := range map[string]func(*Node) error{
		"remove":   func(n *Node) error { return n.Remove(context.Background(), "b") },
		"transfer": func(n *Node) error { return n.Transfer(context.Background(), "") },
		"verify":   func(n *Node) error { _, err := n.Verify(context.Background()); return err },
	} {
		if err := do(c.nodes["a"].node); !errors.Is(err, ErrNoLeader) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStoresThatAreEqualAreFoundToBe(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	for range digestsMax + 1 {
		v := c.compared("")
		for _, n := range v.Nodes {
			if n.Result != VerifiedEqual || n.Digest != v.Nodes[0].Digest || n.Records == 0 || n.Trouble != "" {
				t.Errorf("at entry %d: %+v", v.Index, v.Nodes)
			}
		}
		before := done.Load()
		testkit.Eventually(t, "batches", func() bool { return done.Load() > before+5 })
	}
	for id, r := range c.nodes {
		if n := len(r.node.fsm.digests.all); n != digestsMax {
			t.Errorf("%s keeps %d digests", id, n)
		}
	}
}

// A store that differs is the sign of a mistake in Fila or in a machine: its node must not go on.
func TestANodeWhoseStoreDiffersEndsAndDoesNotStartAgain(t *testing.T) {
	for name, choose := range map[string]func(leader string) string{"a follower": ring, "the leader": func(l string) string { return l }} {
		t.Run(name, func(t *testing.T) {
			c, done := serving(t, "a", "b", "c")
			wrong := choose(c.leader())
			c.with(wrong, "that no other node has")
			found, pause := false, 0
			testkit.Eventually(t, wrong+" differing, and its end", func() bool {
				if len(c.nodes[wrong].done) > 0 {
					return found
				}
				if pause--; pause > 0 {
					return false // it ends, or another comparison tells it again
				}
				all := c.verified().Nodes
				whole := !slices.ContainsFunc(all, func(n Verified) bool { return n.Result == VerifiedUnknown })
				for _, n := range all {
					found = found || n.Node == wrong && n.Result == VerifiedDiffers
					if whole && n.Node == wrong && n.Result == VerifiedDiffers {
						pause = 100 // looks
					}
					if whole && n.Node != wrong && n.Result == VerifiedDiffers { // of two digests, neither is a majority's
						t.Errorf("%+v", n)
					}
				}
				return false
			})
			refused(t, c.ended(wrong), "the digest", "empty storage.path and cluster.path")
			refused(t, c.tryToStart(wrong, c.peers), "found to differ")
			c.wipe(wrong)
			c.start(wrong)
			c.formed()
			c.heard()
			c.equalAfter(done)
		})
	}
}

func TestANodeThatWasDownHasNoDigest(t *testing.T) {
	c, _ := serving(t, "a", "b", "c")
	leader := c.leader()
	down := ring(leader)
	c.kill(down)
	for _, n := range c.compared(down).Nodes {
		want := map[bool]string{true: VerifiedUnknown, false: VerifiedEqual}[n.Node == down]
		if n.Result != want || (n.Trouble == "") != (n.Node != down) {
			t.Errorf("%+v", n)
		}
	}
	c.start(down)
}

func TestANodeWhoseStoreTakesNoWritesDoesNotHoldUpAComparison(t *testing.T) {
	c, _ := serving(t, "a", "b", "c")
	full := ring(c.leader())
	c.nodes[full].store.setRefuse(storage.ErrFull)
	testkit.Eventually(t, "a write that is refused", func() bool { return !c.nodes[full].node.Status().Writable })
	for _, n := range c.compared(full).Nodes {
		want := map[bool]string{true: VerifiedUnknown, false: VerifiedEqual}[n.Node == full]
		if n.Result != want || strings.Contains(n.Trouble, "has not come to entry") != (n.Node == full) {
			t.Errorf("%+v", n)
		}
	}
	c.nodes[full].store.setRefuse(nil)
}

func TestWithoutAMajorityOfDigestsNoNodeIsConvicted(t *testing.T) {
	v := Verification{Nodes: []Verified{{Node: "a", Digest: "1"}, {Node: "b", Digest: "2"}, {Node: "c"}}}
	if sum := v.judge(); sum != "" || v.Nodes[0].Result != VerifiedDiffers || v.Nodes[1].Result != VerifiedDiffers || v.Nodes[2].Result != VerifiedUnknown {
		t.Errorf("%q is the majority of %+v", sum, v.Nodes)
	}
	v = Verification{Nodes: []Verified{{Node: "a", Digest: "1"}, {Node: "b", Digest: "2"}, {Node: "c", Digest: "1"}}}
	if sum := v.judge(); sum != "1" || v.Nodes[0].Result != VerifiedEqual || v.Nodes[1].Result != VerifiedDiffers {
		t.Errorf("%q is the majority of %+v", sum, v.Nodes)
	}
}

// rewind gives a node that is down the store that it had when dir was made: what a power cut may leave of
// a store that is not synced.
func (c *trial) rewind(id, dir string) {
	c.t.Helper()
	if err := c.nodes[id].store.Adopt(dir); err != nil {
		c.t.Fatal(err)
	}
}

// written returns the keys that leaders have written, as lines of contents.
func written(contents string) (keys []string) {
	for line := range strings.Lines(contents) {
		if strings.HasPrefix(line, "state ") && !strings.Contains(line, hex.EncodeToString(storage.ReplicaKey())) {
			keys = append(keys, line)
		}
	}
	return keys
}

// What the log has is applied before the store leaves, and a second call finds nothing to do.
func TestANodeLeavesItsClusterWithEverything(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	leader := c.leader()
	early := filepath.Join(t.TempDir(), "early")
	if err := c.nodes[leader].store.Checkpoint(early); err != nil {
		t.Fatal(err)
	}
	before := done.Load()
	testkit.Eventually(t, "batches", func() bool { return done.Load() > before+50 })
	for id := range c.nodes {
		c.kill(id)
	}
	r := c.nodes[leader]
	dir := filepath.Join(r.dir, "cluster")
	want := written(r.store.contents(t))
	c.rewind(leader, early)
	if got := written(r.store.contents(t)); len(got) >= len(want) {
		t.Fatal("the store has lost nothing")
	}
	left, err := Detach(r.store, dir)
	if err != nil {
		t.Fatal(err)
	}
	if left.Cluster == "" || left.Node != leader || left.Entry == 0 || left.Replayed < 50 || left.Kept != dir+keptSuffix {
		t.Errorf("%+v", left)
	}
	got := written(r.store.contents(t))
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("lost: %s", line)
		}
	}
	if of, err := replica.ReadRecord(r.store); of != nil || err != nil {
		t.Errorf("it belongs to a cluster: %+v, %v", of, err)
	}
	again, err := Detach(r.store, dir)
	if err != nil || again.Cluster != "" || again.Kept != left.Kept {
		t.Errorf("a second time: %+v, %v", again, err)
	}
	// It is the seed of the next cluster.
	for id := range c.nodes {
		if id != leader {
			c.wipe(id)
		}
	}
	c.startAll()
	c.formed()
	c.equalAfter(done)
}

func TestOneNodeOfALostMajorityBecomesACluster(t *testing.T) {
	c, done := serving(t, "a", "b", "c")
	testkit.Eventually(t, "batches", func() bool { return done.Load() > 50 })
	survivor := ring(c.leader())
	for id := range c.nodes {
		c.kill(id)
	}
	r := c.nodes[survivor]
	dir := filepath.Join(r.dir, "cluster")
	for range 2 { // it may be repeated
		left, err := Recover(r.store, dir)
		if err != nil {
			t.Fatal(err)
		}
		if left.New == "" || left.New == left.Cluster || left.Node != survivor {
			t.Errorf("%+v", left)
		}
	}
	before := done.Load()
	c.start(survivor)
	testkit.Eventually(t, "batches of one node alone", func() bool { return done.Load() > before+5 })
	// A node of the old cluster is refused, and joins when it is empty.
	other := ring(survivor)
	c.start(other)
	testkit.Eventually(t, "the refusal of "+other, func() bool {
		return strings.Contains(c.member(other, survivor).Refusal, "formed apart") && len(c.nodes[survivor].node.members()) == 1
	})
	c.kill(other)
	for id := range c.nodes {
		if id != survivor {
			c.wipe(id)
			c.start(id)
		}
	}
	c.formed()
	c.heard()
	c.equalAfter(done)
}

// equalAfter compares the digests of all nodes.
func (c *trial) equalAfter(done *atomic.Int64) {
	c.t.Helper()
	before := done.Load()
	testkit.Eventually(c.t, "batches", func() bool { return done.Load() > before+5 })
	for _, n := range c.compared("").Nodes {
		if n.Result != VerifiedEqual {
			c.t.Fatalf("%+v", n)
		}
	}
}

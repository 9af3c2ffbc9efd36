package cluster

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// disk is a copy of the disk of a node.
type disk struct {
	dir   string
	store *storage.Memory
}

// copied copies the disk of a node that is down.
func (c *trial) copied(id string) disk {
	c.t.Helper()
	d := disk{c.t.TempDir(), c.nodes[id].store.now().Clone()}
	if err := os.CopyFS(filepath.Join(d.dir, "cluster"), os.DirFS(c.path(id))); err != nil {
		c.t.Fatal(err)
	}
	return d
}

// restore puts a copy into the place of the disk of a node that is down.
func (c *trial) restore(id string, d disk) {
	c.nodes[id].dir, c.nodes[id].store = d.dir, newMemory()
	c.nodes[id].store.m = d.store
}

// aged returns a cluster that is down, a node that has everything, one that has its disk of before its last
// start, and a third one, which was down meanwhile: with unseen when that start was, too.
func aged(t *testing.T, unseen bool) (c *trial, done *atomic.Int64, full, old, third string) {
	t.Helper()
	c, done = serving(t, "a", "b", "c")
	full = c.leader()
	old = ring(full)
	third = ring(old)
	c.end(old)
	d := c.copied(old)
	if unseen {
		c.kill(third)
	}
	c.start(old)
	starts := func(of string) uint64 {
		n := c.nodes[of].node
		n.mu.Lock()
		defer n.mu.Unlock()
		if s := n.heardOf[old]; s != nil {
			return s.Starts
		}
		return 0
	}
	testkit.Eventually(t, "the others know of its second start", func() bool { return starts(full) == 2 && (unseen || starts(third) == 2) })
	if !unseen {
		c.kill(third)
	}
	before := done.Load()
	testkit.Eventually(t, "batches that the third node lacks", func() bool { return done.Load() > before+20 })
	c.kill(full)
	c.kill(old)
	c.restore(old, d)
	return c, done, full, old, third
}

// A node with an old disk does not help to elect a leader that lacks what was acknowledged: any node that has
// known it since refuses it, and it ends.
func TestAnOlderCopyOfADiskIsRefused(t *testing.T) {
	c, done, full, old, third := aged(t, false)
	c.start(third)
	before := done.Load()
	c.start(old)
	refused(t, c.ended(old), "the disk of node "+old+" is an older copy", "never bring an old disk back")
	if done.Load() != before {
		t.Error("a majority without what was acknowledged has served")
	}
	c.start(full)
	testkit.Eventually(t, "the two others serve", func() bool { return done.Load() > before+10 })
	c.wipe(old)
	c.start(old)
	c.formed()
	c.equalAfter(done)
}

// Where no node that is up has known it since, nodes end by name when one that has what was acknowledged comes
// back, and keep what they have: that one when the others replace it, or those that have led, or followed, the same term.
func TestANodeWhoseSettledEntriesAreReplacedEnds(t *testing.T) {
	c, done, full, old, third := aged(t, true)
	c.start(third)
	before := done.Load()
	c.start(old)
	testkit.Eventually(t, "the others serve without it", func() bool { return done.Load() > before+10 })
	kept := c.nodes[full].store.contents(t)
	c.start(full)
	by := ""
	testkit.Eventually(t, "the end of a node", func() bool {
		for _, id := range []string{full, third} {
			if len(c.nodes[id].done) > 0 {
				by = id
			}
		}
		return by != ""
	})
	refused(t, c.ended(by), "Old disks", "keeps its data")
	if now := c.nodes[full].store.contents(t); len(now) < len(kept) {
		t.Error("its data is not there")
	}
	for id, r := range c.nodes {
		if r.node == nil {
			continue
		}
		if err := c.tryToEnd(id); err != nil && id == old {
			refused(t, err, "older copy")
		} else if err != nil {
			refused(t, err, "Old disks")
		}
	}
}

// tryToEnd stops a node, and returns the error with which it had ended.
func (c *trial) tryToEnd(id string) error {
	c.t.Helper()
	r := c.nodes[id]
	r.stop()
	err := <-r.done
	c.net.listens(id, "")
	if err := r.port.Close(); err != nil {
		c.t.Error(err)
	}
	r.node = nil
	return err
}

// A node that has followed the leader of a term ends when another node says that it has led that term, also if neither
// is this one: what both have written has the same terms.
func TestANodeEndsThatHasFollowedOneOfTwoLeadersOfATerm(t *testing.T) {
	c, _ := serving(t, "a", "b", "c")
	leader := c.leader()
	follower, other := ring(leader), ring(ring(leader))
	n := c.nodes[follower].node
	led := func() uint64 {
		n.mu.Lock()
		defer n.mu.Unlock()
		if s := n.heardOf[leader]; s != nil {
			return s.Led
		}
		return 0
	}
	testkit.Eventually(t, follower+" knowing which term "+leader+" leads", func() bool { return led() > 0 })
	term := led()
	if err := n.oneLeader(term, raft.ServerID(leader)); err != nil {
		t.Errorf("the leader itself: %v", err)
	}
	refused(t, n.checkStanding(&greeting{Node: other, Standing: &standing{Led: term}}), "node "+leader+" has", "a node has voted twice")
	refused(t, c.ended(follower), "Old disks", "keeps its data")
}

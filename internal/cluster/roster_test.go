package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// member returns what a node knows of another one. A node that has just started learns
// from the log whom it belongs with, so member waits until the other one is listed.
func (c *trial) member(of, id string) (known Member) {
	c.t.Helper()
	testkit.Eventually(c.t, of+" listing "+id, func() bool {
		members := c.nodes[of].node.Members()
		i := slices.IndexFunc(members, func(m Member) bool { return m.Node == id })
		if i >= 0 {
			known = members[i]
		}
		return i >= 0
	})
	return known
}

// steady is work that commits a batch at each tick until it ends.
func steady(done *atomic.Int64) func(context.Context, string, *Leadership) error {
	return func(ctx context.Context, node string, l *Leadership) error {
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-l.Yield:
				return nil
			case <-time.After(time.Millisecond):
			}
			if err := put(l, fmt.Sprintf("%s-%d-%06d", node, l.Term, i)); err != nil {
				return err
			}
			done.Add(1)
		}
	}
}

func TestEachNodeKnowsWhereClientsReachTheOthers(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	for of := range c.nodes {
		for id := range c.nodes {
			testkit.Eventually(t, of+" knowing "+id, func() bool {
				m := c.member(of, id)
				return m.Contact == Contact{Host: id + ".test", Port: 5555} && m.Voter && m.Version == "test" && m.Free == 7 && m.Heard >= 0 && m.Refusal == ""
			})
		}
	}
}

// What nodes know of each other outlives the leader: the next one does not begin from nothing.
func TestTheNextLeaderKnowsTheOthersAtOnce(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	old := c.leader()
	for of := range c.nodes {
		for id := range c.nodes {
			testkit.Eventually(t, of+" knowing "+id, func() bool { return c.member(of, id).Heard >= 0 })
		}
	}
	before := map[string]uint64{}
	for of, r := range c.nodes {
		before[of] = r.node.Status().Failovers
	}
	c.kill(old)
	testkit.Eventually(t, "another leader", func() bool { l := c.leads(); return l != "" && l != old })
	for of, r := range c.nodes {
		if of == old {
			continue
		}
		if m := c.member(of, old); m.Contact.Host != old+".test" {
			t.Errorf("%s has forgotten where %s is: %+v", of, old, m)
		}
		testkit.Eventually(t, of+" noticing that "+old+" is gone", func() bool { return c.member(of, old).Refusal != "" })
		testkit.Eventually(t, of+" counting the failover", func() bool { return r.node.Status().Failovers > before[of] })
		testkit.Eventually(t, of+" naming the leader", func() bool {
			m, ok := r.node.LeaderMember()
			return ok && m.Node == c.leads() && m.Contact.Host == m.Node+".test"
		})
	}
}

// steadily starts three nodes of which one leads and commits steadily, and returns it with one of the others.
func steadily(t *testing.T) (c *trial, done *atomic.Int64, leader, other string) {
	t.Helper()
	c, done = newTrial(t, "a", "b", "c"), new(atomic.Int64)
	c.work = steady(done)
	c.startAll()
	c.formed()
	leader = c.leader()
	return c, done, leader, map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
}

func TestANodeWhoseStoreDoesNotKeepUpIsBehind(t *testing.T) {
	c, done, leader, slow := steadily(t)
	testkit.Eventually(t, "no node behind", func() bool {
		return done.Load() > 50 && c.member(leader, slow).Behind == 0 && c.member(slow, slow).Behind == 0
	})
	c.nodes[slow].store.setRefuse(storage.ErrFull)
	for _, of := range []string{leader, slow} {
		testkit.Eventually(t, of+" seeing that it is behind", func() bool {
			m := c.member(of, slow)
			return m.Behind > 50 && m.Late > 50*time.Millisecond && !m.Writable
		})
	}
	testkit.Eventually(t, "the leader is not behind", func() bool {
		leads := c.first()
		return c.member(leads, leads).Behind == 0
	})
	c.nodes[slow].store.setRefuse(nil)
	for _, of := range []string{leader, slow} {
		testkit.Eventually(t, of+" seeing that it has caught up", func() bool {
			m := c.member(of, slow)
			return m.Behind == 0 && m.Late == 0 && m.Writable
		})
	}
}

func TestAwaitEndsWhenTheOthersHaveEverything(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	var done atomic.Int64
	c.work = steady(&done)
	c.startAll()
	c.formed()
	leader := c.leader()
	l := c.nodes[leader].node
	counts := make(chan int, 10)
	note := func(n int) { counts <- n }
	for range 5 {
		l.Await(2, 0, note)
		if got := <-counts; got != 2 {
			t.Fatalf("%d nodes have everything, want 2", got)
		}
	}
	l.Await(0, 0, note)
	<-counts // at once, whatever the others have
	off := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	c.net.isolate(off, true)
	before := done.Load()
	testkit.Eventually(t, "batches that it misses", func() bool { return done.Load() > before+20 })
	end := l.Await(1, 0, note)
	if got := <-counts; got != 1 {
		t.Errorf("%d nodes have everything, want 1", got)
	}
	end() // it has ended
	l.Await(2, 30*time.Millisecond, note)
	if got := <-counts; got > 1 {
		t.Errorf("%d nodes have everything after the timeout, one is cut off", got)
	}
	end = l.Await(2, 0, note)
	testkit.Eventually(t, "questions at short intervals", func() bool { return l.roster.pause() == askFast })
	end()
	end()
	if got := <-counts; got > 1 {
		t.Errorf("%d nodes have everything at the end, one is cut off", got)
	}
	if len(counts) > 0 {
		t.Error("a wait has ended twice")
	}
	if l.roster.pause() != l.cfg.Pace.Watch {
		t.Error("it goes on to ask at short intervals")
	}
}

func TestANodeThatIsNoMemberKnowsTheConfiguredNodes(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.start("a")
	c.start("b")
	testkit.Eventually(t, "a hearing of b, and not of c", func() bool {
		b, missing := c.member("a", "b"), c.member("a", "c")
		return b.Heard >= 0 && b.State == StateEntering && !b.Voter && missing.Heard < 0 && missing.Refusal != ""
	})
}

// refreshed returns what a node knows of another one after it has asked it.
func (c *trial) refreshed(of, id string) Member {
	c.t.Helper()
	done := make(chan struct{})
	c.nodes[of].node.Refresh(func() { close(done) })
	testkit.Receive(c.t, of+" asking the others", done)
	return c.member(of, id)
}

// A node that comes back is not taken for what it was: it has to catch up, and is seen to be gone as soon as
// it is asked.
func TestANodeIsCurrentOnceItsPresentProcessHasCaughtUp(t *testing.T) {
	c, done, leader, back := steadily(t)
	for _, of := range []string{leader, back} {
		testkit.Eventually(t, of+" seeing that it is current", func() bool { return c.member(of, back).Current })
	}
	c.kill(back)
	if m := c.refreshed(leader, back); m.Refusal == "" {
		t.Errorf("a node that is gone answers: %+v", m)
	}
	before := done.Load()
	testkit.Eventually(t, "it misses entries", func() bool { return done.Load() > before+50 })
	c.nodes[back].store.setRefuse(storage.ErrFull)
	c.start(back)
	testkit.Eventually(t, "it answers", func() bool { return c.refreshed(leader, back).Refusal == "" })
	looks := int64(0)
	for before = done.Load(); done.Load() < before+100; looks++ {
		for _, of := range []string{leader, back} {
			if m := c.refreshed(of, back); m.Current {
				t.Fatalf("%s takes a node for current that takes no entries: %+v", of, m)
			}
		}
	}
	t.Logf("%d looks", looks)
	c.nodes[back].store.setRefuse(nil)
	for _, of := range []string{leader, back} {
		testkit.Eventually(t, of+" seeing that it is current again", func() bool { return c.refreshed(of, back).Current })
	}
}

// A node whose log lacks the entry that has made it a member shows the members of the past: a client that waits for
// it to be well must go on waiting.
func TestANodeThatLacksItsAdmissionIsNotCurrent(t *testing.T) {
	r := newRoster(nil)
	r.own.current = true
	r.others["b"] = &other{progress: progress{current: true}, status: &Status{Node: "b"}}
	for _, lacks := range []bool{false, true} {
		own := Status{Node: "a", Lacks: lacks}
		r.others["b"].status.Lacks = lacks
		for _, id := range []string{"a", "b"} {
			if m := r.member(Peer{ID: id}, &own); m.Current == lacks {
				t.Errorf("%s lacks its admission: %v, and is current: %v", id, lacks, m.Current)
			}
		}
	}
}

// A member waits for its vote while too few have one, and only then.
func TestAMemberThatIsToVoteWaitsForIt(t *testing.T) {
	c, _ := choosing(t, 3, "a", "b", "c", "d")
	spare, gone := c.spare(), c.follower()
	of := c.first()
	if m := c.member(of, spare); m.Waiting {
		t.Errorf("the fourth node waits for a vote: %+v", m)
	}
	c.net.isolate(spare, true) // so that it gets none
	c.removed(of, gone)
	refused(t, c.ended(gone), "was removed from the cluster")
	if m := c.member(c.first(), spare); m.Voter || !m.Waiting {
		t.Errorf("with two voters, the third node waits for no vote: %+v", m)
	}
	c.net.isolate(spare, false)
	testkit.Eventually(t, spare+" votes", func() bool { m := c.member(c.first(), spare); return m.Voter && !m.Waiting })
}

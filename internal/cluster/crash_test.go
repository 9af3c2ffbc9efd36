package cluster

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/faisca/fila/internal/testkit"
)

var errCrash = errors.New("crash")

// crashAt has a node crash after a step of forming or joining, once. fallen receives it.
func (c *trial) crashAt(at map[string]string) (fallen <-chan string) {
	down := make(chan string, len(at))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = func(node, step string) error {
		if at[node] != step {
			return nil
		}
		delete(at, node)
		down <- node
		return fmt.Errorf("%w after: %s", errCrash, step)
	}
	return down
}

// crashed waits for the end of a node that crashes. Its disk has what it had written.
func (c *trial) crashed(id string) {
	c.t.Helper()
	r := c.nodes[id]
	if err := <-r.done; !errors.Is(err, errCrash) {
		c.t.Fatalf("node %s ends with %v", id, err)
	}
	if err := r.port.Close(); err != nil {
		c.t.Error(err)
	}
	c.net.listens(id, "")
	r.node = nil
}

// Forming, joining with and without data, and coming back with an empty disk go on after a crash behind
// each of their steps, on the node that forms the cluster and on one that joins it.
func TestEachStepOfFormingMayBeTheLastBeforeACrash(t *testing.T) {
	forming := []string{stepClaimed, stepEmptied, stepBegun, stepNamed, stepOpened}
	joining := []string{stepEmptied, stepAdmitted, stepNamed, stepOpened, stepArrived, stepAdopted, stepNoted}
	for scenario, x := range []struct {
		name    string
		seed    string // the node that forms the cluster
		data    bool
		wiped   bool // the cluster is formed, and one node comes back with an empty disk
		forming []string
	}{{"empty nodes", "a", false, false, forming}, {"one node with data", "b", true, false, forming}, {"an empty disk", "a", true, true, nil}} {
		for i, step := range joining {
			if once := i % 2; testing.Short() && scenario != once && i < len(forming) || testing.Short() && scenario < 2 && i >= len(forming) {
				continue // each step once
			}
			at := map[string]string{"c": step}
			if i < len(x.forming) {
				at[x.seed] = x.forming[i]
			}
			t.Run(fmt.Sprintf("%s, crash after: %s", x.name, step), func(t *testing.T) {
				c := newTrial(t, "a", "b", "c")
				if x.data {
					c.with(x.seed, "of the seed")
				}
				down := len(at)
				var fallen <-chan string
				if x.wiped {
					c.startAll()
					c.formed()
					c.end("c")
					c.wipe("c")
					fallen = c.crashAt(at)
					c.start("c")
				} else {
					fallen = c.crashAt(at)
					c.startAll()
				}
				for range down {
					id := <-fallen
					c.crashed(id)
					c.start(id)
				}
				c.formed()
				if x.data {
					c.everywhere("of the seed")
				}
				c.equal()
			})
		}
	}
}

// Nodes that must not form a cluster do not do so after a crash either, and keep what they have.
func TestARefusalToFormOutlivesACrash(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.with("b", "of b")
	c.with("c", "of c")
	c.startAll()
	for range 2 {
		for _, id := range []string{"a", "b", "c"} {
			c.troubled(id, "b and c hold data")
			c.kill(id)
			c.start(id)
		}
	}
	if !has(c.nodes["b"].store, "of b") || !has(c.nodes["c"].store, "of c") {
		t.Error("data is gone")
	}
	c.end("a")
	c.troubled("b", "waiting for a")
	c.kill("c")
	c.start("c")
	c.start("a")
	c.end("c")
	c.wipe("c")
	c.start("c")
	c.formed()
	c.everywhere("of b")
}

// A node that comes back with an empty disk has no vote before it has the data and the log.
func TestAnEmptyDiskHasNoVoteBeforeItHasCaughtUp(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	leader := c.leader()
	wiped := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	c.end(wiped)
	c.wipe(wiped)
	arrived, released := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	t.Cleanup(release) // before the nodes end
	var once atomic.Bool
	c.mu.Lock()
	c.step = func(node, step string) error {
		if node == wiped && step == stepArrived && !once.Swap(true) {
			close(arrived)
			c.mu.Unlock() // other nodes take steps meanwhile
			<-released
			c.mu.Lock()
		}
		return nil
	}
	c.mu.Unlock()
	c.start(wiped)
	<-arrived
	suffrage := func() raft.ServerSuffrage {
		for _, s := range c.nodes[leader].node.members() {
			if string(s.ID) == wiped {
				return s.Suffrage
			}
		}
		return -1
	}
	// The leader looks for nodes that have caught up before each of these commits, and after it. On a busy
	// machine another one may lead meanwhile.
	for looks := 0; looks < 20; {
		leader = c.first()
		if c.nodes[leader].node.raft.Barrier(0).Error() != nil {
			continue
		}
		looks++
		c.nodes[leader].node.promote(t.Context(), map[string]uint64{wiped: 0}, nil)
		if got := suffrage(); got != raft.Nonvoter {
			t.Fatalf("without its data it is a %v", got)
		}
	}
	if s := c.nodes[wiped].node.Status(); s.Applied != 0 || s.State == "leader" {
		t.Errorf("it has %+v", s)
	}
	release()
	leader = c.leader()
	if suffrage() != raft.Voter {
		t.Error("it has no vote")
	}
	c.equal()
}

// The copy that a node with an empty disk gets may be of a time at which that node was the only voter: it must not
// lead with the members of that time, while it gets no later ones.
func TestAnEmptyDiskOfTheNodeThatFormedTheClusterDoesNotLeadAlone(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	c.end("a") // the first one forms the cluster
	c.wipe("a")
	noted := make(chan struct{})
	alone := sync.OnceFunc(func() {
		c.net.isolate("a", true)
		close(noted)
	})
	c.mu.Lock()
	c.step = func(node, step string) error {
		if node == "a" && step == stepNoted {
			alone()
		}
		return nil
	}
	c.mu.Unlock()
	c.start("a")
	<-noted
	n := c.nodes["a"].node
	testkit.Eventually(t, "the copy in its log", func() bool { return n.Status().Last > 0 })
	if s := n.Status(); !s.Lacks || s.State == "leader" {
		t.Errorf("it takes the members of the past for the present ones: %+v", s)
	}
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	if after := r.ReloadableConfig().HeartbeatTimeout; after != noElection {
		t.Errorf("it stands for election %v after it has heard of the leader, and needs no vote but its own", after)
	}
	c.net.isolate("a", false)
	c.formed()
	c.equal()
}

// A copy that did not arrive is not made again before the node answers: each takes disk space and keeps
// the log from being cut off. Then it is sent at once.
func TestNoCopyIsMadeForANodeThatDoesNotAnswer(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	leader := c.leader()
	wiped := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	c.end(wiped)
	c.wipe(wiped)
	fallen := c.crashAt(map[string]string{wiped: stepArrived})
	c.start(wiped)
	c.crashed(<-fallen)
	snaps := c.nodes[leader].node.snaps
	copies := func() int {
		snaps.mu.Lock()
		defer snaps.mu.Unlock()
		return snaps.copies
	}
	attempts := func() int {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		return c.net.missed[wiped]
	}
	// Other questions of the leader are among the attempts; it is the copies that count.
	before, made := attempts(), copies()
	testkit.Eventually(t, "attempts to reach the node", func() bool { return attempts() > before+50 })
	if n := copies() - made; n > 1 {
		t.Errorf("%d copies were made for a node that does not answer", n)
	}
	testkit.Eventually(t, "the copy to be closed", func() bool { return !snaps.busy() })
	c.start(wiped)
	c.formed()
	c.equal()
	if n := copies() - made; n > 3 {
		t.Errorf("%d copies were made until it has caught up", n)
	}
}

// After an error of the disk a log is not what it says, so the node ends. The others go on, and it is one
// of them again when its disk is well.
func TestAnErrorOfTheDiskEndsItsNodeOnly(t *testing.T) {
	for _, of := range []string{"the leader", "a follower"} {
		t.Run(of, func(t *testing.T) {
			c := newTrial(t, "a", "b", "c")
			var done atomic.Int64
			c.work = steady(&done)
			c.startAll()
			c.formed()
			progress := func() {
				t.Helper()
				before := done.Load()
				testkit.Eventually(t, "progress", func() bool { return done.Load() > before+20 })
			}
			progress()
			id := c.leader()
			if of == "a follower" {
				id = map[string]string{"a": "b", "b": "c", "c": "a"}[id]
			}
			c.nodes[id].files.fail(syscall.EIO, 0)
			if err := c.ended(id); !errors.Is(err, syscall.EIO) {
				t.Fatalf("the node ends with %v", err)
			}
			testkit.Eventually(t, "a leader", func() bool { return c.leads() != "" })
			progress()
			c.nodes[id].files.fail(nil, 0)
			c.start(id)
			applied := func(id string) uint64 { return c.nodes[id].node.Status().Applied }
			testkit.Eventually(t, "the node to catch up", func() bool {
				leader := c.leads()
				return leader != "" && applied(id)+50 > applied(leader)
			})
			progress()
		})
	}
}

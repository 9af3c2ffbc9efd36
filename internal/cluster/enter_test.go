package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// with puts a record into the store of a node that is down.
func (c *trial) with(id, key string) {
	c.t.Helper()
	var b storage.Batch
	b.Put(storage.State, []byte(key), []byte(key))
	if err := c.nodes[id].store.Commit(&b, true); err != nil {
		c.t.Fatal(err)
	}
}

// troubled waits until a node says why it does not become a member.
func (c *trial) troubled(id string, parts ...string) {
	c.t.Helper()
	testkit.Eventually(c.t, id+" saying "+strings.Join(parts, ", "), func() bool {
		text := c.nodes[id].node.Status().Trouble
		return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(text, p) })
	})
}

func (c *trial) path(id string, parts ...string) string {
	return filepath.Join(append([]string{c.nodes[id].dir, "cluster"}, parts...)...)
}

// everywhere waits until all stores have a record.
func (c *trial) everywhere(key string) {
	c.t.Helper()
	testkit.Eventually(c.t, key+" on all nodes", func() bool {
		for _, r := range c.nodes {
			if !has(r.store, key) {
				return false
			}
		}
		return true
	})
}

func TestTheNodeWithDataFormsTheCluster(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.with("b", "of b")
	c.startAll()
	c.formed()
	c.everywhere("of b")
	c.equal()
}

func TestTwoNodesWithDataAreRefusedUntilOneIsWiped(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.with("b", "of b")
	c.with("c", "of c")
	c.startAll()
	for _, id := range []string{"a", "b", "c"} {
		c.troubled(id, "b and c hold data", "which of them")
	}
	c.end("b")
	c.wipe("b")
	c.start("b")
	c.formed()
	c.everywhere("of c")
	if has(c.nodes["c"].store, "of b") {
		t.Error("the wiped data is back")
	}
}

func TestNoClusterIsFormedWithoutAllNodes(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.start("a")
	c.start("b")
	c.troubled("a", "waiting for c")
	c.troubled("b", "waiting for c")
	c.start("c")
	c.formed()
	for id, r := range c.nodes {
		if s := r.node.Status(); s.Trouble != "" {
			t.Errorf("%s is a member, and says that it is not: %s", id, s.Trouble)
		}
	}
}

func TestNodesMustAgreeOnTheirNodes(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	other := slices.Clone(c.peers)
	other[2].ID = "d"
	if err := c.tryToStart("b", other); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	c.start("c")
	c.troubled("a", "cluster.peers is a b c here and a b d on b")
	c.end("b")
	c.start("b")
	c.formed()
}

// Whatever a crash interrupts, the next start completes it.
func TestFormingAndJoiningGoOnAfterACrash(t *testing.T) {
	claimed := func(c *trial) {
		if err := replica.Claim(c.nodes["a"].store, uuid.NewString(), nil); err != nil {
			c.t.Fatal(err)
		}
	}
	file := func(c *trial, id, name, text string) {
		if err := os.MkdirAll(c.path(id, filepath.Dir(name)), 0o750); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(c.path(id, name), []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	for name, before := range map[string]func(c *trial){
		"the store is claimed":         claimed,
		"Raft has a directory":         func(c *trial) { claimed(c); file(c, "a", "raft/left", "x") },
		"Raft has a snapshot":          func(c *trial) { claimed(c); file(c, "a", "raft/snapshot", `{"index":1,"term":1}`) },
		"the identity is half written": func(c *trial) { claimed(c); file(c, "a", "identity.tmp", `{"clus`) },
		"another node has a directory": func(c *trial) { file(c, "b", "raft/log/left", "x") },
		"another node has part of a copy": func(c *trial) {
			dir := filepath.Join(c.nodes["b"].dir, "store") + arrivingSuffix
			if err := os.MkdirAll(dir, 0o750); err != nil {
				c.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "part"), []byte("x"), 0o600); err != nil {
				c.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrial(t, "a", "b", "c")
			before(c)
			c.startAll()
			c.formed()
			c.equal()
		})
	}
}

// A node that has written its identity, and has no data yet, gets it after a restart.
func TestANodeThatHasJoinedWithoutDataGetsIt(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.with("a", "of a")
	c.startAll()
	c.formed()
	cluster := c.nodes["a"].node.Status().Cluster
	c.end("c")
	admitted := c.nodes["a"].node.Status().Last // the leader had let it in again
	c.wipe("c")
	if err := os.MkdirAll(c.path("c", "raft"), 0o750); err != nil {
		t.Fatal(err)
	}
	id := identity{Format: identityFormat, Cluster: cluster, Name: "test", Node: "c", Admitted: admitted}
	if err := id.write(c.path("c")); err != nil {
		t.Fatal(err)
	}
	c.start("c")
	c.everywhere("of a")
	c.formed()
	c.equal()
}

// The copy was put in the place of the store, and the process ended before the log was emptied, whose
// end lies before the copy.
func TestACopyThatArrivedBeforeACrashIsComplete(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	leader := c.leader()
	behind := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	c.end(behind)
	last := c.lastOf(behind)
	var meta snapshotMeta
	testkit.Eventually(t, "a copy that is newer than the log", func() bool { // of a leader, which may change meanwhile
		n := c.nodes[c.first()].node
		// Raft takes a snapshot only of new entries. The removal of a node that does not exist writes one.
		if n.raft.RemoveServer("nobody", 0, 0).Error() != nil || n.raft.Snapshot().Error() != nil {
			return false
		}
		meta = *n.snaps.newest()
		return meta.Index > last
	})
	if err := writeJSON(c.path(behind, "raft", snapshotFile), &meta); err != nil {
		t.Fatal(err)
	}
	c.start(behind)
	c.formed()
	testkit.Eventually(t, "one more entry", func() bool { return c.nodes[c.first()].node.raft.Barrier(0).Error() == nil })
	testkit.Eventually(t, "an entry behind the copy", func() bool { return c.nodes[behind].node.Status().Last > meta.Index })
	c.equal()
}

// lastOf returns the newest entry of the log of a node that is down.
func (c *trial) lastOf(id string) uint64 {
	c.t.Helper()
	l, err := openLog(logOptions{Dir: c.path(id, "raft", "log"), SegmentBytes: 1 << 20, Log: zerolog.Nop()})
	if err != nil {
		c.t.Fatal(err)
	}
	last, err := l.LastIndex()
	if err := errors.Join(err, l.Close()); err != nil {
		c.t.Fatal(err)
	}
	return last
}

// Data that is not of the cluster is not thrown away for the cluster's.
func TestANodeWithDataOfItsOwnDoesNotJoin(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	c.end("c")
	c.wipe("c")
	c.with("c", "of c")
	c.start("c")
	c.troubled("c", "storage.path of this node holds data that is not of it")
	if !has(c.nodes["c"].store, "of c") {
		t.Error("its data is gone")
	}
	c.end("c")
	c.wipe("c")
	c.start("c")
	c.formed()
}

func TestADirectoryOfAnotherNodeOrClusterIsRefused(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	for name, x := range map[string]struct {
		id   identity
		want string
	}{
		"another node":      {identity{Format: identityFormat, Cluster: "1", Name: "test", Node: "b"}, "belongs to node b"},
		"another cluster":   {identity{Format: identityFormat, Cluster: "1", Name: "other", Node: "a"}, `belongs to cluster "other"`},
		"a newer Fila":      {identity{Format: identityFormat + 1, Cluster: "1", Name: "test", Node: "a"}, "newer Fila"},
		"no cluster":        {identity{Format: identityFormat, Name: "test", Node: "a"}, "damaged"},
		"of another origin": {identity{Format: identityFormat, Cluster: "1", Name: "test", Node: "a"}, "storage.path belongs to the cluster with the id 2, cluster.path to 1"},
	} {
		c.wipe("a")
		if err := os.Mkdir(c.path("a"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := x.id.write(c.path("a")); err != nil {
			t.Fatal(err)
		}
		if err := replica.Claim(c.nodes["a"].store, "2", nil); err != nil {
			t.Fatal(err)
		}
		if err := c.tryToStart("a", c.peers); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A store that lacks what the log may no longer have does not come back as if it had it.
func TestAStoreThatHasLostEntriesIsRefused(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	id := "a"
	testkit.Eventually(t, "a snapshot", func() bool { return c.nodes[id].node.snaps.newest() != nil })
	c.end(id)
	meta := *c.mustReadMeta(id)
	meta.Applied = 1_000_000
	if err := writeJSON(c.path(id, "raft", snapshotFile), &meta); err != nil {
		t.Fatal(err)
	}
	c.start(id)
	r := c.nodes[id]
	err := <-r.done
	if err == nil || !strings.Contains(err.Error(), "wipe this node") || !strings.Contains(err.Error(), "1000000") {
		t.Errorf("it runs, or ends with %v", err)
	}
	if err := r.port.Close(); err != nil {
		t.Error(err)
	}
	c.net.listens(id, "")
	r.node = nil
	c.wipe(id)
	c.start(id)
	c.formed()
}

func (c *trial) mustReadMeta(id string) *snapshotMeta {
	c.t.Helper()
	s, err := openSnapshots(c.path(id, "raft"), filepath.Join(c.nodes[id].dir, "store"), c.nodes[id].store, zerolog.Nop())
	if err != nil {
		c.t.Fatal(err)
	}
	return s.newest()
}

// An empty node whose name a running member has is refused, wherever it says it is.
func TestANameIsNotGivenTwice(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	leader := c.leader()
	twin := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	twinNet, more := newNetwork(t, "twin")
	elsewhere := slices.Clone(c.peers)
	for i := range elsewhere {
		if elsewhere[i].ID == twin {
			elsewhere[i].Addr = more[0].Addr
		}
	}
	for name, peers := range map[string][]Peer{"at the same address": c.peers, "at another address": elsewhere} {
		port, err := OpenPort(t.Context(), PortConfig{Listen: "127.0.0.1:0", Node: twin, Cluster: "test"})
		if err != nil {
			t.Fatal(err)
		}
		twinNet.listens("twin", port.Addr().String())
		n, err := New(Config{
			ID: twin, Name: "test", Peers: peers, Dir: filepath.Join(t.TempDir(), "cluster"), Election: testkit.Slowed(testElection, 5), LogBytes: 4 << 20,
			Store: newMemory(), Path: filepath.Join(t.TempDir(), "store"), Pace: Pace{Ask: 1e7, Watch: 1e7},
		}, port)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- n.Run(ctx) }()
		testkit.Eventually(t, "a refusal "+name, func() bool { return strings.Contains(n.Status().Trouble, "two nodes have the name "+twin) })
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := port.Close(); err != nil {
			t.Error(err)
		}
	}
	c.formed()
}

// A node that comes back at another address is found there.
func TestANodeThatHasMovedIsFound(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	moved := map[string]string{"a": "b", "b": "c", "c": "a"}[c.leader()]
	c.end(moved)
	next, more := newNetwork(t, moved)
	peers := slices.Clone(c.peers)
	for i := range peers {
		if peers[i].ID == moved {
			peers[i].Addr = more[0].Addr
		}
	}
	if err := c.tryToStart(moved, peers); err != nil {
		t.Fatal(err)
	}
	next.listens(moved, c.nodes[moved].port.Addr().String())
	c.net.listens(moved, "") // nothing is at the old address
	testkit.Eventually(t, "the new address", func() bool {
		for _, p := range c.nodes[moved].node.voters() {
			if p.ID == moved && p.Addr == more[0].Addr {
				return true
			}
		}
		return false
	})
	c.formed()
}

// A copy of the directories of a node is another process with its name and its votes: it is refused
// wherever it says it is, as long as the node itself is there.
func TestACopyOfANodeIsRefused(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.startAll()
	c.formed()
	leader := c.leader()
	twin := map[string]string{"a": "b", "b": "c", "c": "a"}[leader]
	c.end(twin)
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "cluster"), os.DirFS(c.path(twin))); err != nil {
		t.Fatal(err)
	}
	store := newMemory()
	store.m = c.nodes[twin].store.now().Clone()
	c.start(twin)
	c.formed()
	twinNet, more := newNetwork(t, twin)
	elsewhere := slices.Clone(c.peers)
	for i := range elsewhere {
		if elsewhere[i].ID == twin {
			elsewhere[i].Addr = more[0].Addr
		}
	}
	port, err := OpenPort(t.Context(), PortConfig{Listen: "127.0.0.1:0", Node: twin, Cluster: "test", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	twinNet.listens(twin, port.Addr().String())
	n, err := New(Config{
		ID: twin, Name: "test", Peers: elsewhere, Dir: filepath.Join(dir, "cluster"), Election: c.election, LogBytes: 4 << 20,
		Store: store, Path: filepath.Join(dir, "store"), Pace: Pace{Ask: 1e7, Watch: 1e7, Retry: 1e7, Leave: time.Second},
		Lead: func(context.Context, *Leadership) error { return nil }, Log: zerolog.Nop(),
	}, port)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- n.Run(ctx) }()
	testkit.Eventually(t, "a copy that is a member by what it has", func() bool { return n.Status().State != "entering" && len(n.members()) == 3 })
	const want = "two nodes have the name"
	for _, p := range c.peers {
		if p.ID == twin {
			continue
		}
		refusedAtLast(t, func() error { // where the member does not answer for a moment, another reason is given
			conn, err := port.dial(t.Context(), kindRaft, p.Addr)
			if err == nil {
				t.Errorf("%s takes Raft's connection of a copy", p.ID)
				_ = conn.Close()
			}
			return err
		}, want)
	}
	refusedAtLast(t, func() error { // by the leader, which may change meanwhile
		i := slices.IndexFunc(c.peers, func(p Peer) bool { return p.ID == c.first() })
		_, err := n.askToJoin(t.Context(), c.peers[i].Addr, &joining{Addr: more[0].Addr, Member: true})
		if err == nil {
			t.Error("the address of a copy is taken")
		}
		return err
	}, want)
	if s := n.Status(); s.State == stateName(raft.Leader) {
		t.Errorf("a copy leads: %+v", s)
	}
	defer cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "older copy") {
		t.Errorf("a copy ends with: %v", err)
	}
	if err := port.Close(); err != nil {
		t.Error(err)
	}
	c.equal()
}

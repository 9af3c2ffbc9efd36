package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft-wal/fs"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/testkit"
	"github.com/faisca/fila/storage"
)

// memory is a local store in memory.
type memory struct {
	mu sync.RWMutex
	m  *storage.Memory

	refuse error // of Commit and Reopen; nil: none
	// change returns what is committed in the place of a batch; nil: the batch.
	change func(b *storage.Batch) *storage.Batch
}

func newMemory() *memory { return &memory{m: storage.NewMemory()} }

func (s *memory) now() *storage.Memory {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.m
}

func (s *memory) setRefuse(err error) {
	s.mu.Lock()
	s.refuse = err
	s.mu.Unlock()
}

func (s *memory) refused() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.refuse
}

func (s *memory) Commit(b *storage.Batch, sync bool) error {
	if err := s.refused(); err != nil {
		return err
	}
	if s.change != nil {
		b = s.change(b)
	}
	return s.now().Commit(b, sync)
}

func (s *memory) Get(f storage.Family, key []byte) ([]byte, error) { return s.now().Get(f, key) }

func (s *memory) Scan(f storage.Family, from, to []byte) storage.Iterator {
	return s.now().Scan(f, from, to)
}

func (s *memory) Sync() error                 { return s.now().Sync() }
func (s *memory) Reopen() error               { return s.refused() }
func (s *memory) Checkpoint(dir string) error { return s.now().Checkpoint(dir) }

func (s *memory) Adopt(dir string) error {
	m, err := storage.OpenCheckpoint(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.m = m
	s.mu.Unlock()
	return os.RemoveAll(dir)
}

// contents returns all records as text.
func (s *memory) contents(t *testing.T) string {
	t.Helper()
	text := ""
	for _, f := range storage.Families() {
		it := s.now().Scan(f, nil, nil)
		for it.Next() {
			text += fmt.Sprintf("%s %x=%x\n", f, it.Key(), it.Value())
		}
		it.Close()
	}
	return text
}

// network connects nodes by proxies, which may be cut. A node is reached at the address of its proxy.
type network struct {
	t *testing.T

	mu     sync.Mutex
	cut    map[[2]string]bool // from, to
	conns  map[net.Conn][2]string
	to     map[string]string // by node: where it listens
	missed map[string]int    // by node: connections to it while it was down or cut off
}

func newNetwork(t *testing.T, nodes ...string) (*network, []Peer) {
	t.Helper()
	n := &network{t: t, cut: map[[2]string]bool{}, conns: map[net.Conn][2]string{}, to: map[string]string{}, missed: map[string]int{}}
	var peers []Peer
	for _, node := range nodes {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go n.proxy(node, l)
		peers = append(peers, Peer{ID: node, Addr: l.Addr().String()})
	}
	return n, peers
}

// listens tells where a node listens from now on.
func (n *network) listens(node, addr string) {
	n.mu.Lock()
	n.to[node] = addr
	n.mu.Unlock()
}

// isolate cuts a node off from all others, or connects it again.
func (n *network) isolate(node string, off bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.to {
		n.cut[[2]string{node, other}], n.cut[[2]string{other, node}] = off, off
	}
	for c, ends := range n.conns {
		if n.cut[ends] {
			_ = c.Close()
		}
	}
}

func (n *network) proxy(node string, l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go n.pass(node, c)
	}
}

// pass reads the greeting of a connection to know where it comes from, and passes it on.
func (n *network) pass(node string, from net.Conn) {
	defer from.Close()
	head := make([]byte, 3)
	if _, err := io.ReadFull(from, head); err != nil {
		return
	}
	body := make([]byte, binary.BigEndian.Uint16(head[1:]))
	if _, err := io.ReadFull(from, body); err != nil {
		return
	}
	var g greeting
	if json.Unmarshal(body, &g) != nil {
		return
	}
	ends := [2]string{g.Node, node}
	n.mu.Lock()
	addr, off := n.to[node], n.cut[ends]
	if off || addr == "" {
		n.missed[node]++
	}
	n.mu.Unlock()
	if off || addr == "" {
		return
	}
	to, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
	if err != nil {
		return
	}
	defer to.Close()
	n.mu.Lock()
	n.conns[from], n.conns[to] = ends, ends
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.conns, from)
		delete(n.conns, to)
		n.mu.Unlock()
	}()
	if _, err := to.Write(slices.Concat(head, body)); err != nil {
		return
	}
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(to, from); done <- struct{}{} }()
	go func() { _, _ = io.Copy(from, to); done <- struct{}{} }()
	<-done
}

// trial is a cluster under test.
type trial struct {
	t        *testing.T
	net      *network
	peers    []Peer
	nodes    map[string]*running
	election time.Duration
	logBytes int64
	records  chan *record // for recording

	mu   sync.Mutex
	work func(ctx context.Context, node string, l *Leadership) error // what a leader does
	step func(node, step string) error                               // Config.step; nil: nothing happens
}

// running is a node of a trial, and its disk.
type running struct {
	dir   string
	store *memory
	files *faultyFiles // of the log

	node *Node // nil: it is down
	port *Port
	stop context.CancelFunc
	done chan error
}

func newTrial(t *testing.T, nodes ...string) *trial {
	t.Helper()
	c := &trial{t: t, nodes: map[string]*running{}, election: testkit.Slowed(testElection, 5), logBytes: 4 << 20, records: make(chan *record)}
	c.net, c.peers = newNetwork(t, nodes...)
	for _, id := range nodes {
		c.nodes[id] = &running{dir: t.TempDir(), store: newMemory(), files: &faultyFiles{VFS: fs.New()}}
	}
	t.Cleanup(func() {
		for id := range c.nodes {
			c.kill(id)
		}
	})
	return c
}

// start starts a node with what is on its disk.
func (c *trial) start(id string) {
	c.t.Helper()
	if err := c.tryToStart(id, c.peers); err != nil {
		c.t.Fatal(err)
	}
}

// tryToStart starts a node that has been told of other nodes, or returns why it refuses.
func (c *trial) tryToStart(id string, peers []Peer) error {
	c.t.Helper()
	r := c.nodes[id]
	port, err := OpenPort(context.Background(), PortConfig{Listen: "127.0.0.1:0", Node: id, Cluster: "test", Log: zerolog.Nop()})
	if err != nil {
		c.t.Fatal(err)
	}
	log := zerolog.Nop()
	if testing.Verbose() {
		log = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true}).Level(zerolog.InfoLevel).With().Str("node", id).Logger()
	}
	c.net.listens(id, port.Addr().String())
	r.node, err = New(Config{
		ID: id, Name: "test", Peers: peers, Dir: filepath.Join(r.dir, "cluster"), Version: "test", Election: c.election, LogBytes: c.logBytes,
		SetLearner: c.setLearner, Store: r.store, Path: filepath.Join(r.dir, "store"), Log: log, Contact: Contact{Host: id + ".test", Port: 5555}, Free: func() uint64 { return 7 },
		files: r.files,
		Lead: func(ctx context.Context, l *Leadership) error {
			c.mu.Lock()
			work := c.work
			c.mu.Unlock()
			if work != nil {
				return work(ctx, id, l)
			}
			select {
			case <-ctx.Done():
			case <-l.Yield:
			}
			return nil
		},
		Pace: Pace{Retry: 5 * time.Millisecond, Ask: 10 * time.Millisecond, Watch: 20 * time.Millisecond, Leave: time.Second, Begin: 2 * time.Second},
		step: func(step string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.step == nil {
				return nil
			}
			return c.step(id, step)
		},
	}, port)
	if err != nil {
		r.node = nil
		c.net.listens(id, "")
		return errors.Join(err, port.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.port, r.stop, r.done = port, cancel, make(chan error, 1)
	go func() { r.done <- r.node.Run(ctx) }()
	return nil
}

func (c *trial) startAll() {
	c.t.Helper()
	for _, p := range c.peers {
		c.start(p.ID)
	}
}

// kill ends a node without letting it hand over.
func (c *trial) kill(id string) {
	c.t.Helper()
	c.net.isolate(id, true)
	c.end(id)
	c.net.isolate(id, false)
}

// end stops a node.
func (c *trial) end(id string) {
	c.t.Helper()
	r := c.nodes[id]
	if r.node == nil {
		return
	}
	r.stop()
	if err := <-r.done; err != nil {
		c.t.Errorf("node %s: %v", id, err)
	}
	c.net.listens(id, "")
	if err := r.port.Close(); err != nil {
		c.t.Errorf("port of %s: %v", id, err)
	}
	r.node = nil
}

// wipe removes the disk of a node that is down.
func (c *trial) wipe(id string) {
	c.nodes[id].dir, c.nodes[id].store = c.t.TempDir(), newMemory()
}

// leads returns the node that leads in the newest term, "" unless all nodes that run know all voters.
func (c *trial) leads() string {
	for _, r := range c.nodes {
		if r.node != nil && len(r.node.voters()) < len(c.peers) {
			return ""
		}
	}
	return c.newest()
}

// formed waits until all nodes vote.
func (c *trial) formed() {
	c.t.Helper()
	testkit.Eventually(c.t, "a leader with all voters", func() bool { return c.leads() != "" })
}

// leader waits until a node leads, and returns it.
func (c *trial) leader() string {
	c.t.Helper()
	leader := ""
	testkit.Eventually(c.t, "a node leads", func() bool {
		leader = c.leads()
		return leader != ""
	})
	return leader
}

// applied returns the last entry that all nodes have applied; false if they differ.
func (c *trial) applied() (index uint64, same bool) {
	index = c.nodes[c.peers[0].ID].node.Status().Applied
	for _, r := range c.nodes {
		if r.node.Status().Applied != index {
			return 0, false
		}
	}
	return index, true
}

// equal waits until all stores have the same entries, and fails unless they are equal.
func (c *trial) equal() {
	c.t.Helper()
	testkit.Eventually(c.t, "what was under way is applied", func() bool { // or replaced by what another leader has
		r := c.nodes[c.leader()].node.raft
		return r.AppliedIndex() >= r.LastIndex()
	})
	var applied uint64
	contents := map[string]string{}
	testkit.Eventually(c.t, "all nodes have applied the same entries", func() bool {
		var same bool
		if applied, same = c.applied(); !same {
			return false
		}
		for id, r := range c.nodes {
			contents[id] = r.store.contents(c.t)
		}
		now, same := c.applied() // a leader that is new may commit at any time
		return same && now == applied
	})
	first := c.peers[0].ID
	want := strings.Split(contents[first], "\n")
	for id := range c.nodes {
		got := strings.Split(contents[id], "\n")
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				c.t.Errorf("at entry %d %s has %d records and %s %d; the first that differ are %.300q and %.300q",
					applied, id, len(got)-1, first, len(want)-1, got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
				break
			}
		}
	}
}

// put commits a record.
func put(l *Leadership, key string) error {
	var b storage.Batch
	b.Put(storage.State, []byte(key), []byte(key))
	return l.Store.Commit(&b, true)
}

func has(s *memory, key string) bool {
	_, err := s.Get(storage.State, []byte(key))
	return err == nil
}

func TestThreeEmptyNodesFormACluster(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	c.mu.Lock()
	c.work = func(ctx context.Context, node string, l *Leadership) error {
		if err := put(l, fmt.Sprintf("first of %s in %d", node, l.Term)); err != nil {
			return err
		}
		if err := l.Confirm(); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	c.mu.Unlock()
	c.startAll()
	c.formed()
	testkit.Eventually(t, "a batch", func() bool { return c.nodes[c.leader()].node.Status().Applied > 0 })
	c.equal()
}

// What a leader has acknowledged is never lost, and all stores are equal in the end: under restarts,
// nodes that are cut off and disks that are wiped, one at a time.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	next := 0
	var quiet atomic.Bool
	c.work = func(ctx context.Context, node string, l *Leadership) error {
		rng := rand.New(rand.NewPCG(l.Term, 1))
		l.Store.PartBytes = 64 // batches of several entries
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return nil
			case <-l.Yield:
				return nil
			case <-time.After(time.Millisecond):
			}
			if quiet.Load() {
				continue
			}
			var b storage.Batch
			var keys []string
			for range 1 + rng.IntN(8) {
				mu.Lock()
				next++
				key := fmt.Sprintf("%s-%d-%06d", node, l.Term, next)
				mu.Unlock()
				b.Put(storage.State, []byte(key), []byte(key))
				keys = append(keys, key)
			}
			if err := l.Store.Commit(&b, true); err != nil {
				if ctx.Err() == nil {
					t.Logf("%s in term %d: %v", node, l.Term, err)
				}
				return err
			}
			mu.Lock()
			for _, key := range keys {
				acknowledged[key] = true
			}
			mu.Unlock()
		}
	}
	defer func() {
		if t.Failed() {
			for id, r := range c.nodes {
				if r.node != nil {
					t.Logf("%s: %+v", id, r.node.Status())
				}
			}
		}
	}()
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(acknowledged) }
	c.startAll()
	c.formed()
	rng := rand.New(rand.NewPCG(2, 2))
	rounds := 12
	if testing.Short() {
		rounds = 8 // each harm twice
	}
	for round := range rounds {
		id := c.peers[rng.IntN(3)].ID
		if rng.IntN(2) == 0 {
			id = c.leader()
		}
		switch round % 4 {
		case 0:
			c.kill(id)
			c.start(id)
		case 1:
			c.net.isolate(id, true)
			before := count()
			testkit.Eventually(t, "progress of the others", func() bool { return count() > before+20 })
			c.net.isolate(id, false)
		case 2:
			c.end(id)
			c.wipe(id)
			c.start(id)
		case 3:
			c.end(id)
			before := count()
			testkit.Eventually(t, "progress of the others", func() bool { return count() > before+20 })
			c.start(id)
		}
		before := count()
		testkit.Eventually(t, "progress", func() bool { return count() > before+20 })
		c.formed()
	}
	mu.Lock()
	if len(acknowledged) < 20*rounds {
		t.Errorf("only %d were acknowledged", len(acknowledged))
	}
	mu.Unlock()
	quiet.Store(true)
	c.equal()
	mu.Lock()
	defer mu.Unlock()
	for key := range acknowledged {
		if !has(c.nodes["a"].store, key) {
			t.Fatalf("%s is lost", key)
		}
	}
}

// A leader that cannot write its store hands over, and catches up when it can.
func TestALeaderWhoseStoreRefusesWritesHandsOver(t *testing.T) {
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
	full := c.leader()
	c.nodes[full].store.setRefuse(storage.ErrFull)
	testkit.Eventually(t, "another leader", func() bool { l := c.leads(); return l != "" && l != full })
	progress()
	testkit.Eventually(t, "it says that it takes no writes", func() bool { return !c.nodes[full].node.Status().Writable })
	c.nodes[full].store.setRefuse(nil)
	testkit.Eventually(t, "the store to catch up", func() bool {
		s, l := c.nodes[full].node.Status(), c.leads()
		return l != "" && s.Writable && s.Applied+50 > c.nodes[l].node.Status().Applied
	})
	progress()
}

// writer returns work for leaders that commits batches of some size, and counts them.
func writer(bytes int, done *atomic.Int64, quiet *atomic.Bool) func(context.Context, string, *Leadership) error {
	return func(ctx context.Context, node string, l *Leadership) error {
		value := make([]byte, bytes)
		for i := 0; ; i++ {
			pause := time.Duration(0)
			if quiet.Load() {
				pause = time.Millisecond
			}
			select {
			case <-ctx.Done():
				return nil
			case <-l.Yield:
				return nil
			case <-time.After(pause):
			}
			if pause > 0 {
				continue
			}
			var b storage.Batch
			b.Put(storage.State, fmt.Appendf(nil, "%s-%d", node, i%20), value)
			if err := l.Store.Commit(&b, true); err != nil {
				return err
			}
			done.Add(1)
		}
	}
}

// A node that has missed more than the log keeps gets a copy of the data, and the log stays bounded.
func TestTheLogIsBoundedAndANodeThatIsFarBehindCatchesUp(t *testing.T) {
	c := newTrial(t, "a", "b", "c")
	var done atomic.Int64
	var quiet atomic.Bool
	c.work = writer(64<<10, &done, &quiet)
	c.startAll()
	c.formed()
	behind := "a"
	if c.leads() == behind {
		behind = "b"
	}
	c.end(behind)
	const most = 2 * 4 << 20 // twice LogBytes
	before := done.Load()
	testkit.Eventually(t, "16 MiB of entries", func() bool {
		for id, r := range c.nodes {
			if r.node == nil || r.node.Status().State == "entering" {
				continue
			}
			if n, err := r.node.log.Bytes(); err != nil || n > most {
				t.Fatalf("the log of %s has %d bytes, %v", id, n, err)
			}
		}
		return done.Load() > before+256
	})
	c.start(behind)
	c.formed()
	testkit.Eventually(t, "the node to catch up", func() bool {
		l := c.leads()
		return l != "" && c.nodes[behind].node.Status().Last+20 > c.nodes[l].node.Status().Last
	})
	quiet.Store(true)
	c.equal()
	// What the copy has replaced on disk is whole: the node starts again.
	c.kill(behind)
	c.start(behind)
	c.formed()
	c.equal()
}

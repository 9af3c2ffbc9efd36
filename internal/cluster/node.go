package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/cluster/replica"
)

// Config configures a node.
type Config struct {
	ID       string
	Name     string // of the cluster
	Peers    []Peer // all nodes, this one too
	Dir      string // of Raft's log and the identity; created if missing, its parent must exist
	Version  string // of this program, for Status
	Election time.Duration
	LogBytes int64
	Store    LocalStore
	Path     string // of the store; copies are made beside it
	// Lead leads for as long as it runs. It begins when everything that was committed before is
	// in the store, and has to return soon after its context has ended, which means that another
	// node leads or may lead. When l.Yield is closed it should complete what has been asked for
	// and return nil; leadership is then handed over. It may return storage.ErrDeposed when it has
	// found out by itself that another node leads. After any other error the node ends.
	Lead func(ctx context.Context, l *Leadership) error
	// Users returns the users with which this node forms a cluster, as lines by name; nil: none are in
	// the store.
	Users func() map[string]string
	// SetLearner writes or removes the record that a node is a learner (storage.LearnerKey), with the
	// engine of the leadership under way. It returns when that is durable.
	SetLearner func(ctx context.Context, node string, learner bool) error
	// Leader is called with the node that leads, each time it changes; zero: none is known.
	Leader func(Peer)
	// Contact is what other nodes are told about this one, and Free returns the bytes that are free on
	// the disk of its store, 0 if that is unknown. Free may be nil, and must not wait for the disk.
	Contact Contact
	Free    func() uint64
	Log     zerolog.Logger

	Pace Pace
	// step is called after each step of forming and joining that a crash may follow; an error ends the
	// node there. Tests set it.
	step  func(step string) error
	files types.VFS // of the log; nil: the system's. Tests set it
}

// Pace are the times between attempts. Zero values are the defaults; tests set shorter ones.
type Pace struct {
	Retry time.Duration // to reopen a full log or a failed store; 1 s
	Ask   time.Duration // to ask other nodes while this one has no identity; 500 ms
	Watch time.Duration // to look after members and the size of the log; 1 s
	Leave time.Duration // for handing over and for the end of Raft; 5 s
	Begin time.Duration // for a node to come to the entry at which Verify compares; 30 s
}

func (p *Pace) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&p.Retry, time.Second)
	set(&p.Ask, 500*time.Millisecond)
	set(&p.Watch, time.Second)
	set(&p.Leave, 5*time.Second)
	set(&p.Begin, 30*time.Second)
}

// Node is a node of a cluster, from New until Run returns.
//
//	New ──► entering ──forms or joins──► member ──leads now and then──► ended
//	          no identity: answers         Raft runs
//	          questions only
type Node struct {
	cfg    Config
	port   *Port
	roster *roster
	// life ends with Run. It is for what other nodes ask for, which takes some time.
	life context.Context //nolint:containedctx // see there
	cut  context.CancelFunc

	noted    int64         // bytes that the log had taken at the last snapshot; boundLog's
	logBytes atomic.Int64  // of the log when boundLog looked last
	failed   chan error    // the reason to end, capacity 1
	changed  chan struct{} // leadership has changed, capacity 1

	keeping   sync.Mutex // held while heardOf is made durable; before mu
	reloading sync.Mutex // held while settings of raft are changed

	mu        sync.Mutex
	identity  *identity               // nil: entering
	raft      *raft.Raft              // nil: not a member yet
	fsm       *fsm                    // with raft
	snaps     *snapshots              // with raft
	log       *raftLog                // with raft
	async     *asyncLog               // with raft; writes log
	transport *transport              // with raft
	cease     context.CancelCauseFunc // ends the leadership under way; nil: none is
	asked     *handover               // what Transfer wants of the next transfer; nil: nothing
	yield     func()                  // asks the leadership under way to hand over; nil: none is
	leader    Peer                    // as Config.Leader was told
	led       string                  // id of the last node that led; empty: none has
	failovers uint64                  // changes from one leader to another
	trouble   string                  // why the node does not become a member; empty: nothing
	writes    replica.Versions        // of the leadership under way
	instances map[string]string       // by node: the process that answers at the address of that node
	began     *standing               // of this process; nil: it has not begun
	ledTerm   uint64                  // the newest term that this node has led, on any process; durable
	heardOf   map[string]*standing    // by node: what it has told; from begin on
	learnt    bool                    // heardOf has more than is durable
	kept      time.Time               // when heardOf was made durable
}

// New prepares a node and answers questions of other nodes on its port, which it does not close.
func New(cfg Config, port *Port) (*Node, error) {
	cfg.Pace.defaults()
	if err := makeDirectory(cfg.Dir); err != nil {
		return nil, fmt.Errorf("cluster.path: %w", err)
	}
	id, err := readIdentity(cfg.Dir, cfg.Name, cfg.ID)
	if err == nil {
		err = checkDiffers(cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg: cfg, port: port, identity: id, failed: make(chan error, 1), changed: make(chan struct{}, 1), instances: map[string]string{}}
	n.roster = newRoster(n)
	n.life, n.cut = context.WithCancel(context.Background())
	if id != nil {
		// Before anything else: a store of another cluster must not be written.
		r, err := replica.ReadRecord(cfg.Store)
		if err == nil && r != nil && r.Cluster != id.Cluster {
			err = fmt.Errorf("storage.path belongs to the cluster with the id %s, cluster.path to %s", r.Cluster, id.Cluster)
		}
		if err != nil {
			return nil, err
		}
		port.join(id.Cluster)
	}
	port.serve(n.answer, n.check, n.standings)
	return n, nil
}

func makeDirectory(dir string) error {
	err := os.Mkdir(dir, 0o750)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(filepath.Clean(dir)))
}

// Run is the life of the node, until ctx ends: then a leader hands over, and Run returns nil. Any
// error means that the process has to end.
func (n *Node) Run(ctx context.Context) error {
	defer n.cut()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() {
		n.roster.run(watching)
		close(watched)
	}()
	defer func() {
		stopWatching()
		<-watched
	}()
	n.mu.Lock()
	id := n.identity
	n.mu.Unlock()
	if id == nil {
		var err error
		if id, err = n.enter(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // stopped while it was waiting for the others
			}
			return err
		}
	}
	if err := n.start(id); err != nil {
		return err
	}
	err := n.serve(ctx)
	n.stop()
	return err
}

// raftDir holds what Raft writes.
func (n *Node) raftDir() string { return filepath.Join(n.cfg.Dir, raftName) }

// Directories below Config.Dir.
const (
	raftName = "raft"
	logName  = "log" // below raftName
)

// fatal ends the node with the first error that it is called with, and its leadership, if it has one.
func (n *Node) fatal(err error) {
	select {
	case n.failed <- err:
	default:
	}
	n.ceaseLeading(err)
}

// start starts Raft.
func (n *Node) start(id *identity) error {
	log, err := openLog(logOptions{
		Dir: filepath.Join(n.raftDir(), logName), SegmentBytes: segmentBytes(n.cfg.LogBytes), Retry: n.cfg.Pace.Retry, Fatal: n.fatal, Log: n.cfg.Log, Files: n.cfg.files,
	})
	if err != nil {
		return err
	}
	f, snaps, err := n.openState(id, log)
	if err == nil {
		err = n.begin(id, log, snaps)
	}
	if err == nil {
		err = n.step(stepOpened)
	}
	if err != nil {
		return errors.Join(err, log.Close())
	}
	cache, err := raft.NewLogCache(logCache, log)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	async, err := newAsyncLog(cache, n.cfg.Pace.Retry, n.isLeader, n.logFailed)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	f.onDisk, async.mayCut = async.await, f.mayCut
	lines := hashicorpLog(n.cfg.Log)
	own := n.own()
	t := newTransport(n.port, own.Addr, lines, transportOptions{fresh: n.cfg.Election / 5, leads: n.leadsWith, onDisk: async.onDisk.Load, voter: n.anyVoter, leader: n.oneLeader})
	notify := make(chan bool, 1)
	n.mu.Lock()
	n.identity, n.log, n.async, n.fsm, n.snaps, n.transport = id, log, async, f, snaps, t
	n.mu.Unlock()
	n.port.join(id.Cluster)
	c := n.raftConfig(lines, notify)
	var r *raft.Raft
	stands, err := n.wasAdmitted(log, snaps)
	if err == nil {
		if !stands {
			c.HeartbeatTimeout, c.ElectionTimeout = noElection, noElection
		}
		r, err = raft.NewRaft(c, f, async, log, snaps, t)
	}
	if err != nil {
		async.close()
		return errors.Join(fmt.Errorf("replicated log: %w", err), t.Close(), log.Close())
	}
	n.mu.Lock()
	n.raft = r
	n.mu.Unlock()
	go n.followLeadership(notify, stands)
	return nil
}

// noElection is a time after which a node without a leader would stand for election: never.
const noElection = 10 * 365 * 24 * time.Hour

// wasAdmitted reports whether the log of this node has the entry that has made it a member, so that it may stand for
// election. Before that, the members that it knows are those of the past: of a time before its disk was emptied, in
// which it may have been the only voter, and would elect itself. Copies of the data begin with members of any age.
func (n *Node) wasAdmitted(log raft.LogStore, snaps *snapshots) (bool, error) {
	last, err := log.LastIndex()
	if meta := snaps.newest(); meta != nil {
		last = max(last, meta.Index)
	}
	return last >= n.identity.Admitted, err
}

// stand has a node stand for elections that did not, once it has the entry that has made it a member. It reports
// whether it does.
func (n *Node) stand() bool {
	n.mu.Lock()
	id := n.identity
	n.mu.Unlock()
	if n.raft.LastIndex() < id.Admitted {
		return false
	}
	err := n.reload(func(c *raft.ReloadableConfig) { c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.Election, n.cfg.Election })
	return err == nil
}

// reload changes settings of Raft.
func (n *Node) reload(change func(*raft.ReloadableConfig)) error {
	n.reloading.Lock()
	defer n.reloading.Unlock()
	c := n.raft.ReloadableConfig()
	change(&c)
	return n.raft.ReloadConfig(c)
}

// isLeader reports whether Raft leads.
func (n *Node) isLeader() bool {
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	return r != nil && r.State() == raft.Leader
}

// logFailed makes Raft step down when entries of this leader cannot be written: a barrier has to be
// written after them.
func (n *Node) logFailed(err error) {
	n.ceaseLeading(err)
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	go r.Barrier(0)
}

const (
	logCache         = 64 // entries in memory, for nodes that lag a little
	maxAppendEntries = 16 // entries in a request
	never            = 1 << 62
)

func (n *Node) raftConfig(lines hclog.Logger, notify chan<- bool) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.cfg.ID)
	c.HeartbeatTimeout, c.ElectionTimeout = n.cfg.Election, n.cfg.Election
	c.LeaderLeaseTimeout = n.cfg.Election * 4 / 5
	c.CommitTimeout = n.cfg.Election / 4
	c.MaxAppendEntries = maxAppendEntries
	c.ShutdownOnRemove = false
	c.NoSnapshotRestoreOnStart = true // the local store is what a snapshot stands for
	c.SnapshotThreshold = never       // by the size of the log, see boundLog
	c.SnapshotInterval = 24 * time.Hour
	c.NoLegacyTelemetry = true
	c.NotifyCh = notify
	c.Logger = lines
	return c
}

// segmentBytes returns the size of the log's files: it is cut off by files.
func segmentBytes(logBytes int64) int {
	return int(min(64<<20, max(1<<20, logBytes/16)))
}

// openState checks that the local store has what it must have, and completes what a crash has left
// between the steps of Restore.
func (n *Node) openState(id *identity, log *raftLog) (*fsm, *snapshots, error) {
	snaps, err := openSnapshots(n.raftDir(), n.cfg.Path, n.cfg.Store, n.cfg.Log)
	if err != nil {
		return nil, nil, err
	}
	f := newFSM(&fsm{
		store: n.cfg.Store, cluster: id.Cluster, snaps: snaps, step: n.step, retry: n.cfg.Pace.Retry, fatal: n.fatal, log: n.cfg.Log,
		failed: func(err error) {
			n.cfg.Log.Error().Err(err).Msg("the store refuses writes; this node goes on when it takes them again")
			n.ceaseLeading(err)
			go n.transfer() // Raft's main goroutine may wait for this one
		},
		healed: func() { n.cfg.Log.Info().Msg("the store takes writes again") },
	})
	meta := snaps.newest()
	if meta == nil {
		return f, snaps, nil // the data has not arrived yet
	}
	m, err := f.newMachine()
	if err == nil {
		err = m.Has(meta.Applied)
	}
	if err != nil {
		return nil, nil, err
	}
	f.machine.Store(m)
	if err := f.findSettled(log); err != nil {
		return nil, nil, err
	}
	last, err := log.LastIndex()
	if err == nil && last > 0 && last < meta.Index {
		// A snapshot had arrived, and the log behind which it lies was not removed. There may be
		// no hole between the two.
		err = log.DeleteRange(1, last)
	}
	return f, snaps, err
}

// own returns this node's entry of Config.Peers.
func (n *Node) own() Peer {
	for _, p := range n.cfg.Peers {
		if p.ID == n.cfg.ID {
			return p
		}
	}
	return Peer{ID: n.cfg.ID}
}

// stop ends Raft.
func (n *Node) stop() {
	n.ceaseLeading(errors.New("the node stops"))
	n.fsm.close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.raft.Shutdown().Error(); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("the end of Raft")
		}
		n.async.close()
		n.keepKnown(true)
		if err := n.log.Close(); err != nil {
			n.cfg.Log.Warn().Err(err).Msg("the replicated log was not closed")
		}
	}()
	select {
	case <-done:
	case <-time.After(n.cfg.Pace.Leave): // a disk that does not answer
		n.cfg.Log.Warn().Msg("the replicated log does not answer; the process ends without closing it")
	}
}

// members returns the members as Raft has them, those that do not vote too.
func (n *Node) members() []raft.Server {
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	if r == nil {
		return nil
	}
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// Dial opens a connection for commands to another node.
func (n *Node) Dial(ctx context.Context, node string) (net.Conn, error) {
	for _, s := range n.members() {
		if string(s.ID) == node {
			return n.port.Dial(ctx, string(s.Address))
		}
	}
	return nil, fmt.Errorf("no member of the cluster is named %s", node)
}

// voters returns the members that vote.
func (n *Node) voters() []Peer {
	var all []Peer
	for _, s := range n.members() {
		if s.Suffrage == raft.Voter {
			all = append(all, Peer{ID: string(s.ID), Addr: string(s.Address)})
		}
	}
	return all
}

// anyVoter implements transport.voter.
func (n *Node) anyVoter() raft.ServerID {
	for _, p := range n.voters() {
		return raft.ServerID(p.ID)
	}
	return ""
}

// leadsWith implements transport.leads.
func (n *Node) leadsWith(term uint64, id raft.ServerID, at raft.ServerAddress) bool {
	n.mu.Lock()
	r := n.raft
	n.mu.Unlock()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	for _, s := range n.members() {
		if s.ID == id {
			return s.Address == at
		}
	}
	return false
}

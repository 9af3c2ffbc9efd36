package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/faisca/fila/internal/cluster/replica"
	"github.com/faisca/fila/storage"
)

// LocalStore is the store of a node.
type LocalStore interface {
	replica.Local
	replica.Reader

	Sync() error
	Reopen() error
	// Checkpoint writes a consistent copy of the store into a new directory.
	Checkpoint(dir string) error
	// Adopt replaces the contents by those of a checkpoint, and removes it. If the process ends
	// meanwhile, the store is either as before or as the checkpoint. After an error the store is
	// not usable.
	Adopt(dir string) error
}

// fsm applies the committed entries of Raft's log to the local store. It is Raft's FSM.
//
// A local store that refuses a write (a full disk, an error) stops it: the store is reopened at
// intervals, and then it goes on at the same entry. Entries wait meanwhile.
type fsm struct {
	store   LocalStore
	cluster string
	snaps   *snapshots
	retry   time.Duration // between two attempts to reopen the local store
	// failed is called when the local store refuses a write, healed when it takes writes again,
	// fatal with an error after which the process has to end.
	failed func(error)
	healed func()
	fatal  func(error)
	step   func(string) error // Node.step
	// onDisk returns when the log of this node has an entry on disk, or why it cannot be written.
	onDisk func(index uint64) error
	log    zerolog.Logger

	machine atomic.Pointer[replica.Machine] // nil: the store has not got its data yet; called under mu, but for Applied and LastOf
	digests digests
	handled atomic.Uint64 // index of the newest entry that Apply has returned for; 0: none
	earlier atomic.Uint64 // settled at the start of the process
	refuses atomic.Bool   // the local store refuses writes

	mu    sync.Mutex
	cond  *sync.Cond
	ended bool      // by close or fatal
	held  *raft.Log // is applied when it is in the log of this node; nil: none
}

func newFSM(f *fsm) *fsm {
	f.cond = sync.NewCond(&f.mu)
	return f
}

// newMachine returns a machine that goes on where the local store ends.
func (f *fsm) newMachine() (*replica.Machine, error) {
	m, err := replica.NewMachine(f.store, f.cluster)
	if err == nil {
		m.Digest = func(index uint64) { f.digests.begin(index, f.store, f.refuses.Load) }
	}
	return m, err
}

// applied returns the index of the newest batch in the store, false before the store has its data.
func (f *fsm) applied() (uint64, bool) {
	m := f.machine.Load()
	if m == nil {
		return 0, false
	}
	return m.Applied(), true
}

// passed reports whether an entry is behind this node: it was applied, or the store came with it. Raft's
// own AppliedIndex says so of entries that Apply has yet to be called for.
func (f *fsm) passed(index uint64) bool {
	applied, _ := f.applied()
	return applied > index || f.handled.Load() >= index
}

// findSettled finds out what is settled at the start: what the store has, if the log has that very entry. A copy
// that a crash has kept from being noted may be newer than the log.
func (f *fsm) findSettled(log raft.LogStore) error {
	at := f.machine.Load().At()
	var l raft.Log
	err := log.GetLog(at.Index, &l)
	if err == nil && l.Term == at.Term {
		f.earlier.Store(at.Index)
	}
	if errors.Is(err, raft.ErrLogNotFound) {
		return nil
	}
	return err
}

// settled returns up to which entry the log of this node is committed, as far as it knows, and was on its disk.
func (f *fsm) settled() uint64 {
	last := max(f.earlier.Load(), f.handled.Load())
	if meta := f.snaps.newest(); meta != nil {
		last = max(last, meta.Index)
	}
	return last
}

// mayCut ends the node if entries are to be removed from the end of its log that are settled.
func (f *fsm) mayCut(from uint64) error {
	settled := f.settled()
	if from > settled {
		return nil
	}
	err := lostElsewhere(from, settled)
	f.fatal(err)
	return err
}

// lostElsewhere says that a leader lacks entries that this node has.
func lostElsewhere(from, settled uint64) error {
	return fmt.Errorf("the leader replaces entries from %d on of the replicated log, and this node has committed ones up to %d: the leader lacks what was acknowledged, as another node has come back with an old copy of its disk; this node ends and keeps its data: see \"Old disks\" in docs/how-to/cluster.md: %w", from, settled, storage.ErrCorrupt)
}

// writable reports whether the local store takes writes.
func (f *fsm) writable() bool { return !f.refuses.Load() }

// close lets go of an entry that waits for the local store, and of the store.
func (f *fsm) close() {
	f.mu.Lock()
	f.ended = true
	f.cond.Broadcast()
	f.mu.Unlock()
	f.digests.end()
}

// Apply implements raft.FSM. It returns the error of an entry that has no effect, for its proposer, or that
// of an entry that is applied later: this node made it, and cannot write it to its log.
func (f *fsm) Apply(l *raft.Log) any {
	unwritten := f.onDisk(l.Index)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.await()
	switch {
	case f.ended, errors.Is(unwritten, raft.ErrRaftShutdown):
		return raft.ErrRaftShutdown
	case unwritten != nil:
		f.held = l
		f.refuses.Store(true)
		go f.heal()
		return unwritten
	}
	return f.apply(l)
}

// apply applies an entry. The caller holds mu.
func (f *fsm) apply(l *raft.Log) error {
	defer f.handled.Store(l.Index)
	m := f.machine.Load()
	if m == nil {
		return f.end(fmt.Errorf("entry %d of the replicated log came before the data that it belongs to", l.Index))
	}
	err := m.Apply(l.Index, l.Term, l.Data)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrDeposed):
	case m.Failed():
		f.refuses.Store(true)
		f.failed(err)
		go f.heal()
	default:
		return f.end(err)
	}
	return err
}

// await waits while the local store refuses writes, or an entry is held. The caller holds mu.
func (f *fsm) await() {
	for f.refuses.Load() && !f.ended {
		f.cond.Wait()
	}
}

// end stops everything after an error that cannot be healed. The caller holds mu.
func (f *fsm) end(err error) error {
	f.ended = true
	f.cond.Broadcast()
	f.fatal(err)
	return err
}

// heal tries at intervals to apply the entry that is held, or to reopen the local store, until the store takes
// writes.
func (f *fsm) heal() {
	again := time.NewTicker(f.retry)
	defer again.Stop()
	for range again.C {
		if f.tryToHeal() {
			return
		}
	}
}

func (f *fsm) tryToHeal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return true
	}
	if l := f.held; l != nil {
		if f.onDisk(l.Index) != nil {
			return false
		}
		f.held = nil
		f.refuses.Store(false) // apply may set it again, with a goroutine for that
		_ = f.apply(l)         // its proposer has been answered
		f.cond.Broadcast()
		return true
	}
	if f.store.Reopen() != nil {
		return false
	}
	m := f.machine.Load()
	err := m.Retry()
	switch {
	case m.Failed():
		return false
	case err != nil:
		_ = f.end(err)
		return true
	}
	f.refuses.Store(false)
	f.healed()
	f.cond.Broadcast()
	return true
}

// StoreConfiguration implements raft.ConfigurationStore: with it, Raft counts changes of the members
// as applied, and takes snapshots behind them.
func (f *fsm) StoreConfiguration(uint64, raft.Configuration) {}

// Snapshot implements raft.FSM: it copies nothing, the local store is the state.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.machine.Load()
	if f.ended || m == nil {
		return nil, errors.New("there is no data yet")
	}
	if f.held != nil { // Raft counts it as applied, and would begin the log of this node behind it
		return nil, errors.New("an entry waits for the disk of the log")
	}
	if f.snaps.busy() {
		return nil, errors.New("a copy of the data is being sent, which needs the log")
	}
	applied, err := m.Snapshot()
	if err != nil {
		return nil, err
	}
	return &snapshot{store: f.store, applied: applied}, nil
}

// Restore implements raft.FSM: the local store is replaced by the copy that has arrived. The reader
// has nothing to read, see snapshots.Open.
func (f *fsm) Restore(io.ReadCloser) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.await() // the store is being reopened
	if f.ended {
		return raft.ErrRaftShutdown
	}
	a, err := f.snaps.takeArrival()
	if err != nil {
		return err
	}
	if settled := f.settled(); a.meta.Index < settled {
		return f.end(lostElsewhere(a.meta.Index+1, settled))
	}
	m, err := f.adopt(a)
	if err != nil {
		return f.end(fmt.Errorf("the copy of the data of another node: %w", err))
	}
	// The store comes first: with the metadata of a snapshot that the store does not have, the node
	// would not start any more. The other way round it starts with a log that ends before its store
	// does, and skips what it has.
	a.meta.Applied = m.Applied()
	if err := f.snaps.write(&a.meta); err != nil {
		return f.end(err)
	}
	if err := f.step(stepNoted); err != nil {
		return f.end(err)
	}
	f.machine.Store(m)
	f.log.Info().Uint64("entry", m.Applied()).Msg("the data of the cluster has arrived")
	return nil
}

// adopt replaces the local store by a copy that has arrived. The caller holds mu.
func (f *fsm) adopt(a *arrival) (*replica.Machine, error) {
	if err := f.step(stepArrived); err != nil {
		return nil, err
	}
	f.digests.end() // they hold the store
	if err := f.store.Adopt(a.dir); err != nil {
		return nil, err
	}
	f.digests.stop.Store(false)
	if err := f.step(stepAdopted); err != nil {
		return nil, err
	}
	return f.newMachine()
}

// snapshot is a snapshot that is being taken.
type snapshot struct {
	store   LocalStore
	applied uint64
}

// Persist implements raft.FSMSnapshot: once the local store is synced, the log may be cut off.
func (s *snapshot) Persist(to raft.SnapshotSink) error {
	if err := s.store.Sync(); err != nil {
		return err
	}
	to.(*sink).meta.Applied = s.applied //nolint:forcetypeassert // made by snapshots.Create
	return nil
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}

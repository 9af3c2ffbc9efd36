package storage

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"github.com/tidwall/btree"
)

// Memory is a store without a disk, for tests and the simulation. It is stricter than
// RocksDB: it returns ErrSingleDelete for a violated contract, and after a failed commit
// it requires Reopen.
//
// Each family is a copy-on-write tree, so clones, scans and the state after a power loss
// share data and cost one new root each. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	now    [FamilyCount]*tree  // everything committed
	synced *[FamilyCount]*tree // the state after a power loss; nil: the same as now
	fail   error               // set by FailCommits
	late   bool                // failing commits reach the disk all the same
	lost   *Batch              // the failed commit that Reopen will apply, or nil
	broken bool                // a commit failed: Reopen is required
	closed bool
	undo   []undo // of the commit in progress
}

type tree = btree.Map[string, entry]

// entry is a value, and whether a single delete of it is valid. Entries are immutable:
// trees share them.
type entry struct {
	value []byte
	once  bool // put exactly once since the key last did not exist
}

type undo struct {
	family  Family
	key     string
	before  entry
	existed bool
}

// treeDegree is small because nodes are copied on the first write after a
// clone, and the simulation clones at every commit.
const treeDegree = 16

// NewMemory returns an empty store.
func NewMemory() *Memory {
	m := newMemory()
	var b Batch
	PutFormat(&b)
	if err := m.Commit(&b, true); err != nil {
		panic("storage: a new memory store refuses its format record: " + err.Error())
	}
	return m
}

// newMemory returns a store without even the format record.
func newMemory() *Memory {
	m := &Memory{}
	for f := range m.now {
		m.now[f] = btree.NewMap[string, entry](treeDegree)
	}
	return m
}

// Commit applies the batch atomically.
func (m *Memory) Commit(b *Batch, sync bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if m.fail != nil {
		m.broken = true
		if m.late {
			m.lost = &Batch{buf: bytes.Clone(b.Bytes()), count: b.count}
		}
		return fmt.Errorf("commit: %w", m.fail)
	}
	if !sync && m.synced == nil {
		synced := m.copyTrees()
		m.synced = &synced
	}
	if err := m.apply(b); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if sync {
		m.synced = nil
	}
	return nil
}

// Sync makes every completed commit survive a power loss.
func (m *Memory) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.writable(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	if m.fail != nil {
		m.broken = true
		return fmt.Errorf("sync: %w", m.fail)
	}
	m.synced = nil
	return nil
}

// Get returns a copy of the value, or ErrNotFound.
func (m *Memory) Get(f Family, key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("get: %w", ErrClosed)
	}
	e, ok := m.now[f].Get(string(key))
	if !ok {
		return nil, ErrNotFound
	}
	return append([]byte{}, e.value...), nil
}

// Scan returns an iterator over a snapshot of the keys of a family in [from, to); a nil
// to means no end.
func (m *Memory) Scan(f Family, from, to []byte) Iterator {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := &memoryIterator{from: string(from), to: string(to), bounded: to != nil}
	if m.closed {
		it.err = fmt.Errorf("scan: %w", ErrClosed)
		return it
	}
	it.tree = m.now[f].Copy().Iter()
	return it
}

// Reopen makes the store writable again after a failed commit. It fails while FailCommits
// is in effect.
func (m *Memory) Reopen() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("reopen: %w", ErrClosed)
	}
	if m.fail != nil {
		return fmt.Errorf("reopen: %w", m.fail)
	}
	lost := m.lost
	m.lost, m.broken = nil, false
	if lost == nil {
		return nil
	}
	if err := m.apply(lost); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	return nil
}

// Close closes the store. Open iterators stay usable.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// FailCommits makes every Commit, Sync and Reopen fail with err, as on a full disk, until
// it is called with nil. Such commits have no effect.
func (m *Memory) FailCommits(err error) { m.failCommits(err, false) }

// FailCommitsLate is FailCommits for a disk that fails after the write: the first failing
// commit returns an error and is present after the next Reopen.
func (m *Memory) FailCommitsLate(err error) { m.failCommits(err, true) }

func (m *Memory) failCommits(err error, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.late = err, late
}

// Clone returns an independent store with all commits: the state that a process finds
// after a crash. The clone of a closed or failing store is open and healthy.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Memory{now: m.copyTrees()}
	if m.synced != nil {
		var synced [FamilyCount]*tree
		for f, t := range m.synced {
			synced[f] = t.Copy()
		}
		c.synced = &synced
	}
	return c
}

// CloneSynced returns a store in the state after a power loss: the commits up to the last
// synced one.
func (m *Memory) CloneSynced() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &Memory{}
	if m.synced == nil {
		c.now = m.copyTrees()
		return c
	}
	for f, t := range m.synced {
		c.now[f] = t.Copy()
	}
	return c
}

func (m *Memory) writable() error {
	switch {
	case m.closed:
		return ErrClosed
	case m.broken:
		return ErrReopen
	}
	return nil
}

func (m *Memory) copyTrees() (c [FamilyCount]*tree) {
	for f, t := range m.now {
		c[f] = t.Copy()
	}
	return c
}

// apply changes the trees, and reverts them if a record is refused.
func (m *Memory) apply(b *Batch) error {
	err := b.Each(m.applyRecord)
	if err != nil {
		for _, u := range slices.Backward(m.undo) {
			if u.existed {
				m.now[u.family].Set(u.key, u.before)
			} else {
				m.now[u.family].Delete(u.key)
			}
		}
	}
	clear(m.undo)
	m.undo = m.undo[:0]
	return err
}

func (m *Memory) applyRecord(r Record) error {
	switch r.Op {
	case OpPut:
		m.put(r.Family, string(r.Key), bytes.Clone(r.Value))
	case OpDelete:
		m.remove(r.Family, string(r.Key))
	case OpSingleDelete:
		if before, existed := m.remove(r.Family, string(r.Key)); !existed {
			return fmt.Errorf("%w: %s %q does not exist", ErrSingleDelete, r.Family, r.Key)
		} else if !before.once {
			return fmt.Errorf("%w: %s %q was put more than once", ErrSingleDelete, r.Family, r.Key)
		}
	case OpDeleteRange:
		var keys []string
		m.now[r.Family].Ascend(string(r.Key), func(key string, _ entry) bool {
			if key >= string(r.Value) {
				return false
			}
			keys = append(keys, key)
			return true
		})
		for _, key := range keys {
			m.remove(r.Family, key)
		}
	}
	return nil
}

func (m *Memory) put(f Family, key string, value []byte) {
	before, existed := m.now[f].Set(key, entry{value: value, once: true})
	if existed {
		m.now[f].Set(key, entry{value: value})
	}
	m.undo = append(m.undo, undo{family: f, key: key, before: before, existed: existed})
}

func (m *Memory) remove(f Family, key string) (before entry, existed bool) {
	if before, existed = m.now[f].Delete(key); existed {
		m.undo = append(m.undo, undo{family: f, key: key, before: before, existed: true})
	}
	return before, existed
}

// memoryIterator iterates over an immutable tree. It returns copies in reused buffers, so
// that a caller that keeps a slice for too long fails here and not only on RocksDB.
type memoryIterator struct {
	tree       btree.MapIter[string, entry]
	from, to   string
	bounded    bool // to is a bound
	placed     bool // Seek or Next was called
	key, value []byte
	err        error
}

func (it *memoryIterator) Seek(key []byte) bool {
	if it.err != nil {
		return false
	}
	it.placed = true
	return it.at(it.tree.Seek(max(string(key), it.from)))
}

func (it *memoryIterator) Next() bool {
	if !it.placed {
		return it.Seek(nil)
	}
	if it.err != nil || it.key == nil {
		return false
	}
	return it.at(it.tree.Next())
}

func (it *memoryIterator) Before(key []byte) bool {
	if it.err != nil {
		return false
	}
	it.placed = true
	before := string(key)
	if it.bounded {
		before = min(before, it.to)
	}
	if it.tree.Seek(before) {
		return it.at(it.tree.Prev())
	}
	return it.at(it.tree.Last())
}

// at copies the current entry; without one, key is nil.
func (it *memoryIterator) at(ok bool) bool {
	if !ok || it.bounded && it.tree.Key() >= it.to || it.tree.Key() < it.from {
		it.key, it.value = nil, nil
		return false
	}
	if it.key == nil {
		it.key = []byte{}
	}
	it.key = append(it.key[:0], it.tree.Key()...)
	it.value = append(it.value[:0], it.tree.Value().value...)
	return true
}

func (it *memoryIterator) Key() []byte   { return it.key }
func (it *memoryIterator) Value() []byte { return it.value }
func (it *memoryIterator) Err() error    { return it.err }

func (it *memoryIterator) Close() {
	*it = memoryIterator{placed: true, err: it.err}
}

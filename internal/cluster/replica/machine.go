package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/faisca/fila/storage"
)

// Local is the store of a node, which its machine alone writes.
type Local interface {
	Commit(b *storage.Batch, sync bool) error
	Get(f storage.Family, key []byte) ([]byte, error)
}

// ErrParts refuses a snapshot while a batch has arrived in part.
var ErrParts = errors.New("a batch has arrived in part, try again")

// Machine applies the entries of the log to the local store, by the rules of the package comment.
// One goroutine applies; Applied and LastOf may be called by any.
//
//	ready ──Apply, the local store fails──► failed ──Retry──► ready
//
// It needs memory for the batch that has arrived in part, at most 1 GiB.
type Machine struct {
	// Digest is called for an entry that asks for a digest of the store. The store is as all entries
	// before that have left it, until Digest returns. nil: nothing is done.
	Digest func(index uint64)

	local   Local
	cluster string
	at      atomic.Pointer[storage.Replica] // the record in the store
	kept    kept
	failed  *write // whose commit has failed; nil: the machine is ready
	spare   []byte // memory for the next batch
}

// kept are the parts of an unfinished batch.
type kept struct {
	first Entry  // without its bytes; zero: nothing is kept
	next  uint32 // part
	rep   []byte
}

// write is a batch with the record that belongs to it.
type write struct {
	batch  *storage.Batch
	record storage.Replica
}

const (
	spareMax   = 8 << 20 // bound of the memory that is kept for the next batch
	recordRoom = 256     // for the record behind a batch
)

// NewMachine returns a machine that goes on where the local store ends. The store has to be one
// that Claim has made a node's, of this cluster.
func NewMachine(local Local, cluster string) (*Machine, error) {
	m := &Machine{local: local, cluster: cluster}
	at, err := m.record()
	if err != nil {
		return nil, err
	}
	m.at.Store(at)
	return m, nil
}

// record reads the record of the store.
func (m *Machine) record() (*storage.Replica, error) {
	r, err := ReadRecord(m.local)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, errors.New("the store is not that of a node")
	case r.Cluster != m.cluster:
		return nil, fmt.Errorf("the store belongs to cluster %s, this node to cluster %s", r.Cluster, m.cluster)
	}
	return r, nil
}

// Applied returns the index of the newest entry that is in the store; 0: there is none.
func (m *Machine) Applied() uint64 { return m.at.Load().Index }

// At returns the position of the store in the log.
func (m *Machine) At() storage.Replica { return *m.at.Load() }

// LastOf returns the number of the newest batch in the store that was made in a term; 0: none was.
func (m *Machine) LastOf(term uint64) uint64 {
	if at := m.at.Load(); at.Term == term {
		return at.Number
	}
	return 0
}

// Apply applies the entry at an index of the log, which the log has taken in logTerm. Indexes
// and terms must not decrease from call to call. Entries of the log that are not Store's are not
// passed to it.
//
// nil: the entry is in the store, or kept as a part. storage.ErrDeposed: it is dropped, here and
// on every other node; the caller goes on. Any other error ends what can be applied: with Failed,
// the local store has refused the write and Retry may repeat it; without, the entry is damaged or
// of a newer version, and the process has to end.
func (m *Machine) Apply(index, logTerm uint64, entry []byte) error {
	if m.failed != nil {
		return fmt.Errorf("apply entry %d: an earlier one is to be retried", index)
	}
	at := m.at.Load()
	if index <= at.Index {
		return nil
	}
	e, err := ParseEntry(entry)
	if err != nil {
		return fmt.Errorf("entry %d of the replicated log: %w", index, err)
	}
	if e.Term != logTerm {
		return storage.ErrDeposed
	}
	if e.Term < at.Term {
		return fmt.Errorf("entry %d of the replicated log is of term %d, the store has one of term %d: %w", index, e.Term, at.Term, storage.ErrCorrupt)
	}
	if e.Digest {
		if m.Digest != nil {
			m.Digest(index)
		}
		return nil
	}
	if e.Number != m.LastOf(e.Term)+1 || !m.keep(&e) {
		m.discard()
		return storage.ErrDeposed
	}
	if m.kept.next < e.Parts {
		return nil
	}
	batch, err := storage.AdoptBatch(m.kept.rep)
	if err != nil {
		return fmt.Errorf("entry %d of the replicated log: %w", index, err)
	}
	m.kept = kept{}
	record := storage.Replica{Cluster: m.cluster, Index: index, Term: e.Term, Number: e.Number}
	batch.Put(storage.State, storage.ReplicaKey(), record.Append(nil))
	return m.write(&write{batch, record})
}

// keep adds an entry to the kept parts, or returns false if it does not follow them.
func (m *Machine) keep(e *Entry) bool {
	if e.Part == 0 {
		m.discard()
		// All parts but the last have the size of the first, and a record follows the last.
		rep := slices.Grow(m.spare, int(e.Parts)*len(e.Bytes)+recordRoom)
		m.kept, m.spare = kept{first: Entry{Term: e.Term, Number: e.Number, Parts: e.Parts}, rep: rep}, nil
	}
	if first := &m.kept.first; first.Term != e.Term || first.Number != e.Number || first.Parts != e.Parts || m.kept.next != e.Part {
		return false
	}
	m.kept.rep = append(m.kept.rep, e.Bytes...)
	m.kept.next++
	return true
}

// discard forgets the kept parts.
func (m *Machine) discard() {
	if m.kept.rep != nil {
		m.reuse(m.kept.rep)
	}
	m.kept = kept{}
}

// reuse takes back the memory of a batch.
func (m *Machine) reuse(rep []byte) {
	if m.spare = rep[:0]; cap(rep) > spareMax {
		m.spare = nil
	}
}

// write commits a batch with its record.
func (m *Machine) write(w *write) error {
	if err := m.local.Commit(w.batch, false); err != nil {
		m.failed = w
		return fmt.Errorf("apply entry %d: %w", w.record.Index, err)
	}
	m.failed = nil
	m.at.Store(&w.record)
	m.reuse(w.batch.Bytes())
	return nil
}

// Failed reports whether the local store has refused a write, which Retry has to repeat.
func (m *Machine) Failed() bool { return m.failed != nil }

// Retry goes on after the local store was reopened. A write that failed may be in the store all
// the same, so the record is read again; if it is not there, it is written.
func (m *Machine) Retry() error {
	at, err := m.record()
	if err != nil {
		return err
	}
	if err := m.has(at, m.Applied()); err != nil {
		return err
	}
	m.at.Store(at)
	if w := m.failed; w != nil && at.Index < w.record.Index {
		return m.write(w)
	}
	m.failed = nil
	return nil
}

// Has returns an error if the store has lost entries that it must have, up to an index that
// Snapshot has returned: the log may not have them any more.
func (m *Machine) Has(applied uint64) error { return m.has(m.at.Load(), applied) }

func (m *Machine) has(at *storage.Replica, applied uint64) error {
	if at.Index >= applied {
		return nil
	}
	return fmt.Errorf("the store has entries up to %d of the replicated log, it had them up to %d: wipe this node and let it join again: %w", at.Index, applied, storage.ErrCorrupt)
}

// Snapshot returns what Applied is, for the metadata of a snapshot at the newest entry that was
// passed to Apply. The log may be cut off up to there once the local store has been synced after
// this call. ErrParts: the log is still needed for a batch that has arrived in part.
func (m *Machine) Snapshot() (applied uint64, err error) {
	if m.kept.next > 0 || m.failed != nil {
		return 0, ErrParts
	}
	return m.Applied(), nil
}

// ReadRecord returns the Replica record of a store, nil if the store is not that of a node.
func ReadRecord(store interface {
	Get(f storage.Family, key []byte) ([]byte, error)
},
) (*storage.Replica, error) {
	value, err := store.Get(storage.State, storage.ReplicaKey())
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil //nolint:nilnil // a plain store is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read the position in the replicated log: %w", err)
	}
	var r storage.Replica
	if err := r.Decode(value); err != nil {
		return nil, err
	}
	return &r, nil
}

// Claim makes a store that of the node that begins a cluster, with what it holds, and gives it a format
// version that older versions refuse. users are those of the cluster, as lines by name; nil: none are in
// the store. It does nothing if the store is a node's already, and refuses one of another cluster.
func Claim(local Local, cluster string, users map[string]string) error {
	r, err := ReadRecord(local)
	if err != nil {
		return err
	}
	if r != nil {
		if r.Cluster != cluster {
			return fmt.Errorf("the store belongs to cluster %s, this node to cluster %s", r.Cluster, cluster)
		}
		return nil
	}
	r = &storage.Replica{Cluster: cluster}
	var b storage.Batch
	b.Put(storage.State, storage.ReplicaKey(), r.Append(nil))
	storage.PutReplicaFormat(&b, storage.ReplicaFormatVersion)
	storage.DeleteUsers(&b) // of a cluster of before, in a store that was repaired
	storage.DeleteLearners(&b)
	for _, name := range slices.Sorted(maps.Keys(users)) {
		b.Put(storage.State, storage.UserKey(name), []byte(users[name]))
	}
	if users != nil {
		storage.PutUsersVersion(&b, 1)
	}
	if err := local.Commit(&b, true); err != nil {
		return fmt.Errorf("claim the store for cluster %s: %w", cluster, err)
	}
	return nil
}

// Begin makes a store the first entry of the log of a new cluster, with what it holds, users too, but
// without learners: no other node is a member.
func Begin(local Local, cluster string) error {
	r := storage.Replica{Cluster: cluster, Index: 1, Term: 1, Number: 1}
	var b storage.Batch
	b.Put(storage.State, storage.ReplicaKey(), r.Append(nil))
	storage.DeleteLearners(&b) // the nodes of another cluster
	if err := local.Commit(&b, true); err != nil {
		return fmt.Errorf("begin cluster %s with the store: %w", cluster, err)
	}
	return nil
}

// Detach makes the store of a node a plain one, without what a cluster has in it of users and nodes, and
// reports whether it was a node's.
func Detach(local Local) (was bool, err error) {
	r, err := ReadRecord(local)
	if err != nil || r == nil {
		return false, err
	}
	var b storage.Batch
	b.Delete(storage.State, storage.ReplicaKey())
	storage.DeleteUsers(&b)
	storage.DeleteLearners(&b)
	storage.PutFormat(&b)
	if err := local.Commit(&b, true); err != nil {
		return false, fmt.Errorf("detach the store from cluster %s: %w", r.Cluster, err)
	}
	return true, nil
}

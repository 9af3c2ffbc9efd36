package replica

import (
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/faisca/fila/storage"
)

// Log is the replicated log as a leader sees it.
type Log interface {
	// Propose appends the entries of one batch, in order and without others between them, in a
	// term that this node leads. nil: a majority has them, and the local store as well. Any
	// error ends the leadership: some or all of the entries may be applied, here and elsewhere,
	// now or later. It returns soon after the node has ceased to lead. An entry belongs to the
	// log, which takes them one by one, so that a large batch is not there twice. One call at a
	// time.
	Propose(term uint64, entries iter.Seq[[]byte]) error
}

// Reader is what the engine reads of the local store.
type Reader interface {
	Get(f storage.Family, key []byte) ([]byte, error)
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// Store is the store of the engine on a leader, for one leadership: it reads from the local store
// and writes by way of the log. It implements engine.Store.
//
//	leading ──Propose fails──► deposed: each Commit returns storage.ErrDeposed
type Store struct {
	Reader
	// PartBytes replaces the constant of that name, which is also its bound. Tests set it.
	PartBytes int

	log     Log
	term    uint64
	number  uint64 // of the newest batch
	deposed bool
	format  uint32                   // that the local store has, or an older one
	writes  atomic.Pointer[Versions] // what every member reads
}

// NewStore returns the store of a leadership. last is Machine.LastOf(term) once everything that
// was proposed before has been applied or dropped: usually 0, and more if the engine was started
// again within the term.
func NewStore(local Reader, log Log, term, last uint64) *Store {
	s := &Store{Reader: local, PartBytes: PartBytes, log: log, term: term, number: last, format: storage.ReplicaFormatVersion}
	s.Raise(First())
	return s
}

// Raise says what versions every member reads: what is committed from now on has them. They never
// decrease. It may be called from any goroutine.
func (s *Store) Raise(v Versions) { s.writes.Store(&v) }

// Commit returns nil when a majority has the batch and the local store shows it. It is then as
// durable as the log is; sync makes no difference, since batches go into the log in order. An
// error that is storage.ErrDeposed ends the leadership: whether the batch is applied is unknown,
// and no later one will be. After any other error, nothing was written and later batches may be.
func (s *Store) Commit(b *storage.Batch, _ bool) error {
	if b.Len() == 0 {
		return nil
	}
	if s.deposed {
		return fmt.Errorf("commit: %w", storage.ErrDeposed)
	}
	writes := s.writes.Load()
	if writes.Format > s.format {
		storage.PutReplicaFormat(b, writes.Format)
	}
	entries, err := divide(Entry{Version: writes.Entry, Term: s.term, Number: s.number + 1}, b.Bytes(), s.PartBytes)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := s.log.Propose(s.term, entries); err != nil {
		s.deposed = true
		if !errors.Is(err, storage.ErrDeposed) {
			err = fmt.Errorf("%w: %w", storage.ErrDeposed, err)
		}
		return fmt.Errorf("commit: %w", err)
	}
	s.number++
	s.format = writes.Format
	return nil
}

// ScanKeys passes storage.ScanKeys to the local store.
func (s *Store) ScanKeys(f storage.Family) storage.Iterator { return storage.ScanKeys(s.Reader, f) }

// GetMany passes storage.GetMany to the local store.
func (s *Store) GetMany(f storage.Family, keys [][]byte, room int) [][]byte {
	return storage.GetMany(s.Reader, f, keys, room)
}

// Sync does nothing: what Commit has confirmed is in the log of a majority, synced.
func (s *Store) Sync() error { return nil }

// Reopen does nothing: the machine reopens the local store, see Machine.Retry.
func (s *Store) Reopen() error { return nil }

//go:build cgo

package rocks

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/storage"
)

// Store implements storage.Store on one RocksDB database. It is safe for concurrent use.
//
// Access follows a readers-writer protocol. Every operation acquires the database for its duration,
// an iterator until it is closed. Reopen and Close need exclusive access and wait until nothing
// holds the database:
//
//	shared ──Reopen, Close──► pending ──last release──► exclusive ──► shared
//
// While an exclusive request is pending, new operations are delayed for at most exclusiveGrace, not
// refused: the holder of an iterator may need a Get before it can close the iterator, and refusing
// that would be a deadlock. Without the delay a steady load of reads could starve Reopen.
type Store struct {
	path string
	p    profile

	failed atomic.Bool // a write failed; commits return ErrReopen until Reopen succeeds
	dirty  atomic.Bool // commits exist that are not synced
	full   atomic.Bool // the state full: commit only what frees space, see full.go
	freed  atomic.Bool // a commit in the state full deleted something
	purged atomic.Bool // a commit in the state full deleted a range of messages
	// Relieve retries a compaction only every skip-th call after one has failed.
	skip, skipped int
	tried         atomic.Int64 // free bytes at the last failed attempt to open for writing; 0: none

	many    sync.Pool // of *manyRead
	reclaim reclaim

	mu             sync.Mutex
	cond           *sync.Cond
	d              *database // nil after Close, or when Reopen could not open it
	closedErr      error     // the error to return while d is nil
	torn           logSizes  // sizes of the logs when a write failed; nil: none has
	holders        int
	exclusive      bool          // exclusive access is granted
	granted        bool          // exclusive was set by the last release; the first waiter has not claimed it yet
	pending        int           // pending requests for exclusive access
	exclusiveEnded chan struct{} // closed when exclusive access ends; delayed operations wait for it
}

// exclusiveGrace is how long a new operation is delayed in favour of a pending Reopen or Close. It
// exceeds the duration of any Get and is short enough for the holder of an iterator to wait it out.
const exclusiveGrace = 10 * time.Millisecond

// newStore wraps an open database. p is the profile with which Reopen opens it again.
func newStore(path string, p profile, d *database) *Store {
	s := &Store{path: path, p: p, d: d}
	s.cond = sync.NewCond(&s.mu)
	s.exclusiveEnded = make(chan struct{})
	return s
}

// Commit applies the batch atomically. With sync, the batch and everything committed before it are
// on disk when Commit returns. After an error the store refuses writes with ErrReopen until Reopen
// succeeds; nothing of the batch is visible, or all of it where only its sync has failed.
func (s *Store) Commit(b *storage.Batch, sync bool) error {
	if b.Len() == 0 {
		if sync {
			return s.Sync()
		}
		return s.write("commit", func(*database) error { return nil })
	}
	return s.write("commit", func(d *database) error {
		switch {
		case s.full.Load():
			defer s.recordFreed(d, b)
		case b.DeletesRange():
			defer s.reclaimSoon()
		}
		if !sync {
			err := d.writer.write(b.Bytes(), false)
			s.dirty.Store(true)
			return err
		}
		// Cleared before the write: this sync may not cover a commit that runs concurrently.
		s.dirty.Store(false)
		return d.writer.write(b.Bytes(), true)
	})
}

// Sync makes every completed commit durable against a power loss.
func (s *Store) Sync() error {
	return s.write("sync", func(d *database) error {
		if !s.dirty.Swap(false) {
			return nil
		}
		if err := d.syncLog(); err != nil {
			return rocksError(err)
		}
		return nil
	})
}

// write runs an operation that changes the database. Its first error puts the store into the failed
// state, in which all further writes return ErrReopen.
func (s *Store) write(what string, fn func(d *database) error) error {
	d, err := s.acquire()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.release()
	if s.failed.Load() {
		return fmt.Errorf("%s: %w", what, storage.ErrReopen)
	}
	if err := fn(d); err != nil {
		s.failed.Store(true)
		s.tore()
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Get returns a copy of the value. It returns storage.ErrNotFound for a missing key and
// storage.ErrUnreadable, wrapped with family and key, if RocksDB cannot read it.
func (s *Store) Get(f storage.Family, key []byte) ([]byte, error) {
	d, err := s.acquire()
	if err != nil {
		return nil, fmt.Errorf("%w: get: %w", storage.ErrUnreadable, err)
	}
	defer s.release()
	value, err := d.get(f, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: get %s %x: %w", storage.ErrUnreadable, f, key, err)
	}
	return value, err
}

// Checkpoint creates a consistent copy of the store in dir, which must not exist and must be on the
// same file system: table files are hard-linked, not copied.
func (s *Store) Checkpoint(dir string) error {
	d, err := s.acquire()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer s.release()
	c, err := d.db.NewCheckpoint()
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, rocksError(err))
	}
	defer c.Destroy()
	d.awaitFlushes(func() { err = c.CreateCheckpoint(dir, 0) })
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, rocksError(err))
	}
	return nil
}

// Reopen makes the store writable again after a failed write, in the steps of the package comment.
// If only deletions are possible it leaves the store in the state full, see Full. It may be called
// at any time before Close.
func (s *Store) Reopen() error {
	err := s.probe()
	if err != nil && !s.canOpenFull(err) {
		return fmt.Errorf("reopen: %w", err)
	}
	full := err != nil
	s.stopReclaiming()
	defer s.resumeReclaiming()
	s.takeExclusive()
	defer s.endExclusive()
	return s.replace(func() (opening, error) {
		if full {
			return openFull(s.path, s.p, storage.ErrFull)
		}
		return openBest(s.path, s.p)
	})
}

// Replace closes the database, runs change, which may exchange the files of the store for those of a
// Checkpoint, and opens it again. It waits for running operations and open iterators. After an error
// the store is closed.
func (s *Store) Replace(change func() error) error {
	s.stopReclaiming()
	defer s.resumeReclaiming()
	s.takeExclusive()
	defer s.endExclusive()
	return s.replace(func() (opening, error) {
		if err := change(); err != nil {
			return opening{}, err
		}
		return openBest(s.path, s.p)
	})
}

// replace closes the database and opens it with open. The caller has exclusive access.
func (s *Store) replace(open func() (opening, error)) error {
	if s.d == nil && errors.Is(s.closedErr, errClosed) {
		return fmt.Errorf("reopen: %w", s.closedErr)
	}
	if s.d != nil {
		s.set(nil, fmt.Errorf("%w: it is being reopened", storage.ErrClosed)).close()
	}
	if err := s.mendLogs(); err != nil {
		s.set(nil, fmt.Errorf("%w: reopening it failed: %w", storage.ErrClosed, err))
		return fmt.Errorf("reopen: %w", err)
	}
	o, err := open()
	if err != nil {
		s.set(nil, fmt.Errorf("%w: reopening it failed: %w", storage.ErrClosed, err))
		return fmt.Errorf("reopen: %w", err)
	}
	s.set(o.d, nil)
	s.adoptState(o)
	if o.readOnly != nil {
		return fmt.Errorf("reopen: %w", o.readOnly)
	}
	return nil
}

// adoptState sets the state of the store from the result of an open.
func (s *Store) adoptState(o opening) {
	s.dirty.Store(o.full) // recovery flushes what it replays, except into a full store
	s.full.Store(o.full)
	s.freed.Store(false)
	s.failed.Store(o.readOnly != nil)
	s.tried.Store(0)
	if o.readOnly != nil {
		s.tried.Store(max(freeSpace(s.path), 1))
	}
}

// Probe reports whether Reopen could succeed: the disk accepts as much as recovery may write, or
// the store has a reserve to release, or the space of one that is released. It does not affect
// running operations.
func (s *Store) Probe() error {
	if err := s.probe(); err != nil && !s.canOpenFull(err) {
		return fmt.Errorf("reopen: %w", err)
	}
	return nil
}

// errClosed marks a store after Close, which is final, unlike ErrClosed of a failed Reopen.
var errClosed = fmt.Errorf("%w", storage.ErrClosed)

// probe writes a file as large as what recovery may have to write, the unflushed memtables. A
// Reopen that failed for lack of space would end the reads, too.
func (s *Store) probe() error {
	size := int64(probeChunk)
	d, err := s.acquire()
	switch {
	case err == nil:
		size += int64(d.inMemtables())
		s.release()
	case errors.Is(err, errClosed):
		return err
	}
	return probe(s.path, size)
}

// Close waits for running reads and open iterators, syncs unsynced commits and closes the database.
// Further calls return nil.
func (s *Store) Close() error {
	s.stopReclaiming()
	s.takeExclusive()
	defer s.endExclusive()
	d := s.set(nil, errClosed)
	if d == nil {
		return nil
	}
	var err error
	if s.dirty.Load() && !s.failed.Load() {
		err = d.syncLog()
	}
	d.close()
	if mended := s.mendLogs(); err == nil {
		err = mended
	}
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.path, rocksError(err))
	}
	return nil
}

// acquire gives the caller shared access to the database until release, or returns the reason why
// the database is closed.
func (s *Store) acquire() (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending > 0 && !s.exclusive {
		s.yieldToExclusive()
	}
	for s.exclusive {
		s.cond.Wait()
	}
	if s.d == nil {
		return nil, s.closedErr
	}
	s.holders++
	return s.d, nil
}

// yieldToExclusive delays the caller until exclusive access has ended, at most for exclusiveGrace.
// Called with the lock held, it returns with the lock held.
func (s *Store) yieldToExclusive() {
	ended := s.exclusiveEnded
	s.mu.Unlock()
	timer := time.NewTimer(exclusiveGrace)
	select {
	case <-ended:
	case <-timer.C:
	}
	timer.Stop()
	s.mu.Lock()
}

// release ends shared access and hands the database to a pending exclusive request if this was the
// last.
func (s *Store) release() {
	s.mu.Lock()
	s.holders--
	s.grant()
	s.mu.Unlock()
}

// grant hands exclusive access to a pending request if nothing holds the database. The last release
// grants it directly instead of only signalling: under load the moment without any holder would be
// over before a waiter runs.
func (s *Store) grant() {
	if s.holders == 0 && s.pending > 0 && !s.exclusive {
		s.exclusive, s.granted = true, true
		s.cond.Broadcast()
	}
}

// takeExclusive waits for the last shared access and blocks new ones until endExclusive.
func (s *Store) takeExclusive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending++
	s.grant()
	for !s.granted {
		s.cond.Wait()
	}
	s.granted = false
	s.pending--
}

// endExclusive ends exclusive access and wakes the delayed operations.
func (s *Store) endExclusive() {
	s.mu.Lock()
	s.exclusive = false
	close(s.exclusiveEnded)
	s.exclusiveEnded = make(chan struct{})
	s.grant()
	s.cond.Broadcast()
	s.mu.Unlock()
}

// set replaces the database and returns the previous one. The caller has exclusive access.
func (s *Store) set(d *database, closedErr error) (old *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.d, s.closedErr = s.d, d, closedErr
	return old
}

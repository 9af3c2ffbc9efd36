package rocks

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faisca/fila/storage"
)

// Store is a store in RocksDB. It is safe for concurrent use.
//
// Whoever uses the database counts as a user of it until done, an iterator
// until it is closed. Reopen and Close need the database for themselves: they
// wait until there is no user. Meanwhile new users are held back, but only for
// a moment: somebody who holds an iterator may need a Get before closing it,
// and to refuse that would be a deadlock. To hold back nobody would let busy
// readers starve a Reopen.
type Store struct {
	path string
	p    profile

	failed atomic.Bool // a write failed: no more of them until Reopen
	dirty  atomic.Bool // something was committed and not synced
	full   atomic.Bool // only what frees space should be committed, see full.go
	freed  atomic.Bool // something was deleted while it was full
	// Calls of Relieve that pass until what was freed is looked for again.
	skip, skipped int
	tried         atomic.Int64 // space with which it could not be opened for writing; 0: it was not tried

	mu      sync.Mutex
	changed *sync.Cond
	d       *database // nil after Close, or when Reopen failed to open it
	gone    error     // why d is nil
	torn    logSizes  // of when a write failed; nil: none has
	users   int
	taken   bool          // somebody has the database for themselves, or was just given it
	given   bool          // taken was set by the last user, for the first who waits
	waiting int           // how many wait to have the database for themselves
	passed  chan struct{} // closed by giveBack, for users who are held back
}

// heldBack is how long a new user makes way for a Reopen or a Close. It is
// longer than any Get takes, and not long for somebody who has to wait it out.
const heldBack = 10 * time.Millisecond

func newStore(path string, p profile, d *database) *Store {
	s := &Store{path: path, p: p, d: d}
	s.changed = sync.NewCond(&s.mu)
	s.passed = make(chan struct{})
	return s
}

// Commit applies the batch as a whole, or not at all; with sync it is on disk
// when Commit returns, and so is everything committed before. After an error
// nothing of it is visible, and the store takes no writes until Reopen.
func (s *Store) Commit(b *storage.Batch, sync bool) error {
	if b.Len() == 0 {
		if sync {
			return s.Sync()
		}
		return s.write("commit", func(*database) error { return nil })
	}
	return s.write("commit", func(d *database) error {
		if s.full.Load() {
			defer s.freeing(d, b)
		}
		if !sync {
			err := d.writer.write(b.Bytes(), false)
			s.dirty.Store(true)
			return err
		}
		// Before the write: what is committed during it may not be covered.
		s.dirty.Store(false)
		return d.writer.write(b.Bytes(), true)
	})
}

// Sync makes everything committed so far survive a power loss.
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

// write runs what changes the database and remembers that it failed.
func (s *Store) write(what string, fn func(d *database) error) error {
	d, err := s.enter()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer s.leave()
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

// Get returns a copy of the value, or storage.ErrNotFound.
func (s *Store) Get(f storage.Family, key []byte) ([]byte, error) {
	d, err := s.enter()
	if err != nil {
		return nil, fmt.Errorf("%w: get: %w", storage.ErrUnreadable, err)
	}
	defer s.leave()
	value, err := d.get(f, key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: get %s %x: %w", storage.ErrUnreadable, f, key, err)
	}
	return value, err
}

// Checkpoint writes a copy of the store as it is now into a new directory on
// the same file system, where table files are shared and not copied.
func (s *Store) Checkpoint(dir string) error {
	d, err := s.enter()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer s.leave()
	c, err := d.db.NewCheckpoint()
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, rocksError(err))
	}
	defer c.Destroy()
	if err := c.CreateCheckpoint(dir, 0); err != nil {
		return fmt.Errorf("checkpoint %s: %w", dir, rocksError(err))
	}
	return nil
}

// Reopen makes the store writable again after a failed write, as the package comment
// tells, or leaves it full, if that is all that is possible: see Full. It may be called
// whenever the store is not closed.
func (s *Store) Reopen() error {
	err := s.probe()
	if err != nil && !s.worthTrying(err) {
		return fmt.Errorf("reopen: %w", err)
	}
	full := err != nil
	s.take()
	defer s.giveBack()
	return s.replace(func() (opening, error) {
		if full {
			return openFull(s.path, s.p, storage.ErrFull)
		}
		return openSomehow(s.path, s.p)
	})
}

// replace closes the database and opens it again. The caller took it.
func (s *Store) replace(open func() (opening, error)) error {
	if s.d == nil && errors.Is(s.gone, errClosed) {
		return fmt.Errorf("reopen: %w", s.gone)
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
	s.became(o)
	if o.readOnly != nil {
		return fmt.Errorf("reopen: %w", o.readOnly)
	}
	return nil
}

// became takes over how the store was opened.
func (s *Store) became(o opening) {
	s.dirty.Store(o.full) // recovery writes what it replays to tables, but for a full store
	s.full.Store(o.full)
	s.freed.Store(false)
	s.failed.Store(o.readOnly != nil)
	s.tried.Store(0)
	if o.readOnly != nil {
		s.tried.Store(max(space(s.path), 1))
	}
}

// Probe finds out whether the disk takes what a Reopen may have to write, or the store has
// a reserve to give back. It disturbs nobody.
func (s *Store) Probe() error {
	if err := s.probe(); err != nil && !s.worthTrying(err) {
		return fmt.Errorf("reopen: %w", err)
	}
	return nil
}

// errClosed is ErrClosed for good: of a store whose Close was called.
var errClosed = fmt.Errorf("%w", storage.ErrClosed)

// probe finds out whether the disk takes what recovery may have to write: the
// log, once more, as tables. Failing then would cost the reads as well.
func (s *Store) probe() error {
	size := int64(probeChunk)
	d, err := s.enter()
	switch {
	case err == nil:
		size += int64(d.sum("rocksdb.cur-size-all-mem-tables")) //nolint:gosec // bytes in memory
		s.leave()
	case errors.Is(err, errClosed):
		return err
	}
	return probe(s.path, size)
}

// Close syncs what is not synced and ends the store, after running reads and
// open iterators ended. Closing twice is fine.
func (s *Store) Close() error {
	s.take()
	defer s.giveBack()
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

// enter makes the caller a user of the database until leave.
func (s *Store) enter() (*database, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting > 0 && !s.taken {
		s.makeWay()
	}
	for s.taken {
		s.changed.Wait()
	}
	if s.d == nil {
		return nil, s.gone
	}
	s.users++
	return s.d, nil
}

// makeWay lets one who waits for the database have it first, if that does not
// take long. It is called with the lock held, and returns with it.
func (s *Store) makeWay() {
	passed := s.passed
	s.mu.Unlock()
	timer := time.NewTimer(heldBack)
	select {
	case <-passed:
	case <-timer.C:
	}
	timer.Stop()
	s.mu.Lock()
}

func (s *Store) leave() {
	s.mu.Lock()
	s.users--
	s.give()
	s.mu.Unlock()
}

// give hands the database to one who waits for it, if it is free. The last
// user does that rather than only wake the one who waits: with many users the
// moment without any would be over before somebody wakes up.
func (s *Store) give() {
	if s.users == 0 && s.waiting > 0 && !s.taken {
		s.taken, s.given = true, true
		s.changed.Broadcast()
	}
}

// take waits for the last user and keeps others out until giveBack.
func (s *Store) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	s.give()
	for !s.given {
		s.changed.Wait()
	}
	s.given = false
	s.waiting--
}

func (s *Store) giveBack() {
	s.mu.Lock()
	s.taken = false
	close(s.passed)
	s.passed = make(chan struct{})
	s.give()
	s.changed.Broadcast()
	s.mu.Unlock()
}

// set replaces the database and returns what it was. The caller took it.
func (s *Store) set(d *database, gone error) (old *database) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.d, s.gone = s.d, d, gone
	return old
}

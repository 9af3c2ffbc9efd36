package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"github.com/rs/zerolog"
)

// logOptions configures openLog.
type logOptions struct {
	Dir          string        // created if missing, its parent must exist
	SegmentBytes int           // size of the files of which the log consists, allocated beforehand
	Retry        time.Duration // time between two attempts to reopen the log on a full disk
	// Fatal is called once, with the first error after which the log must not be used any more.
	Fatal func(error)
	Log   zerolog.Logger
	Files types.VFS // nil: the system's
}

// raftLog is Raft's log, term and vote on disk: a raft-wal that recovers from a full disk and stops at
// any other error. It has three states:
//
//	open ──disk full──► full ──reopened──► open
//	any  ──other error──► failed, for good
//
// raft-wal does not recover by itself: after a failed change of its files each append is refused,
// also with free space. Reopened, it has all that it has acknowledged. So in the state full entries
// are refused and the log is reopened at intervals; reads go on, for Raft ends the process when one
// fails. A term or a vote waits until it is written, for the same reason.
//
// After an error that is not about space the contents of the page cache and of the disk may differ.
// Nothing is tried again then: each call returns that error, and the process has to end.
type raftLog struct {
	o     logOptions
	files *watchedFiles
	meta  *watchedMeta
	ended chan struct{} // closed by Close

	appended atomic.Int64  // bytes of all entries that were stored since the log was opened
	refused  atomic.Uint64 // first entry of a call of StoreLogs that has failed after it wrote some; 0: none

	mu     sync.RWMutex // held exclusively while the WAL is exchanged
	wal    *wal.WAL
	space  chan struct{} // nil: open; else full, closed when the log is open again
	failed error         // not nil: for good
}

// openLog opens the log and creates it if the directory is new.
func openLog(o logOptions) (*raftLog, error) {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("replicated log: %w", err)
	}
	if o.Files == nil {
		o.Files = diskFiles()
	}
	l := &raftLog{o: o, files: &watchedFiles{VFS: o.Files}, ended: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("replicated log %s: %w", o.Dir, err)
	}
	return l, nil
}

// open opens the WAL. The caller holds mu or is alone.
func (l *raftLog) open() error {
	l.files.forget()
	l.meta = &watchedMeta{MetaStore: diskMeta(), files: l.files}
	w, err := wal.Open(l.o.Dir, wal.WithLogger(hashicorpLog(l.o.Log)), wal.WithSegmentSize(l.o.SegmentBytes),
		wal.WithSegmentFiler(segment.NewFiler(l.o.Dir, l.files)), wal.WithMetaStore(l.meta))
	if err != nil {
		return errors.Join(err, l.meta.Close())
	}
	l.wal = w
	return nil
}

// Close closes the log. Raft must have ended before.
func (l *raftLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		return nil
	default:
		close(l.ended)
	}
	if l.wal == nil {
		return nil
	}
	return l.wal.Close()
}

// Bytes returns the size of the log on disk.
func (l *raftLog) Bytes() (int64, error) {
	names, err := filepath.Glob(filepath.Join(l.o.Dir, "*.wal"))
	var sum int64
	for _, name := range names {
		if info, err := os.Stat(name); err == nil { // else it was cut off meanwhile
			sum += info.Size()
		}
	}
	return sum, err
}

// Full reports whether entries are refused because the disk is full.
func (l *raftLog) Full() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.space != nil
}

// read runs an operation that changes nothing.
func (l *raftLog) read(op func(w *wal.WAL) error) error {
	l.mu.RLock()
	w, err := l.wal, l.failed
	if err == nil {
		err = op(w)
	}
	l.mu.RUnlock()
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || errors.Is(err, wal.ErrClosed) {
		return err
	}
	return l.fail(w, err)
}

// write runs an operation that changes the log.
func (l *raftLog) write(op func(w *wal.WAL) error) error {
	l.mu.RLock()
	w, err := l.wal, l.failed
	switch {
	case err != nil:
	case l.space != nil:
		err = errFull
	default:
		// A change of files in the background may have failed since the last operation.
		if err = l.files.trouble(); err == nil {
			err = op(w)
		}
	}
	l.mu.RUnlock()
	if err == nil || errors.Is(err, errFull) || errors.Is(err, wal.ErrClosed) {
		return err
	}
	return l.fail(w, err)
}

var errFull = fmt.Errorf("replicated log: %w", syscall.ENOSPC)

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// fail changes the state after an error of an operation on w, and returns the error for the caller.
func (l *raftLog) fail(w *wal.WAL, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return l.failed
	case l.wal != w || l.space != nil:
		return errFull // another operation has noticed it before
	}
	// raft-wal hides the cause where it has changed files in the background.
	if cause := l.files.trouble(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if full(err) {
		l.space = make(chan struct{})
		l.o.Log.Error().Err(err).Str("path", l.o.Dir).Msg("the disk of the replicated log is full; it goes on when there is space")
		go l.reopen()
		return errFull
	}
	return l.end(err)
}

// end goes to the state failed. The caller holds mu.
func (l *raftLog) end(err error) error {
	l.failed = fmt.Errorf("replicated log %s: %w; if the disk is unsound, empty cluster.path and storage.path of this node, and it joins again", l.o.Dir, err)
	l.o.Fatal(l.failed)
	return l.failed
}

// reopen exchanges the WAL when there is space again.
func (l *raftLog) reopen() {
	again := time.NewTicker(l.o.Retry)
	defer again.Stop()
	for {
		select {
		case <-l.ended:
			return
		case <-again.C:
		}
		if l.probe() != nil {
			continue
		}
		if l.exchange(again.C) {
			return
		}
	}
}

// probe reports whether the disk has room for what opening the log may write. It keeps the log
// readable: an attempt without room would have to close it.
func (l *raftLog) probe() error {
	const name = "probe.tmp"
	_ = os.Remove(filepath.Join(l.o.Dir, name)) // left by a crash
	f, err := l.o.Files.Create(l.o.Dir, name, uint64(l.o.SegmentBytes)+1<<20)
	if err == nil {
		_, err = f.WriteAt(make([]byte, 1<<20), 0)
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, os.Remove(filepath.Join(l.o.Dir, name)))
}

// exchange closes the WAL and opens it again, until that succeeds, fails for another reason than
// space, or Close is called. Reads wait meanwhile. It reports whether the state is no longer full.
func (l *raftLog) exchange(again <-chan time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Entries that were refused may be on disk all the same. Raft does not know them and would
	// append others in their place.
	last, err := l.wal.LastIndex()
	if err != nil {
		return true // closed
	}
	if first := l.refused.Swap(0); first > 0 {
		last = min(last, first-1)
	}
	if err := l.wal.Close(); err != nil {
		_ = l.end(err)
		return true
	}
	for {
		err := l.open()
		if err == nil {
			if err = l.cutAfter(last); err == nil {
				break
			}
		}
		if !full(err) {
			_ = l.end(err)
			return true
		}
		select {
		case <-l.ended:
			return true
		case <-again:
		}
	}
	close(l.space)
	l.space = nil
	l.o.Log.Info().Str("path", l.o.Dir).Msg("the replicated log has space again")
	return true
}

// cutAfter removes the entries behind an index. The caller holds mu.
func (l *raftLog) cutAfter(last uint64) error {
	found, err := l.wal.LastIndex()
	if err != nil || found <= last {
		return err
	}
	return l.wal.DeleteRange(last+1, found)
}

// FirstIndex implements raft.LogStore.
func (l *raftLog) FirstIndex() (i uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { i, err = w.FirstIndex(); return err })
	return i, err
}

// LastIndex implements raft.LogStore.
func (l *raftLog) LastIndex() (i uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { i, err = w.LastIndex(); return err })
	return i, err
}

// GetLog implements raft.LogStore.
func (l *raftLog) GetLog(index uint64, to *raft.Log) error {
	return l.read(func(w *wal.WAL) error { return w.GetLog(index, to) })
}

// StoreLog implements raft.LogStore.
func (l *raftLog) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore: the entries are on disk when it returns.
func (l *raftLog) StoreLogs(entries []*raft.Log) error {
	err := l.write(func(w *wal.WAL) error { return l.storeInWrites(w, entries) })
	if err == nil {
		for _, e := range entries {
			l.appended.Add(int64(len(e.Data)))
		}
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (l *raftLog) DeleteRange(from, to uint64) error {
	return l.write(func(w *wal.WAL) error { return w.DeleteRange(from, to) })
}

// IsMonotonic implements raft.MonotonicLogStore: there may be no hole between two entries.
func (l *raftLog) IsMonotonic() bool { return true }

// Get implements raft.StableStore.
func (l *raftLog) Get(key []byte) (value []byte, err error) {
	err = l.read(func(w *wal.WAL) (err error) { value, err = w.Get(key); return err })
	return value, err
}

// GetUint64 implements raft.StableStore.
func (l *raftLog) GetUint64(key []byte) (value uint64, err error) {
	err = l.read(func(w *wal.WAL) (err error) { value, err = w.GetUint64(key); return err })
	return value, err
}

// Set implements raft.StableStore. It waits while the disk is full.
func (l *raftLog) Set(key, value []byte) error {
	return l.insist(func(w *wal.WAL) error { return w.Set(key, value) })
}

// SetUint64 implements raft.StableStore. It waits while the disk is full.
func (l *raftLog) SetUint64(key []byte, value uint64) error {
	return l.insist(func(w *wal.WAL) error { return w.SetUint64(key, value) })
}

// trySet is Set that returns an error while the disk is full, and after Close.
func (l *raftLog) trySet(key, value []byte) error {
	return l.write(func(w *wal.WAL) error { return w.Set(key, value) })
}

// insist repeats a write until there is space for it. An error would make Raft end the process with
// a stack trace in the place of a reason, so after one, and after Close, it never returns: Fatal ends
// the process.
func (l *raftLog) insist(op func(w *wal.WAL) error) error {
	for {
		err := l.write(op)
		if err == nil {
			return nil
		}
		if !full(err) {
			select {}
		}
		l.mu.RLock()
		space := l.space
		l.mu.RUnlock()
		if space != nil {
			select {
			case <-space:
			case <-l.ended:
				select {}
			}
		}
	}
}

// watchedFiles keeps the first error of a file, because raft-wal only logs those of changes in the
// background.
type watchedFiles struct {
	types.VFS

	mu    sync.Mutex
	first error
}

func (v *watchedFiles) forget() {
	v.mu.Lock()
	v.first = nil
	v.mu.Unlock()
}

// trouble returns the first error since forget.
func (v *watchedFiles) trouble() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.first
}

func (v *watchedFiles) note(err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.first == nil {
		v.first = err
	}
	return err
}

// Create implements types.VFS.
func (v *watchedFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.VFS.Create(dir, name, size)
	if err != nil {
		// Whatever it has allocated would be in the way of the next attempt.
		_ = v.VFS.Delete(dir, name)
		return nil, v.note(err)
	}
	return &watchedFile{f, v}, nil
}

// Delete implements types.VFS.
func (v *watchedFiles) Delete(dir, name string) error { return v.note(v.VFS.Delete(dir, name)) }

// OpenWriter implements types.VFS.
func (v *watchedFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, v.note(err)
	}
	return &watchedFile{f, v}, nil
}

type watchedFile struct {
	types.WritableFile

	files *watchedFiles
}

// WriteAt implements io.WriterAt.
func (f *watchedFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(p, at)
	return n, f.files.note(err)
}

// Sync implements types.WritableFile.
func (f *watchedFile) Sync() error { return f.files.note(f.WritableFile.Sync()) }

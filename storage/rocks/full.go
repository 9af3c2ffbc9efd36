//go:build cgo

package rocks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/linxGnu/grocksdb"
	"golang.org/x/sys/unix"

	"github.com/faisca/fila/storage"
	"github.com/faisca/fila/storage/rocks/files"
)

// This file keeps a store usable on a full disk. Deletions need space too, so a store keeps a
// reserve file and removes it when the disk is full.
//
//	writable ──no space──► full ──no space──► read-only
//	    ▲                    │                    │
//	    └── space available ─┴────────────────────┘
//
//   writable   normal operation; the reserve file exists.
//   full       opened for writing into the space of the reserve. Full returns
//              ErrFull, and the engine commits only what frees space. Opening does
//              not flush the logs into tables: the logs stay, and the space that
//              RocksDB would need for a start is not needed. Relieve reclaims
//              space and returns to writable when there is enough.
//   read-only  not even that was possible. Nothing is written. Reopen tries again.

const (
	reserveFile = "fila-reserve"
	// relief is the free space, in bytes beyond the reserve and the memtables, at which a full
	// store becomes writable again.
	relief = 16 << 20
	// shareOfDisk bounds the reserve to this fraction of a small disk.
	shareOfDisk = 16
)

// isFull reports whether an operation failed for lack of disk space, quota or file size.
func isFull(err error) bool {
	if err == nil {
		return false
	}
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, storage.ErrFull} {
		if errors.Is(err, e) {
			return true
		}
	}
	text := err.Error() // RocksDB returns errors as text
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(e syscall.Errno) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(e.Error()))
	})
}

// makeReserve creates the reserve file unless the disk has less than twice its size free. It is
// best effort: a store works without a reserve.
func makeReserve(path string, bytes int64) {
	name := filepath.Join(path, reserveFile)
	if bytes = boundByDisk(path, bytes); bytes <= 0 {
		_ = os.Remove(name) // the reserve is disabled
		return
	}
	if info, err := os.Stat(name); err == nil && info.Size() == bytes || freeSpace(path) < 2*bytes {
		return
	}
	if err := allocate(name, bytes); err != nil {
		_ = os.Remove(name) // a partial reserve would be mistaken for a whole one
	}
}

// boundByDisk returns bytes, or 1/shareOfDisk of the disk if that is less.
func boundByDisk(path string, bytes int64) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return min(bytes, int64(fs.Blocks)*fs.Bsize/shareOfDisk)
}

// allocate creates a file of allocated but unwritten blocks.
func allocate(name string, bytes int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, bytes)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = fill(f, bytes)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// releaseReserve removes the reserve file and reports whether there was one.
func releaseReserve(path string) bool { return os.Remove(filepath.Join(path, reserveFile)) == nil }

// canOpenFull reports whether opening in the state full may succeed after a probe has failed for
// lack of space: there is a reserve, or a full store that has given it up, and failed, has a part of
// its space; and more is free than at the last failed attempt.
func (s *Store) canOpenFull(probed error) bool {
	if !isFull(probed) {
		return false
	}
	free := freeSpace(s.path)
	if _, err := os.Stat(filepath.Join(s.path, reserveFile)); err != nil {
		if part := boundByDisk(s.path, s.p.reserve) / 2; part == 0 || free < part {
			return false
		}
	}
	return s.tried.Load() == 0 || free >= s.tried.Load()+probeChunk
}

// freeSpace returns how many bytes can be written, 0 if that cannot be determined.
func freeSpace(path string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize
}

// opening is the result of an open: a database and its state.
type opening struct {
	d        *database
	full     bool
	readOnly error // why it is read-only; nil: it is not
}

// openBest opens a store in the best state that is possible: writable, full or read-only.
func openBest(path string, p profile) (opening, error) {
	d, err := openDatabase(path, p)
	if err == nil {
		makeReserve(path, p.reserve)
		return opening{d: d}, nil
	}
	if !isFull(err) {
		if damaged(path, err) {
			return opening{}, err
		}
		probed := probe(path, probeChunk)
		if !isFull(probed) {
			return opening{}, err
		}
		err = probed
	}
	return openFull(path, p, err)
}

// damaged reports whether an open has failed for another reason than the full disk. RocksDB may take
// what a write without space has left for damage; it is damage if the files say so as well, which
// checkSurvey reads without RocksDB.
func damaged(path string, err error) bool {
	if !errors.Is(err, storage.ErrCorrupt) {
		return !isFull(err)
	}
	s, unreadable := surveyStore(path)
	return unreadable != nil || len(s.damage) > 0
}

// openFull opens a store in the state full, or read-only if that fails for lack of space. cause is
// why it cannot be writable.
func openFull(path string, p profile, cause error) (opening, error) {
	if found, err := checkFiles(path); err != nil || !found.database {
		return opening{}, cause // no database to open
	}
	removeLeftovers(path)
	reserved := releaseReserve(path)
	d, err := openDatabase(path, p.withoutSpace())
	if err == nil {
		return opening{d: d, full: true}, nil
	}
	if damaged(path, err) {
		return opening{}, err
	}
	removeLeftovers(path)
	if reserved {
		makeReserve(path, p.reserve)
	}
	d, err = openReadOnly(path, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	if err == nil {
		if err = storage.CheckFormat(d.get); err != nil {
			d.close()
		}
	}
	switch {
	case err == nil:
	case damaged(path, err):
		return opening{}, fmt.Errorf("%w; %w", cause, err)
	default:
		return opening{}, fmt.Errorf("%w; it can be opened again when there is space", cause)
	}
	return opening{d: d, readOnly: cause}, nil
}

// removeLeftovers removes the tables, MANIFESTs and logs of starts that failed for lack of space.
// RocksDB removes them only at the end of a successful start. A damaged store is left untouched.
func removeLeftovers(path string) {
	unlock, err := lockStore(path)
	if err != nil {
		return
	}
	defer unlock()
	removeProbes(path)
	removeSpares(path)
	s, err := surveyStore(path)
	if err != nil || len(s.damage) > 0 || s.manifest == nil {
		return
	}
	remove := func(name string) { _ = os.Remove(filepath.Join(path, name)) } // best effort, repeated by the next start
	live := s.manifest.Tables()
	for _, kind := range [][2]string{{"", ".sst"}, {manifestPrefix, ""}, {"", ".dbtmp"}} {
		names, err := numbered(path, kind[0], kind[1])
		if err != nil {
			return
		}
		for n, name := range names {
			if live[n] == nil && name != s.name {
				remove(name)
			}
		}
	}
	s.removeEmptyLogs(remove)
}

// removeEmptyLogs removes empty logs that are not in the list of logs. A log that MANIFEST expects
// stays.
func (s *survey) removeEmptyLogs(remove func(name string)) {
	listed := map[uint64]bool{}
	for _, n := range notedLogs(s.path) {
		listed[n] = true
	}
	enough := false // MANIFEST is satisfied by a log that stays
	for _, l := range s.logs {
		enough = enough || l.number >= s.manifest.NewestLog() && (l.first != l.next || listed[l.number])
	}
	for _, l := range s.logs {
		if l.needed && l.first == l.next && !listed[l.number] && enough && s.empty(l) {
			remove(l.name)
		}
	}
}

func (s *survey) empty(l surveyedLog) bool {
	r, err := files.ReadLog(filepath.Join(s.path, l.name), func(int64, []byte) error { return nil })
	return err == nil && r.Records == 0 && r.BadEnd < 0
}

// Full returns ErrFull while only commits that free space are accepted, and nil if the store is
// writable or read-only.
func (s *Store) Full() error {
	if !s.full.Load() {
		return nil
	}
	return storage.ErrFull
}

// Relieve reclaims the space of deleted records and makes a full store writable again once enough
// is free. It may take as long as an open, during which commits wait. It is to be called
// periodically, by one goroutine.
func (s *Store) Relieve() error {
	if !s.full.Load() {
		return nil
	}
	if s.purged.Swap(false) {
		s.skip = 0 // there is much less to write than at the last attempt
	}
	if s.freed.Load() && s.skipped >= s.skip {
		s.skipped = 0
		switch flushed, err := s.flushFreed(); {
		case err != nil:
			return err
		case !flushed:
			s.skip = min(2*s.skip+1, skipMax)
			return s.Full()
		}
		s.skip = 0
		s.compactFreed()
	}
	s.skipped++
	if need := s.inMemory() + boundByDisk(s.path, s.p.reserve) + boundByDisk(s.path, relief); freeSpace(s.path) < need || probe(s.path, need) != nil {
		return s.Full()
	}
	return s.Reopen()
}

// skipMax bounds the back-off of Relieve: after failed compactions it skips at most this many
// calls, and none after a purge.
const skipMax = 63

// inMemory returns the size of the memtables in bytes: what recovery may have to write.
func (s *Store) inMemory() int64 {
	d, err := s.acquire()
	if err != nil {
		return 0
	}
	defer s.release()
	return int64(d.inMemtables())
}

// recordFreed records that a batch has deleted something from a full store, and removes tables in a
// deleted range at once, which needs no space. No table was written after the deletion of its
// range: a full store writes none.
func (s *Store) recordFreed(d *database, b *storage.Batch) {
	_ = b.Each(func(r storage.Record) error { // a batch built here parses
		if r.Op != storage.OpPut {
			s.freed.Store(true)
		}
		if r.Op == storage.OpDeleteRange && r.Family == storage.Messages {
			s.purged.Store(true)
			_ = d.db.DeleteFileInRangeCF(d.families[r.Family], grocksdb.Range{Start: r.Key, Limit: r.Value}) // an optimisation
		}
		return nil
	})
}

// flushFreed flushes the memtables without the deleted records: the logs become obsolete. If that does not fit
// yet, it reopens the store in the state full, as RocksDB refuses writes after a failed flush. Commits wait
// meanwhile: the flush may take the last byte of the disk for a moment, which a deletion needs.
func (s *Store) flushFreed() (flushed bool, err error) {
	s.takeExclusive()
	defer s.endExclusive()
	if s.d == nil {
		return false, s.closedErr
	}
	s.freed.Store(false)
	if s.d.flush(func() bool { return true }) != nil {
		return false, s.replace(func() (opening, error) { return openFull(s.path, s.p, storage.ErrFull) })
	}
	return true, nil
}

// compactFreed compacts the messages and their bodies. It releases more space than it needs in between.
func (s *Store) compactFreed() {
	d, err := s.acquire()
	if err != nil {
		return // closed
	}
	defer s.release()
	o := grocksdb.NewCompactRangeOptions()
	defer o.Destroy()
	d.compact(storage.Messages, grocksdb.Range{}, o)
	d.compact(storage.Bodies, grocksdb.Range{}, o)
}

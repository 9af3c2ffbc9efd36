package rocks

import (
	"errors"
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

// This file keeps a store usable on a full disk. To delete is to write, too: so a store
// keeps a file in reserve, and gives it back when there is no space left.
//
//	writable ──no space──► full ──no space──► read only
//	    ▲                    │                    │
//	    └── there is space ──┴────────────────────┘
//
// A store that is full is open for writing, with what the reserve was to write to. It
// says so by Full, and who writes takes care to write only what frees space. It is opened
// without writing what its logs hold to tables: these stay as they are, and the space
// that RocksDB would need for a start is not needed. Relieve gives space back where it
// can, and makes the store writable again when there is some.
//
// Where not even that is possible, the store is open for reading only: that writes
// nothing.

const (
	reserveFile = "fila-reserve"
	// relief is the space beside the reserve, and what is in memory, with which a full
	// store is writable again.
	relief = 16 << 20
	// shareOfDisk bounds the reserve on a small disk.
	shareOfDisk = 16
)

// isFull tells whether something failed for want of space.
func isFull(err error) bool {
	if err == nil {
		return false
	}
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, storage.ErrFull} {
		if errors.Is(err, e) {
			return true
		}
	}
	text := err.Error() // RocksDB's errors are text
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(e syscall.Errno) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(e.Error()))
	})
}

// makeReserve makes the reserve, unless the disk has too little space for it. That it is
// missing is no reason to refuse anything.
func makeReserve(path string, bytes int64) {
	name := filepath.Join(path, reserveFile)
	if bytes = share(path, bytes); bytes <= 0 {
		_ = os.Remove(name) // there is to be none
		return
	}
	if info, err := os.Stat(name); err == nil && info.Size() == bytes || space(path) < 2*bytes {
		return
	}
	if err := allocate(name, bytes); err != nil {
		_ = os.Remove(name) // half of one is not worth keeping
	}
}

// share is so many bytes, or what is fair on a small disk.
func share(path string, bytes int64) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return min(bytes, int64(fs.Blocks)*fs.Bsize/shareOfDisk) //nolint:gosec // of a disk
}

// allocate makes a file that takes space and has nothing in it.
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

// giveReserve gives the reserve back, and reports whether there was one.
func giveReserve(path string) bool { return os.Remove(filepath.Join(path, reserveFile)) == nil }

// worthTrying tells whether a store could be opened for writing though a probe has failed:
// if it has a reserve, unless that was tried with as much space as there is now.
func (s *Store) worthTrying(probed error) bool {
	if !isFull(probed) {
		return false
	}
	if _, err := os.Stat(filepath.Join(s.path, reserveFile)); err != nil {
		return false
	}
	return s.tried.Load() == 0 || space(s.path) >= s.tried.Load()+probeChunk
}

// space is how many bytes can be written.
func space(path string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * fs.Bsize //nolint:gosec // of a disk
}

// opening is a store in one of its states.
type opening struct {
	d        *database
	full     bool
	readOnly error // why
}

// openSomehow opens a store, for reading only if there is no space at all.
func openSomehow(path string, p profile) (opening, error) {
	d, err := openDatabase(path, p)
	if err == nil {
		makeReserve(path, p.reserve)
		return opening{d: d}, nil
	}
	if !isFull(err) {
		return opening{}, err
	}
	return openFull(path, p, err)
}

// openFull opens a store on a full disk.
func openFull(path string, p profile, cause error) (opening, error) {
	if found, err := checkFiles(path); err != nil || !found.database {
		return opening{}, cause // there is nothing to read
	}
	removeLeftovers(path)
	reserved := giveReserve(path)
	d, err := openDatabase(path, p.withoutSpace())
	if err == nil {
		return opening{d: d, full: true}, nil
	}
	if !isFull(err) {
		return opening{}, err
	}
	removeLeftovers(path)
	if reserved {
		makeReserve(path, p.reserve)
	}
	d, err = openReadOnly(path, true, grocksdb.TolerateCorruptedTailRecordsRecovery)
	if err != nil {
		return opening{}, errors.Join(cause, err)
	}
	if err := storage.CheckFormat(d.get); err != nil {
		d.close()
		return opening{}, errors.Join(cause, err)
	}
	return opening{d: d, readOnly: cause}, nil
}

// removeLeftovers removes what starts that failed for want of space have made: RocksDB
// would do that at the end of one that does not fail. Nothing is removed from a store
// of which anything is damaged.
func removeLeftovers(path string) {
	unlock, err := lockStore(path)
	if err != nil {
		return
	}
	defer unlock()
	removeProbes(path)
	s, err := surveyStore(path)
	if err != nil || len(s.damage) > 0 || s.manifest == nil {
		return
	}
	remove := func(name string) { _ = os.Remove(filepath.Join(path, name)) } // it is tried again
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

// removeEmptyLogs removes logs that nothing was written to and that no list has: one of
// which MANIFEST expects it to be there stays.
func (s *survey) removeEmptyLogs(remove func(name string)) {
	listed := map[uint64]bool{}
	for _, n := range notedLogs(s.path) {
		listed[n] = true
	}
	enough := false // there is a log that is new enough
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

// Full says why only what frees space may be committed; nil: there is space, or nothing
// can be committed at all.
func (s *Store) Full() error {
	if !s.full.Load() {
		return nil
	}
	return storage.ErrFull
}

// Relieve gives space back that deletions have freed, and makes a full store writable
// again if there is enough. It may take as long as an open, in which commits wait. It is
// meant to be called again and again, by one goroutine.
func (s *Store) Relieve() error {
	if !s.full.Load() {
		return nil
	}
	if s.freed.Load() && s.skipped >= s.skip {
		s.skipped = 0
		if err := s.compactFreed(); err != nil {
			// What is in memory does not fit yet. RocksDB takes no writes after that.
			s.skip = min(2*s.skip+1, skipMax)
			if err := s.reopenFull(); err != nil {
				return err
			}
			return s.Full()
		}
		s.skip = 0
	}
	s.skipped++
	if need := s.inMemory() + share(s.path, s.p.reserve) + share(s.path, relief); space(s.path) < need || probe(s.path, need) != nil {
		return s.Full()
	}
	return s.Reopen()
}

// skipMax is in how many calls of Relieve at most tables are not tried to be written,
// after that has failed.
const skipMax = 63

// reopenFull opens a full store again, as it was.
func (s *Store) reopenFull() error {
	s.take()
	defer s.giveBack()
	return s.replace(func() (opening, error) { return openFull(s.path, s.p, storage.ErrFull) })
}

// inMemory is how much recovery may have to write.
func (s *Store) inMemory() int64 {
	d, err := s.enter()
	if err != nil {
		return 0
	}
	defer s.leave()
	return int64(d.sum("rocksdb.cur-size-all-mem-tables")) //nolint:gosec // bytes in memory
}

// freeing notes what a batch of a full store has deleted, after its commit. Tables that
// held nothing else are removed at once: that needs no space. No record of a message is
// in a table that was written after the deletion of its range: a full store writes none.
func (s *Store) freeing(d *database, b *storage.Batch) {
	_ = b.Each(func(r storage.Record) error { // it was built by us
		if r.Op != storage.OpPut {
			s.freed.Store(true)
		}
		if r.Op == storage.OpDeleteRange && r.Family == storage.Messages {
			_ = d.db.DeleteFileInRangeCF(d.families[r.Family], grocksdb.Range{Start: r.Key, Limit: r.Value}) // it only saves time
		}
		return nil
	})
}

// compactFreed writes what is in memory to tables, without what was deleted, and merges
// tables. What it needs meanwhile it gives back: the logs are not needed then.
func (s *Store) compactFreed() error {
	d, err := s.enter()
	if err != nil {
		return err
	}
	defer s.leave()
	s.freed.Store(false)
	o := grocksdb.NewDefaultFlushOptions()
	defer o.Destroy()
	o.SetWait(true)
	for _, h := range d.families {
		if h == nil {
			continue
		}
		if err := d.db.FlushCF(h, o); err != nil {
			return rocksError(err)
		}
	}
	d.db.CompactRangeCF(d.families[storage.Messages], grocksdb.Range{})
	return nil
}

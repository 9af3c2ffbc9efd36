//go:build cgo

package rocks

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// The records of a queue that was purged or deleted go by the deletion of a range, which RocksDB keeps in memory
// until it happens to write a table, and for which it compacts nothing. So a while after such a deletion, and after
// each opening, the store looks for gaps: prefixes without a key (storage.RangePrefixLen) whose tables are large. It
// compacts these. What was deleted shortly before the end of a process is found by the next one.
//
// The logs have the deleted records as well, for as long as one family, be it of few records, has anything of that
// time in memory. So what is in memory is written first, if the logs are large.

const (
	reclaimAfter = 10 * time.Second
	reclaimLeast = 4 << 20   // bytes of tables within a gap, compressed
	reclaimLogs  = 32 << 20  // bytes of logs
	reclaimShare = 50        // a look that took t is followed by none for reclaimShare times t
	reclaimSkip  = 1_000_000 // deleted keys in a row behind which no gap is looked for, as each look holds the database
)

// reclaim is the state of the look for gaps:
//
//	none ──a deletion of a range, an opening──▶ waiting ──its time──▶ looking ──▶ none
//
// A Close or Reopen ends a look at its next prefix or compaction.
type reclaim struct {
	mu      sync.Mutex
	timer   *time.Timer // nil: none waits
	pause   time.Duration
	stopped atomic.Bool
}

// reclaimSoon has the store look for gaps after a while.
func (s *Store) reclaimSoon() {
	r := &s.reclaim
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer == nil && !r.stopped.Load() {
		r.timer = time.AfterFunc(max(reclaimAfter, r.pause), s.reclaimGaps)
	}
}

// resumeReclaiming is called when a database is open again, after stopReclaiming.
func (s *Store) resumeReclaiming() {
	s.reclaim.stopped.Store(false)
	s.reclaimSoon()
}

// stopReclaiming ends a look under way, for which a Close or Reopen would wait.
func (s *Store) stopReclaiming() {
	r := &s.reclaim
	r.stopped.Store(true)
	r.mu.Lock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	if d, err := s.acquire(); err == nil {
		d.endCompactions()
		s.release()
	}
}

// reclaimGaps compacts the large gaps of all families.
func (s *Store) reclaimGaps() {
	began := time.Now()
	r := &s.reclaim
	r.mu.Lock()
	r.timer = nil
	r.mu.Unlock()
	d, err := s.acquire()
	if err != nil {
		return // closed
	}
	defer s.release()
	if s.full.Load() || s.failed.Load() {
		return // Reopen looks again
	}
	s.shortenLogs(d)
	var gaps [storage.FamilyCount][]grocksdb.Range
	for _, f := range storage.Families() {
		gaps[f] = s.largeGaps(d, f)
	}
	r.mu.Lock()
	r.pause = reclaimShare * time.Since(began)
	r.mu.Unlock()
	o := grocksdb.NewCompactRangeOptions()
	defer o.Destroy()
	o.SetExclusiveManualCompaction(false)
	for f, all := range gaps {
		for _, gap := range all {
			if !r.stopped.Load() {
				d.compact(storage.Family(f), gap, o)
			}
		}
	}
}

// shortenLogs writes what is in memory into tables if the logs are large, unless the disk has little space for that.
func (s *Store) shortenLogs(d *database) {
	total := int64(0)
	for _, size := range sizesOfLogs(s.path) {
		total += size
	}
	inMemory := int64(d.inMemtables())
	if total < reclaimLogs || freeSpace(s.path) < 4*inMemory {
		return
	}
	_ = d.flush(func() bool { return !s.reclaim.stopped.Load() }) // the next write says why it fails
}

// largeGaps returns the gaps of a family that are worth a compaction, in the order of keys.
func (s *Store) largeGaps(d *database, f storage.Family) (large []grocksdb.Range) {
	n := storage.RangePrefixLen(f)
	if n == 0 || d.families[f] == nil {
		return nil
	}
	add := func(start, limit []byte) {
		gap := grocksdb.Range{Start: start, Limit: limit}
		if d.tableBytes(d.families[f], start, limit) >= reclaimLeast {
			large = append(large, gap)
		}
	}
	o := grocksdb.NewDefaultReadOptions()
	defer o.Destroy()
	o.SetTotalOrderSeek(true)
	o.SetFillCache(false)
	o.SetMaxSkippableInternalKeys(reclaimSkip)
	it := d.db.NewIteratorCF(o, d.families[f])
	defer it.Close()
	last := bytes.Repeat([]byte{0xFF}, n+1)
	for next := make([]byte, n); next != nil && !s.reclaim.stopped.Load(); {
		it.Seek(next)
		if !it.Valid() {
			if it.Err() == nil {
				add(next, last)
			}
			break
		}
		found := bytes.Clone(it.Key().Data())
		if len(found) < n {
			break // nothing writes such a key
		}
		if found = found[:n]; !bytes.Equal(next, found) {
			add(next, found)
		}
		next = storage.After(found)
	}
	return large
}

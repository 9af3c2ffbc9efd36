//go:build cgo

package rocks

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// The records of a queue that was purged or deleted go by the deletion of a range, which RocksDB keeps in memory
// until it happens to write a table, and for which it compacts nothing. So a while after such a deletion the range
// is compacted, if there is much in it. Ranges that wait are in memory only: what was deleted shortly before the end
// of a process goes with later compactions.

const (
	reclaimAfter = 10 * time.Second
	reclaimLeast = 4 << 20 // bytes of tables within a range, compressed
	reclaimMost  = 1000    // ranges of a family that wait and do not touch; the space of more goes with later compactions
)

// reclaim is the ranges whose space is to come back.
type reclaim struct {
	mu     sync.Mutex
	ranges map[storage.Family][]grocksdb.Range
	timer  *time.Timer // nil: none waits
}

// note adds the ranges that a batch deletes.
func (r *reclaim) note(s *Store, b *storage.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ranges == nil {
		r.ranges = map[storage.Family][]grocksdb.Range{}
	}
	_ = b.Each(func(rec storage.Record) error { // a batch built here parses
		if rec.Op != storage.OpDeleteRange {
			return nil
		}
		all := r.ranges[rec.Family]
		all = append(all, grocksdb.Range{Start: bytes.Clone(rec.Key), Limit: bytes.Clone(rec.Value)})
		if len(all) > 2*reclaimMost {
			all = joined(all)
			all = all[:min(len(all), reclaimMost)]
		}
		r.ranges[rec.Family] = all
		return nil
	})
	r.arm(s)
}

// arm has the ranges compacted after a while, if there are any. The caller holds mu.
func (r *reclaim) arm(s *Store) {
	if r.timer == nil && len(r.ranges) > 0 {
		r.timer = time.AfterFunc(reclaimAfter, s.reclaimSpace)
	}
}

// take returns the ranges that wait.
func (r *reclaim) take() (all map[storage.Family][]grocksdb.Range) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.ranges, r.timer = r.ranges, nil, nil
	return all
}

// reclaimSpace compacts the ranges that were deleted, each if its tables are large.
func (s *Store) reclaimSpace() {
	ranges := s.reclaim.take()
	d, err := s.acquire()
	if err != nil {
		return // closed
	}
	defer s.release()
	o := grocksdb.NewCompactRangeOptions()
	defer o.Destroy()
	o.SetExclusiveManualCompaction(false)
	for f, all := range ranges {
		if d.families[f] == nil || s.full.Load() {
			continue
		}
		all = joined(all)
		sizes, err := d.db.GetApproximateSizesCF(d.families[f], all)
		if err != nil {
			continue // nothing is lost but space
		}
		for i, r := range all {
			if sizes[i] >= reclaimLeast {
				d.db.CompactRangeCFOpt(d.families[f], r, o)
			}
		}
	}
}

// resumeReclaiming is called when a database is open again, after stopReclaiming.
func (s *Store) resumeReclaiming() {
	s.reclaim.mu.Lock()
	defer s.reclaim.mu.Unlock()
	s.reclaim.arm(s)
}

// stopReclaiming ends a compaction under way, for which a Close or Reopen would wait.
func (s *Store) stopReclaiming() {
	s.reclaim.mu.Lock()
	if s.reclaim.timer != nil {
		s.reclaim.timer.Stop()
		s.reclaim.timer = nil
	}
	s.reclaim.mu.Unlock()
	if d, err := s.acquire(); err == nil {
		d.db.DisableManualCompaction()
		s.release()
	}
}

// joined sorts ranges and joins those that touch, as the queues of a set that is deleted do.
func joined(all []grocksdb.Range) (apart []grocksdb.Range) {
	slices.SortFunc(all, func(a, b grocksdb.Range) int { return bytes.Compare(a.Start, b.Start) })
	for _, r := range all {
		if n := len(apart); n > 0 && bytes.Compare(r.Start, apart[n-1].Limit) <= 0 {
			if bytes.Compare(r.Limit, apart[n-1].Limit) > 0 {
				apart[n-1].Limit = r.Limit
			}
			continue
		}
		apart = append(apart, r)
	}
	return apart
}

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
// until it happens to write a table: their space came back with the next start. So a while after such a deletion
// the range is compacted, if there is much in it.

const (
	reclaimAfter = 10 * time.Second
	reclaimLeast = 4 << 20 // bytes of tables within a range, compressed
	reclaimMost  = 1000    // ranges of a family that wait; more become one that has them all
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
		if rec.Op == storage.OpDeleteRange {
			r.ranges[rec.Family] = append(r.ranges[rec.Family], grocksdb.Range{Start: bytes.Clone(rec.Key), Limit: bytes.Clone(rec.Value)})
			if len(r.ranges[rec.Family]) > reclaimMost {
				r.ranges[rec.Family] = []grocksdb.Range{hull(r.ranges[rec.Family])}
			}
		}
		return nil
	})
	if r.timer == nil {
		r.timer = time.AfterFunc(reclaimAfter, func() { s.reclaimSpace() })
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
		return // closed: the next start writes a table, and compacts
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

// hull returns the range that has all others.
func hull(all []grocksdb.Range) grocksdb.Range {
	h := all[0]
	for _, r := range all[1:] {
		if bytes.Compare(r.Start, h.Start) < 0 {
			h.Start = r.Start
		}
		if bytes.Compare(r.Limit, h.Limit) > 0 {
			h.Limit = r.Limit
		}
	}
	return h
}

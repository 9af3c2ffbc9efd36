//go:build cgo

package rocks

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

// Stats are gauges that RocksDB keeps. Reading them costs some microseconds and no I/O. They are
// read one after another while the store works, so they do not describe a single moment. Bytes and
// counts are sums over the families unless stated otherwise.
type Stats struct {
	Keys                uint64 // estimated, pending deletions subtracted
	TableBytes          uint64 // bytes on disk without the log
	MemtableBytes       uint64 // bytes in memory that are not flushed
	CacheBytes          uint64 // used bytes of the block cache
	CacheMaxBytes       uint64
	TableReaderBytes    uint64 // bytes of open tables outside of the block cache
	PendingCompactBytes uint64 // estimated bytes that compaction has yet to rewrite
	Level0Files         uint64 // the maximum over the families
	Compactions         uint64 // running now
	Flushes             uint64 // running now
	BackgroundErrors    uint64 // since the store was opened
	WriteStopped        bool   // commits wait for flushes or compactions
	WriteDelayedRate    uint64 // bytes per second to which commits are throttled; 0: not throttled
}

// Stats returns the current gauges, or an error if the store is closed.
func (s *Store) Stats() (Stats, error) {
	d, err := s.acquire()
	if err != nil {
		return Stats{}, fmt.Errorf("stats: %w", err)
	}
	defer s.release()
	st := Stats{
		Keys:                d.sum("rocksdb.estimate-num-keys"),
		TableBytes:          d.sum("rocksdb.total-sst-files-size"),
		MemtableBytes:       d.sum("rocksdb.cur-size-all-mem-tables"),
		CacheMaxBytes:       d.cacheMax,
		TableReaderBytes:    d.sum("rocksdb.estimate-table-readers-mem"),
		PendingCompactBytes: d.sum("rocksdb.estimate-pending-compaction-bytes"),
		Compactions:         d.property("rocksdb.num-running-compactions"),
		Flushes:             d.property("rocksdb.num-running-flushes"),
		BackgroundErrors:    d.property("rocksdb.background-errors"),
		WriteStopped:        d.property("rocksdb.is-write-stopped") != 0,
		WriteDelayedRate:    d.property("rocksdb.actual-delayed-write-rate"),
	}
	if d.cache != nil {
		st.CacheBytes = d.cache.GetUsage()
	}
	for _, h := range d.families {
		if h == nil {
			continue
		}
		var files uint64
		// A textual property; anything but a number counts as 0.
		if _, err := fmt.Sscan(d.db.GetPropertyCF("rocksdb.num-files-at-level0", h), &files); err == nil {
			st.Level0Files = max(st.Level0Files, files)
		}
	}
	return st, nil
}

// sum adds up a property of all families. Unknown properties count as 0.
func (d *database) sum(name string) (n uint64) {
	for f := range d.families {
		if d.families[f] == nil {
			continue
		}
		if v, ok := d.db.GetIntPropertyCF(name, d.families[f]); ok {
			n += v
		}
	}
	return n
}

// property returns a property of the whole database.
func (d *database) property(name string) uint64 {
	v, _ := d.db.GetIntPropertyCF(name, d.families[storage.Default])
	return v
}

package rocks

import (
	"fmt"

	"github.com/faisca/fila/storage"
)

// Stats is what RocksDB says about itself. All of it is cheap to ask for.
type Stats struct {
	Keys                uint64 // an estimate; deletes that are not compacted yet are counted off
	TableBytes          uint64 // on disk, without the log
	MemtableBytes       uint64 // in memory, not yet in tables
	CacheBytes          uint64 // block cache in use
	CacheMaxBytes       uint64
	TableReaderBytes    uint64 // memory of open tables outside the block cache
	PendingCompactBytes uint64 // an estimate of what compaction has still to rewrite
	Level0Files         uint64 // the most of any family
	Compactions         uint64 // running now
	Flushes             uint64 // running now
	BackgroundErrors    uint64 // since the store was opened
	WriteStopped        bool   // commits wait for flushes or compactions
	WriteDelayedRate    uint64 // bytes a second to which commits are slowed down; 0 is not at all
}

// Stats asks RocksDB about itself.
func (s *Store) Stats() (Stats, error) {
	d, err := s.enter()
	if err != nil {
		return Stats{}, fmt.Errorf("stats: %w", err)
	}
	defer s.leave()
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
		// A property that is text; what is no number counts as none.
		if _, err := fmt.Sscan(d.db.GetPropertyCF("rocksdb.num-files-at-level0", h), &files); err == nil {
			st.Level0Files = max(st.Level0Files, files)
		}
	}
	return st, nil
}

// sum adds a property up over the families. One that RocksDB does not know counts as 0.
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

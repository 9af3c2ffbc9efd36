//go:build cgo

package rocks

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/faisca/fila/storage"
)

// Stats returns the current figures, or an error if the store is closed. It waits while the store
// is being reopened. It costs some hundred microseconds and reads the directory of the store.
func (s *Store) Stats() (Stats, error) {
	d, err := s.acquire()
	if err != nil {
		return Stats{}, fmt.Errorf("stats: %w", err)
	}
	defer s.release()
	st := Stats{
		Keys:                d.sum("rocksdb.estimate-num-keys"),
		TableBytes:          d.sum("rocksdb.total-sst-files-size"),
		MemtableBytes:       d.inMemtables(),
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
		for level := range st.LevelFiles {
			// A textual property; anything but a number counts as 0.
			files, _ := strconv.ParseUint(d.db.GetPropertyCF("rocksdb.num-files-at-level"+strconv.Itoa(level), h), 10, 64)
			st.LevelFiles[level] += files
			if level == 0 {
				st.Level0Files = max(st.Level0Files, files)
			}
		}
	}
	st.CacheHits, st.CacheMisses, st.Stalled = d.events()
	st.LogBytes = logBytes(s.path)
	return st, nil
}

// logBytes returns the size of the logs of a store. A log that vanishes meanwhile counts as 0.
func logBytes(path string) (n uint64) {
	files, err := os.ReadDir(path)
	if err != nil {
		return 0
	}
	for _, file := range files {
		if filepath.Ext(file.Name()) != ".log" {
			continue
		}
		if info, err := file.Info(); err == nil {
			n += uint64(info.Size())
		}
	}
	return n
}

// The figures come from three sources. Properties of RocksDB are of the moment, most of them of one
// family, and are added up; events are counters since the store was opened; the size of the logs is
// that of their files.

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

// inMemtables returns the bytes of all memtables that are not flushed.
func (d *database) inMemtables() uint64 {
	return d.sum("rocksdb.cur-size-all-mem-tables") + d.large.uncounted()
}

// property returns a property of the whole database.
func (d *database) property(name string) uint64 {
	v, _ := d.db.GetIntPropertyCF(name, d.families[storage.Default])
	return v
}

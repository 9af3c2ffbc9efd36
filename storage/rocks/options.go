//go:build cgo

package rocks

import (
	"fmt"
	"slices"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/internal/tuning"
	"github.com/faisca/fila/storage"
)

// blockCacheMin is the smallest block cache, in bytes, that holds the index and filter blocks of a
// large store without constant eviction.
const blockCacheMin = 8 << 20

// OpenFiles returns how many table files a store of mode m keeps open, or 0 for an unknown mode,
// which Open rejects.
func OpenFiles(m Mode) int {
	p, err := profileOf(Options{Mode: m})
	if err != nil {
		return 0
	}
	return p.openFiles
}

// profile holds the RocksDB settings of a mode. The values were chosen with the benchmarks of this
// package and with fila bench.
//
// A compaction of level 0 also rewrites the level below, because the fairness keys of a queue are
// adjacent and each of them has grown. Level 0 therefore collects merge * memtable * level0 bytes
// before it is compacted, and the level below is large: a backlog of some GiB is rewritten a few
// times instead of twenty. A larger merge would reduce rewriting further, but costs memory, and a
// read has to sort all memtables that are not flushed.
type profile struct {
	skipList      bool   // RocksDB's own memtable in every family
	memtable      uint64 // bytes; small enough for the processor's cache
	memtables     int    // per family; a burst may fill them before writes are delayed
	merge         int    // memtables merged by a flush: a message acked before it never reaches a table
	spares        int    // files that are ready to become logs (spares.cc)
	large         uint64 // bytes of large values in memtables beside what these count (large.h)
	logs          uint64 // bytes of log after which idle families are flushed
	level0        int    // files that trigger a compaction, which rewrites everything they overlap
	tableFile     uint64 // bytes
	levelBase     uint64 // target bytes of the first level below level 0
	compress0     bool   // compress level 0, too
	bottom        grocksdb.CompressionType
	jobs          int
	openFiles     int
	cache         uint64 // bytes of block cache
	blockSize     int
	deletesWindow uint // a table with deletesMost deletes among
	deletesMost   uint // deletesWindow consecutive entries is compacted
	reserve       int64
	noSpace       bool // the state full: flush only on request
	replica       bool
}

// profileOf returns the settings of a mode with the overrides of o, or an error that names the
// invalid option.
func profileOf(o Options) (profile, error) {
	p := profile{
		memtable: spareBytes, memtables: 32, merge: 8, logs: 128 << 20,
		level0: 16, tableFile: 64 << 20, levelBase: 1 << 30, bottom: grocksdb.LZ4Compression,
		jobs: 2, openFiles: 1000, cache: 64 << 20, blockSize: 8 << 10,
		deletesWindow: 1024, deletesMost: 512, reserve: o.ReserveBytes,
		replica: o.Replica,
	}
	switch o.Mode {
	case Balanced, "":
	case LowSpace:
		p.memtables, p.merge, p.logs, p.cache = 6, 2, 24<<20, 32<<20
		p.level0, p.compress0, p.tableFile, p.levelBase = 2, true, 8<<20, 32<<20
		p.bottom, p.openFiles = grocksdb.ZSTDCompression, 256
	case HighThroughput:
		p.memtables, p.merge, p.logs, p.cache = 64, 16, 512<<20, 256<<20
		p.jobs, p.openFiles = 4, 4000
	default:
		return profile{}, fmt.Errorf("mode %q: want %s, %s or %s", o.Mode, LowSpace, Balanced, HighThroughput)
	}
	switch o.Memtable {
	case DefaultMemtable, "":
		p.skipList = !tuning.Enabled
	case Lanes:
	case SkipList:
		p.skipList = true
	default:
		return profile{}, fmt.Errorf("memtable %q: want %s or %s", o.Memtable, Lanes, SkipList)
	}
	if o.BlockCacheBytes != 0 {
		if o.BlockCacheBytes < blockCacheMin {
			return profile{}, fmt.Errorf("block cache of %d bytes: want at least %d", o.BlockCacheBytes, blockCacheMin)
		}
		p.cache = uint64(o.BlockCacheBytes)
	}
	if o.OpenFiles > 0 {
		p.openFiles = min(p.openFiles, o.OpenFiles)
	}
	p.spares = min(p.merge, sparesMost)
	p.large = 2 * uint64(p.merge) * p.memtable
	return p, nil
}

// withoutSpace returns the profile for a full disk: opening does not flush the logs, and new writes
// stay in memory until there is space.
func (p *profile) withoutSpace() profile {
	full := *p
	full.noSpace, full.spares = true, 0
	full.memtable, full.logs, full.large = 1<<30, 1<<40, 0
	return full
}

// database returns the database-wide options. The caller destroys them.
func (p *profile) database(path string, fresh bool) *grocksdb.Options {
	o := grocksdb.NewDefaultOptions()
	logInto(o, path)
	keepLogsInOrder(o, path)
	o.SetCreateIfMissing(fresh)
	o.SetCreateIfMissingColumnFamilies(true)
	o.SetParanoidChecks(true)
	o.SetWALRecoveryMode(grocksdb.TolerateCorruptedTailRecordsRecovery)
	o.SetMaxTotalWalSize(p.logs)
	if p.noSpace {
		keepLogs(o)
	}
	o.SetAllowConcurrentMemtableWrites(false) // one writer thread; lane memtables require it
	o.SetMaxBackgroundJobs(p.jobs)
	o.SetMaxOpenFiles(p.openFiles)
	// Write back table files incrementally: otherwise a sync of the log waits for the write-back of
	// a whole table.
	o.SetBytesPerSync(1 << 20)
	workInBackground(o)
	countEvents(o)
	o.SetSkipStatsUpdateOnDBOpen(true)
	o.SetMaxManifestFileSize(16 << 20)
	o.SetStatsDumpPeriodSec(0)
	return o
}

// compression returns the algorithm of each level. Records in level 0 are soon compacted or
// deleted, so it is uncompressed unless compress0 is set.
func (p *profile) compression() []grocksdb.CompressionType {
	by := slices.Repeat([]grocksdb.CompressionType{grocksdb.LZ4Compression}, Levels) // RocksDB's own number
	if !p.compress0 {
		by[0] = grocksdb.NoCompression
	}
	return by
}

// family returns the options of one family. The caller destroys them.
func (p *profile) family(f storage.Family, cache *grocksdb.Cache, large *largeValues) *grocksdb.Options {
	o := grocksdb.NewDefaultOptions()
	o.SetWriteBufferSize(p.memtable)
	o.SetMaxWriteBufferNumber(p.memtables)
	o.SetMinWriteBufferNumberToMerge(p.merge)
	o.SetLevel0FileNumCompactionTrigger(p.level0)
	// Level-0 files are small in this configuration, so their number alone does not justify
	// delaying writes.
	o.SetLevel0SlowdownWritesTrigger(p.level0 * 8)
	o.SetLevel0StopWritesTrigger(p.level0 * 16)
	o.SetTargetFileSizeBase(p.tableFile)
	o.SetMaxBytesForLevelBase(p.levelBase)
	o.SetLevelCompactionDynamicLevelBytes(true)
	o.SetCompressionPerLevel(p.compression())
	o.SetBottommostCompression(p.bottom)

	t := grocksdb.NewDefaultBlockBasedTableOptions()
	defer t.Destroy()
	t.SetBlockCache(cache)
	t.SetBlockSize(p.blockSize)
	t.SetFormatVersion(5)
	// Index and filter blocks are in the block cache, whose size thereby bounds the memory for any
	// number of messages.
	t.SetCacheIndexAndFilterBlocks(true)
	t.SetCacheIndexAndFilterBlocksWithHighPriority(true)
	t.SetPinL0FilterAndIndexBlocksInCache(true)
	switch f {
	case storage.Messages, storage.Leases, storage.Attempts, storage.Dedup, storage.Results, storage.Ledger, storage.Bodies:
		t.SetFilterPolicy(grocksdb.NewBloomFilterFull(10))
	default:
	}
	o.SetBlockBasedTableFactory(t)

	switch f {
	case storage.Messages, storage.Leases, storage.Attempts, storage.Scheduled, storage.Expiries, storage.Bodies:
		// These families behave like queues: records are deleted soon after they are written, and
		// runs of deletions would slow scans down. RocksDB 7.8 counts plain deletes here but not
		// single deletes; drained.cc counts both. BenchmarkDrainAndRefill measures the effect.
		compactDeletions(o, p.deletesWindow, p.deletesMost)
		compactDrained(o)
	default:
	}
	switch f {
	case storage.Messages, storage.Attempts:
		withKeyPrefix(o)
	default:
	}
	switch {
	case p.skipList:
	case f == storage.Messages:
		withLanes(o, messageTail, large)
	case f == storage.Results:
		withLanes(o, resultTail, large)
	case f == storage.Leases:
		withLanes(o, leaseTail, large)
	case f == storage.Budgets: // a record is written for each batch that moves it, and read at a start
		withLanes(o, 0, large)
	}
	return o
}

package rocks

import (
	"fmt"
	"slices"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// Mode says what the store is to be good at.
type Mode string

// The modes.
const (
	Balanced       Mode = "balanced"        // the default
	LowSpace       Mode = "low_space"       // little memory and disk
	HighThroughput Mode = "high_throughput" // more memory, more disk, longer start
)

// blockCacheMin is the least block cache with which index blocks and filters
// of a large store do not push each other out all the time.
const blockCacheMin = 8 << 20

// Options says where and how to keep a store.
type Options struct {
	Path            string // the directory; it is made if it is missing, its parent is not
	Mode            Mode   // empty: Balanced
	BlockCacheBytes int64  // 0: the mode's own (32, 64 or 256 MiB); else at least 8 MiB
	OpenFiles       int    // tables that are kept open; 0: as many as the mode keeps, which is the most
	ReserveBytes    int64  // space that is kept for freeing space on a full disk; 0: none
}

// OpenFiles is how many tables a store of that mode keeps open, 0 for a mode that there
// is not, which Open refuses.
func OpenFiles(m Mode) int {
	p, err := profileOf(Options{Mode: m})
	if err != nil {
		return 0
	}
	return p.openFiles
}

// profile is what a mode means. The figures were chosen with the benchmarks of
// this package, and with fila bench.
//
// A compaction of level 0 rewrites what is in the level below as well, for the fairness
// keys of a queue lie side by side and each of them has grown. So much waits in level 0
// before it is compacted, merge * memtable * level0 bytes, and that level is large: a
// backlog of some GiB is rewritten a few times instead of twenty. A larger merge would
// do more for it, but takes memory, and whoever reads what is not yet flushed waits for
// so many memtables to be brought in order.
type profile struct {
	memtable      uint64 // bytes; small, so that it stays in the processor's cache
	memtables     int    // per family; a burst may fill them before a flush has to catch up
	merge         int    // memtables per flush: a message acked before the flush is never written to a table
	logs          uint64 // bytes of log after which idle families are flushed
	level0        int    // files that start a compaction: it rewrites all that they overlap, which is most of a level
	tableFile     uint64 // bytes
	levelBase     uint64 // bytes of the first level below 0
	compress0     bool   // level 0, too
	bottom        grocksdb.CompressionType
	jobs          int
	openFiles     int
	cache         uint64 // bytes of block cache
	blockSize     int
	deletesWindow uint // entries within which
	deletesMost   uint // so many deletes make a file due for compaction
	reserve       int64
	noSpace       bool // tables are written only when that is asked for
}

func profileOf(o Options) (profile, error) {
	p := profile{
		memtable: 4 << 20, memtables: 32, merge: 8, logs: 128 << 20,
		level0: 16, tableFile: 64 << 20, levelBase: 1 << 30, bottom: grocksdb.LZ4Compression,
		jobs: 2, openFiles: 1000, cache: 64 << 20, blockSize: 8 << 10,
		deletesWindow: 1024, deletesMost: 512, reserve: o.ReserveBytes,
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
	if o.BlockCacheBytes != 0 {
		if o.BlockCacheBytes < blockCacheMin {
			return profile{}, fmt.Errorf("block cache of %d bytes: want at least %d", o.BlockCacheBytes, blockCacheMin)
		}
		p.cache = uint64(o.BlockCacheBytes)
	}
	if o.OpenFiles > 0 {
		p.openFiles = min(p.openFiles, o.OpenFiles)
	}
	return p, nil
}

// withoutSpace is the profile of a full store: an open leaves logs as they are, and what
// is written stays in memory until there is space.
func (p *profile) withoutSpace() profile {
	full := *p
	full.noSpace = true
	full.memtable, full.logs = 1<<30, 1<<40
	return full
}

// database returns the options of the whole. The caller destroys them.
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
	o.SetAllowConcurrentMemtableWrites(false) // there is one writer, and lanes are for one
	o.SetMaxBackgroundJobs(p.jobs)
	o.SetMaxOpenFiles(p.openFiles)
	// Table files are written back bit by bit: a sync of the log would
	// otherwise wait until the disk has swallowed a whole one.
	o.SetBytesPerSync(1 << 20)
	workInBackground(o)
	o.SetSkipStatsUpdateOnDBOpen(true)
	o.SetMaxManifestFileSize(16 << 20)
	o.SetStatsDumpPeriodSec(0)
	return o
}

// compression is that of each level. What is in level 0 is soon written again, or gone.
func (p *profile) compression() []grocksdb.CompressionType {
	const levels = 7 // RocksDB's own number
	by := slices.Repeat([]grocksdb.CompressionType{grocksdb.LZ4Compression}, levels)
	if !p.compress0 {
		by[0] = grocksdb.NoCompression
	}
	return by
}

// family returns the options of one family. The caller destroys them.
func (p *profile) family(f storage.Family, cache *grocksdb.Cache) (*grocksdb.Options, error) {
	o := grocksdb.NewDefaultOptions()
	o.SetWriteBufferSize(p.memtable)
	o.SetMaxWriteBufferNumber(p.memtables)
	o.SetMinWriteBufferNumberToMerge(p.merge)
	o.SetLevel0FileNumCompactionTrigger(p.level0)
	// Files of level 0 are small here, so many of them are no reason to slow
	// writers down, let alone to stop them.
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
	// Index and filters live in the block cache, so that its size bounds what
	// ten million messages need in memory.
	t.SetCacheIndexAndFilterBlocks(true)
	t.SetCacheIndexAndFilterBlocksWithHighPriority(true)
	t.SetPinL0FilterAndIndexBlocksInCache(true)
	switch f {
	case storage.Messages, storage.Leases, storage.Attempts, storage.Dedup:
		t.SetFilterPolicy(grocksdb.NewBloomFilterFull(10))
	default:
	}
	o.SetBlockBasedTableFactory(t)

	switch f {
	case storage.Messages, storage.Leases, storage.Attempts, storage.Scheduled, storage.Expiries:
		// These are queues: what is written is deleted soon. Deletes that
		// lie together would make a scan across them crawl. RocksDB 7.8 counts
		// plain deletes here, but not single deletes; what drained.cc counts is
		// of both. BenchmarkDrainAndRefill watches it.
		compactDeletions(o, p.deletesWindow, p.deletesMost)
		compactDrained(o)
	default:
	}
	switch f {
	case storage.Messages, storage.Attempts:
		withHeads(o)
	default:
	}
	switch f {
	case storage.Messages:
		withLanes(o, messageTail)
	case storage.Leases:
		withLanes(o, leaseTail)
	default:
	}
	return o, nil
}

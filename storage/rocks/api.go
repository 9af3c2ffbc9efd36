package rocks

import (
	"errors"
	"time"

	"github.com/faisca/fila/storage"
)

// This file declares what does not depend on RocksDB, and is the same in a build without cgo
// (nocgo.go).

// ErrNoCgo means that this binary contains no RocksDB. Open and Inspect return it in a build without
// cgo.
var ErrNoCgo = errors.New("RocksDB is not in this binary, which was built without cgo: build it with `make build`")

// Mode selects the trade-off between memory, disk space and write throughput.
type Mode string

// The modes.
const (
	Balanced       Mode = "balanced"        // the default
	LowSpace       Mode = "low_space"       // least memory and disk
	HighThroughput Mode = "high_throughput" // more memory and disk, slower start
)

// Memtable selects the memtables of the families of messages and leases.
type Memtable string

// The memtables. The format on disk is the same with both.
const (
	DefaultMemtable Memtable = "default"  // Lanes, or SkipList in a plain build (see package tuning)
	Lanes           Memtable = "lanes"    // see lanes.go
	SkipList        Memtable = "skiplist" // RocksDB's own
)

// Options configures Open.
type Options struct {
	Path            string   // the directory; created if missing, its parent must exist
	Mode            Mode     // empty: Balanced
	Memtable        Memtable // empty: DefaultMemtable
	BlockCacheBytes int64    // 0: the default of the mode (32, 64 or 256 MiB); otherwise at least 8 MiB
	OpenFiles       int      // upper bound of open table files; 0, or above it: the bound of the mode
	ReserveBytes    int64    // size of the reserve file for a full disk, see full.go; 0: no reserve
	// Replica: what a power loss takes from the newest log can be had elsewhere. That log is cut
	// off at its first damage, instead of refusing the store for damage that is not at the end.
	Replica bool
}

// Levels is the number of levels of a family.
const Levels = 7

// Stats are figures that RocksDB keeps. They are read one after another while the store works, so
// they do not describe a single moment. Bytes and counts are sums over the families unless stated
// otherwise.
type Stats struct {
	Keys                uint64 // estimated, pending deletions subtracted
	TableBytes          uint64 // bytes on disk without the log
	MemtableBytes       uint64 // bytes in memory that are not flushed
	CacheBytes          uint64 // used bytes of the block cache
	CacheMaxBytes       uint64
	TableReaderBytes    uint64         // bytes of open tables outside of the block cache
	PendingCompactBytes uint64         // estimated bytes that compaction has yet to rewrite
	Level0Files         uint64         // the maximum over the families
	Compactions         uint64         // running now
	Flushes             uint64         // running now
	BackgroundErrors    uint64         // since the store was opened
	WriteStopped        bool           // commits wait for flushes or compactions
	WriteDelayedRate    uint64         // bytes per second to which commits are throttled; 0: not throttled
	LogBytes            uint64         // bytes of the logs
	LevelFiles          [Levels]uint64 // table files of all families
	CacheHits           uint64         // blocks found in the block cache since the database was opened
	CacheMisses         uint64         // blocks read from disk since then
	Stalled             time.Duration  // for which RocksDB has held up commits since then
}

// Table describes a table file.
type Table struct {
	File        string
	Family      string
	Bytes       int64
	Entries     uint64
	First, Last []byte // keys; nil where they are not known
}

// Damage is a file, or a part of one, with wrong contents.
type Damage struct {
	File        string
	Family      string // of a table, where it is known
	First, Last []byte // keys of a table, where they are known
	Entries     uint64 // of a table, where it is known
	What        string
	missing     bool // the file does not exist
}

// Rebuilt is the report of a rebuild.
type Rebuilt struct {
	Records int64    // copied records
	Notes   []string // one line for each loss, or possible loss
	// MayReturn bounds how many of the copied messages had been deleted.
	MayReturn int64
	// Whole holds true for the families without losses.
	Whole map[storage.Family]bool
}

package rocks

// #include <stddef.h>
// void fila_lanes(void* options, size_t tail, void* large);
// void* fila_large_new(size_t most);
// size_t fila_large_uncounted(void* large);
// void fila_large_free(void* large);
// void fila_heads(void* options);
import "C"

import (
	"bytes"
	"unsafe"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// Lengths of the key suffixes that order records within a lane.
const (
	messageTail = len(storage.ID{})
	leaseTail   = messageTail + 8 // the delivery number
	resultTail  = messageTail - 6 // without the millisecond of the enqueue, with which an id begins
)

// withLanes gives a family lane memtables, which defer sorting until a flush or a read.
//
// RocksDB's skip list spends most of a commit on finding the position of a record, although nine
// tenths of the records are deleted before the memtable is flushed, without having been read. Lane
// memtables find positions at the flush or at the first read, and without a search where the
// records of a fairness key arrive in the order of their ids.
//
// Results are not deleted soon, but a search for each costs the commit more than the sort costs a
// flush. They arrive in the order of the acks, so a read merges what has come to its lane since the
// last one: a lane is those of messages that were enqueued in one millisecond, which is little to
// merge. Of a whole generation it would take longer the more there are (BenchmarkCommitResults).
//
// tail is the length in bytes of the key suffix that orders records within a lane. The memtables
// count large values in part, up to the bound of large.
func withLanes(o *grocksdb.Options, tail int, large *largeValues) {
	C.fila_lanes(native(o), C.size_t(tail), large.bound)
}

// largeValues bounds what the lane memtables of a store hold of large values and do not count
// (large.h). Nil: there are none.
type largeValues struct{ bound unsafe.Pointer }

func newLargeValues(most uint64) *largeValues {
	return &largeValues{C.fila_large_new(C.size_t(most))}
}

// uncounted returns how many bytes the memtables hold beside those that RocksDB counts.
func (l *largeValues) uncounted() uint64 {
	if l == nil {
		return 0
	}
	return uint64(C.fila_large_uncounted(l.bound))
}

// free ends the use of the bound by options. Memtables may outlive it.
func (l *largeValues) free() {
	if l != nil {
		C.fila_large_free(l.bound)
	}
}

// withKeyPrefix sets the fairness key as the prefix of a family's records. Table filters then
// answer whether a table has records of a fairness key, and iterators within one read only its
// lane.
func withKeyPrefix(o *grocksdb.Options) { C.fila_heads(native(o)) }

// withinKeyPrefix reports whether all keys in [from, to) belong to one fairness key, so that an
// iterator may use the prefix.
func withinKeyPrefix(f storage.Family, from, to []byte) bool {
	if f != storage.Messages && f != storage.Attempts {
		return false
	}
	n := storage.KeyPrefixLen(from)
	return n > 0 && to != nil && bytes.Compare(to, storage.After(from[:n])) <= 0
}

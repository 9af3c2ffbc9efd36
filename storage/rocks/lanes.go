package rocks

// #include <stddef.h>
// void fila_lanes(void* options, size_t tail);
// void fila_heads(void* options);
import "C"

import (
	"bytes"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// Lengths of the key suffixes that order records within a lane.
const (
	messageTail = len(storage.ID{})
	leaseTail   = messageTail + 8 // the delivery number
)

// withLanes gives a family lane memtables, which defer sorting until a flush or a read.
//
// RocksDB's skip list spends most of a commit on finding the position of a record, although nine
// tenths of the records are deleted before the memtable is flushed, without having been read. Lane
// memtables find positions at the flush or at the first read, and without a search where the
// records of a fairness key arrive in the order of their ids. tail is the length in bytes of the
// key suffix that orders records within a lane.
func withLanes(o *grocksdb.Options, tail int) { C.fila_lanes(native(o), C.size_t(tail)) }

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

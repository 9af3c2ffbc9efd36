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

// The ends of keys: records that have the rest in common come in the order of these.
const (
	messageTail = len(storage.ID{})
	leaseTail   = messageTail + 8 // the delivery number
)

// withLanes gives a family memtables that do not sort what nobody reads.
//
// RocksDB's own is a skip list, and most of a commit was spent in finding where in it a
// record belongs: nine tenths of which are deleted before the memtable is flushed, and
// read by nobody. So their places are looked for when it is flushed or read first, and
// found without a search where records of a fairness key come in the order of their ids.
func withLanes(o *grocksdb.Options, tail int) { C.fila_lanes(native(o), C.size_t(tail)) }

// withHeads tells a family of records of fairness keys what those of one key have in
// common: tables then know by their filters that they have nothing of a key, and
// iterators within a key look at its lane only.
func withHeads(o *grocksdb.Options) { C.fila_heads(native(o)) }

// inHead says that all keys from one to another (excluded) belong to one fairness key.
func inHead(f storage.Family, from, to []byte) bool {
	if f != storage.Messages && f != storage.Attempts {
		return false
	}
	n := storage.KeyPrefixLen(from)
	return n > 0 && to != nil && bytes.Compare(to, storage.After(from[:n])) <= 0
}

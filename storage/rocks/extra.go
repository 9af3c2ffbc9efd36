package rocks

// #cgo CXXFLAGS: -std=c++20
// #include <stddef.h>
// #include <stdint.h>
// #include <stdlib.h>
// void fila_cache_in_pieces(void* cache, size_t bytes, int bits);
// void fila_background_work(void* options);
// void fila_count_events(void* options);
// void fila_events(void* db, uint64_t* hits, uint64_t* misses, uint64_t* stalled_micros);
// void fila_compact_deletions(void* options, size_t window, size_t most);
// uint32_t fila_family_id(void* family);
// void fila_end_compactions(void* db);
// uint64_t fila_table_bytes(void* db, void* family, const char* start, size_t start_size, const char* limit, size_t limit_size);
// char* fila_sync_log(void* db);
// char* fila_table_families(void* db);
import "C"

import (
	"errors"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// This file is what Fila needs of RocksDB that its C interface, or the binding to it, has in
// some versions only: so nothing else depends on which binding is built
// with. The headers of RocksDB 10 want C++20.

// native is the pointer that the binding keeps to itself.
func native[T grocksdb.Options | grocksdb.DB | grocksdb.Cache | grocksdb.ColumnFamilyHandle | grocksdb.Iterator](of *T) unsafe.Pointer {
	return reflect.ValueOf(of).Elem().FieldByName("c").UnsafePointer()
}

// newCache makes the block cache in few pieces. RocksDB's own default of 64 makes
// each so small that a filter or an index block of a large table, which is used all
// the time, is pushed out by a handful of data blocks; and the threads that would
// fight for a piece are a handful, too.
func newCache(bytes uint64) *grocksdb.Cache {
	const shardBits = 2
	c := grocksdb.NewLRUCache(bytes)
	C.fila_cache_in_pieces(native(c), C.size_t(bytes), shardBits)
	return c
}

// workInBackground has files deleted by background threads, not by the caller that
// closes an iterator, and keeps no history of statistics.
func workInBackground(o *grocksdb.Options) { C.fila_background_work(native(o)) }

// countEvents has the database count what events returns.
func countEvents(o *grocksdb.Options) { C.fila_count_events(native(o)) }

// events returns how many blocks were found in the block cache and how many were not, and how
// long RocksDB has held up commits, since the database was opened.
func (d *database) events() (hits, misses uint64, stalled time.Duration) {
	var h, m, s C.uint64_t
	C.fila_events(native(d.db), &h, &m, &s)
	return uint64(h), uint64(m), time.Duration(s) * time.Microsecond
}

// compactDeletions has table files compacted in which so many of the entries of any
// window are deletions.
func compactDeletions(o *grocksdb.Options, window, most uint) {
	C.fila_compact_deletions(native(o), C.size_t(window), C.size_t(most))
}

// familyID is the number that RocksDB gave a family.
func familyID(h *grocksdb.ColumnFamilyHandle) uint32 { return uint32(C.fila_family_id(native(h))) }

// endCompactions ends a compaction of a range that is under way; those that are asked for later do nothing.
func (d *database) endCompactions() { C.fila_end_compactions(native(d.db)) }

// tableBytes is about how many bytes the tables of a family have between two keys; 0 if that is not known.
func (d *database) tableBytes(h *grocksdb.ColumnFamilyHandle, start, limit []byte) uint64 {
	return uint64(C.fila_table_bytes(native(d.db), native(h), (*C.char)(unsafe.Pointer(unsafe.SliceData(start))), C.size_t(len(start)),
		(*C.char)(unsafe.Pointer(unsafe.SliceData(limit))), C.size_t(len(limit))))
}

// syncLog has on disk what was written so far.
func (d *database) syncLog() error {
	msg := C.fila_sync_log(native(d.db))
	if msg == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(msg))
	return errors.New(C.GoString(msg))
}

// tableFamilies is the family of each table file.
func (d *database) tableFamilies() map[string]string {
	lines := C.fila_table_families(native(d.db))
	defer C.free(unsafe.Pointer(lines))
	families := map[string]string{}
	for line := range strings.Lines(C.GoString(lines)) {
		file, family, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		families[strings.TrimPrefix(file, "/")] = family
	}
	return families
}

package rocks

// #include <stdlib.h>
// void fila_rocksdb_log(void* options, const char* dir);
// void fila_logs_in_order(void* options, const char* dir);
// void fila_list_logs(const char* dir);
// void fila_compact_drained(void* options);
// void fila_keep_logs(void* options);
import "C"

import (
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// logInto has RocksDB log its warnings into a file LOG in a directory, and bear it
// when that is not possible. warnings.cc says why RocksDB may not do that by itself.
func logInto(o *grocksdb.Options, dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_rocksdb_log(native(o), path)
}

// keepLogsInOrder has the end of each log file in a directory on disk before a new one
// is written to. sealed.cc says why.
func keepLogsInOrder(o *grocksdb.Options, dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_logs_in_order(native(o), path)
}

// listLogs lists the logs of a store that was just opened, for survey.
func listLogs(dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_list_logs(path)
}

// compactDrained has table files compacted that are deletions for the most part.
func compactDrained(o *grocksdb.Options) { C.fila_compact_drained(native(o)) }

// keepLogs has an open leave the logs as they are, and new ones take no space before it
// is written to.
func keepLogs(o *grocksdb.Options) { C.fila_keep_logs(native(o)) }

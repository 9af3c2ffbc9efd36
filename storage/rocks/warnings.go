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

// logInto writes RocksDB's warnings to the file LOG in dir and ignores write errors, see
// warnings.cc.
func logInto(o *grocksdb.Options, dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_rocksdb_log(native(o), path)
}

// keepLogsInOrder syncs each log before the next one is written to, see sealed.cc.
func keepLogsInOrder(o *grocksdb.Options, dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_logs_in_order(native(o), path)
}

// listLogs updates the list of logs of a newly opened store, for survey.
func listLogs(dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	C.fila_list_logs(path)
}

// compactDrained marks tables that consist mostly of deletions for compaction, see drained.cc.
func compactDrained(o *grocksdb.Options) { C.fila_compact_drained(native(o)) }

// keepLogs makes an open keep the logs instead of flushing them, and disables preallocation.
func keepLogs(o *grocksdb.Options) { C.fila_keep_logs(native(o)) }

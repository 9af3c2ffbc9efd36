package rocks

// #include <stdlib.h>
// void fila_rocksdb_log(void* options, const char* dir);
import "C"

import (
	"reflect"
	"unsafe"

	"github.com/linxGnu/grocksdb"
)

// logInto has RocksDB log its warnings into a file LOG in a directory, and bear it
// when that is not possible. warnings.cc says why RocksDB may not do that by itself.
func logInto(o *grocksdb.Options, dir string) {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	// The binding has no word for this, and keeps its pointer to itself.
	C.fila_rocksdb_log(reflect.ValueOf(o).Elem().FieldByName("c").UnsafePointer(), path)
}

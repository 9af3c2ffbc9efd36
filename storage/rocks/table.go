package rocks

// #include <stdlib.h>
// void* fila_table_open(const char* path, char** err);
// char* fila_table_verify(void* t);
// void fila_table_properties(void* t, unsigned long long* entries, char** family);
// void fila_table_close(void* t);
import "C"

import (
	"errors"
	"unsafe"
)

// table is one open table file, independent of its database.
type table struct {
	c       unsafe.Pointer
	entries uint64
	family  string
}

// openTable opens a table file and reads its properties.
func openTable(path string) (*table, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var msg *C.char
	c := C.fila_table_open(name, &msg)
	if c == nil {
		return nil, tableError(msg)
	}
	var entries C.ulonglong
	var family *C.char
	C.fila_table_properties(c, &entries, &family)
	defer C.free(unsafe.Pointer(family))
	return &table{c: c, entries: uint64(entries), family: C.GoString(family)}, nil
}

// verify reads the whole file and checks the checksum of every block.
func (t *table) verify() error { return tableError(C.fila_table_verify(t.c)) }

func (t *table) close() { C.fila_table_close(t.c) }

// tableError translates and frees an error of table.cc; nil for none.
func tableError(msg *C.char) error {
	if msg == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(msg))
	return rocksError(errors.New(C.GoString(msg)))
}

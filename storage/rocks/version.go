package rocks

// const char* fila_rocksdb_version();
// const char* fila_rocksdb_headers();
import "C"

import (
	"fmt"
	"strings"
)

// Version returns the version of the linked RocksDB, such as "7.8.3".
func Version() string { return C.GoString(C.fila_rocksdb_version()) }

// checkVersion returns an error unless the linked RocksDB has the minor version of the headers that
// this package was compiled with. Between minor versions, the virtual functions and structs change
// that the classes in C++ derive from and share, without any error of the linker or the loader.
func checkVersion(linked, headers string) error {
	if minorOf(linked) == minorOf(headers) {
		return nil
	}
	return fmt.Errorf("the linked RocksDB is %s, but Fila was built with the headers of %s: install RocksDB %s, or build Fila again",
		linked, headers, minorOf(headers))
}

func headersVersion() string { return C.GoString(C.fila_rocksdb_headers()) }

// minorOf returns the first two numbers of a version.
func minorOf(version string) string {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return major + "." + minor
}

package rocks

// const char* fila_rocksdb_version();
import "C"

// Version returns the version of the linked RocksDB, such as "7.8.3". It may differ from that of
// the headers.
func Version() string { return C.GoString(C.fila_rocksdb_version()) }

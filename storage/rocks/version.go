package rocks

// const char* fila_rocksdb_version();
import "C"

// Version is that of the RocksDB that is linked, which need not be the one
// whose headers were compiled against.
func Version() string { return C.GoString(C.fila_rocksdb_version()) }

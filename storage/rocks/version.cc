// The versions of the linked RocksDB and of the headers, which the C interface does not expose.
// RocksDB 6 may not export its own at all; then that of the headers stands for it.
#include <string>

#include <rocksdb/version.h>

extern "C" const char* fila_rocksdb_headers() {
	static const std::string version =
	    std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR) + "." + std::to_string(ROCKSDB_PATCH);
	return version.c_str();
}

extern "C" const char* fila_rocksdb_version() {
#if ROCKSDB_MAJOR > 6
	static const std::string version = rocksdb::GetRocksVersionAsString();
	return version.c_str();
#else
	return fila_rocksdb_headers();
#endif
}

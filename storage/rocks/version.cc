// The version of the linked RocksDB, which its C interface does not expose. RocksDB 6 may not
// export it at all; then the version of the headers stands for it.
#include <string>

#include <rocksdb/version.h>

extern "C" const char* fila_rocksdb_version() {
#if ROCKSDB_MAJOR > 6
	static const std::string version = rocksdb::GetRocksVersionAsString();
#else
	static const std::string version =
	    std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR) + "." + std::to_string(ROCKSDB_PATCH);
#endif
	return version.c_str();
}

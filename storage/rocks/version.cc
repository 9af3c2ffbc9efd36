// RocksDB's C interface cannot say its version, so C++ asks for it. RocksDB 6 may not be
// able to say it at all: then it is that of the headers.
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

// RocksDB's C interface cannot say its version, so C++ asks for it.
#include <string>

#include <rocksdb/version.h>

extern "C" const char* fila_rocksdb_version() {
	static const std::string version = rocksdb::GetRocksVersionAsString();
	return version.c_str();
}

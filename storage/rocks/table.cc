// What RocksDB's C interface cannot do: verify one table file without the database
// around it.
#include <cstdlib>
#include <cstring>
#include <memory>

#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>

namespace {

char* text(const rocksdb::Status& s) { return s.ok() ? nullptr : strdup(s.ToString().c_str()); }

rocksdb::ReadOptions reading() {
	rocksdb::ReadOptions o;
	o.verify_checksums = true;
	o.fill_cache = false;
	return o;
}

struct table {
	rocksdb::SstFileReader reader{rocksdb::Options()};
};

} // namespace

extern "C" {

void* fila_table_open(const char* path, char** err) {
	auto t = std::make_unique<table>();
	*err = text(t->reader.Open(path));
	if (*err) return nullptr;
	return t.release();
}

char* fila_table_verify(void* p) { return text(static_cast<table*>(p)->reader.VerifyChecksum(reading())); }

void fila_table_properties(void* p, unsigned long long* entries, char** family) {
	auto props = static_cast<table*>(p)->reader.GetTableProperties();
	*entries = props->num_entries;
	*family = strdup(props->column_family_name.c_str());
}

void fila_table_close(void* p) { delete static_cast<table*>(p); }
}

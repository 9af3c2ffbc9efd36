// Verification of a single table file without its database, which RocksDB's C interface does not
// offer.
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

// An open table file.
struct table {
	rocksdb::SstFileReader reader{rocksdb::Options()};
};

} // namespace

extern "C" {

// Opens a table file, or returns null and an error that the caller frees.
void* fila_table_open(const char* path, char** err) {
	auto t = std::make_unique<table>();
	*err = text(t->reader.Open(path));
	if (*err) return nullptr;
	return t.release();
}

// Reads every block and returns the first error, or null. The caller frees it.
char* fila_table_verify(void* p) { return text(static_cast<table*>(p)->reader.VerifyChecksum(reading())); }

// Returns the number of entries and the name of the family, which the caller frees.
void fila_table_properties(void* p, unsigned long long* entries, char** family) {
	auto props = static_cast<table*>(p)->reader.GetTableProperties();
	*entries = props->num_entries;
	*family = strdup(props->column_family_name.c_str());
}

void fila_table_close(void* p) { delete static_cast<table*>(p); }
}

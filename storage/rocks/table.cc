// What RocksDB's C interface cannot do: verify one table file, and read one without
// the database around it.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

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
	std::unique_ptr<rocksdb::Iterator> it;
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

// The result is 1 at a key, 0 at the end, and -1 with an error.
static int moved(table* t, char** err) {
	if (t->it->Valid()) return 1;
	*err = text(t->it->status());
	return *err ? -1 : 0;
}

int fila_table_seek(void* p, const char* key, size_t n, char** err) {
	auto t = static_cast<table*>(p);
	// A new one each time: an iterator that met a damaged block does not tell of it
	// reliably when it is sent there again.
	t->it.reset(t->reader.NewIterator(reading()));
	t->it->Seek(rocksdb::Slice(key, n));
	return moved(t, err);
}

int fila_table_next(void* p, char** err) {
	auto t = static_cast<table*>(p);
	t->it->Next();
	return moved(t, err);
}

const char* fila_table_key(void* p, size_t* n) {
	auto s = static_cast<table*>(p)->it->key();
	*n = s.size();
	return s.data();
}

const char* fila_table_value(void* p, size_t* n) {
	auto s = static_cast<table*>(p)->it->value();
	*n = s.size();
	return s.data();
}

void fila_table_close(void* p) { delete static_cast<table*>(p); }
}

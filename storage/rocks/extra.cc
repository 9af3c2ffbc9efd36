// What Fila needs of RocksDB that its C interface does not offer, or not in every version
// that Fila is built with. The pointers are those of the C interface: each of its types
// begins with what it stands for, as in RocksDB's db/c.cc.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/iterator.h>
#include <rocksdb/metadata.h>
#include <rocksdb/options.h>
#include <rocksdb/statistics.h>
#include <rocksdb/utilities/table_properties_collectors.h>

namespace {

rocksdb::DB* database(void* db) { return *static_cast<rocksdb::DB**>(db); }

}  // namespace

// Puts a cache of so many pieces in the place of one.
extern "C" void fila_cache_in_pieces(void* cache, size_t bytes, int bits) {
	*static_cast<std::shared_ptr<rocksdb::Cache>*>(cache) = rocksdb::NewLRUCache(bytes, bits);
}

extern "C" void fila_background_work(void* options) {
	auto o = static_cast<rocksdb::Options*>(options);
	o->avoid_unnecessary_blocking_io = true;
	o->stats_persist_period_sec = 0;
}

// Only tickers: a counter of the processor is added to, no clock is read.
extern "C" void fila_count_events(void* options) {
	auto o = static_cast<rocksdb::Options*>(options);
	o->statistics = rocksdb::CreateDBStatistics();
	o->statistics->set_stats_level(rocksdb::StatsLevel::kExceptHistogramOrTimers);
}

extern "C" void fila_events(void* db, uint64_t* hits, uint64_t* misses, uint64_t* stalled_micros) {
	const auto statistics = database(db)->GetDBOptions().statistics;
	if (statistics == nullptr) return;
	*hits = statistics->getTickerCount(rocksdb::BLOCK_CACHE_HIT);
	*misses = statistics->getTickerCount(rocksdb::BLOCK_CACHE_MISS);
	*stalled_micros = statistics->getTickerCount(rocksdb::STALL_MICROS);
}

extern "C" void fila_compact_deletions(void* options, size_t window, size_t most) {
	static_cast<rocksdb::Options*>(options)->table_properties_collector_factories.push_back(
	    rocksdb::NewCompactOnDeletionCollectorFactory(window, most));
}

extern "C" void fila_end_compactions(void* db) { database(db)->DisableManualCompaction(); }

// The bytes of the tables of a family in a range, 0 if that is not known.
extern "C" uint64_t fila_table_bytes(void* db, void* family, const char* start, size_t start_size, const char* limit,
                                     size_t limit_size) {
	const rocksdb::Range range(rocksdb::Slice(start, start_size), rocksdb::Slice(limit, limit_size));
	uint64_t bytes = 0;
	const auto s = database(db)->GetApproximateSizes(rocksdb::SizeApproximationOptions(),
	                                                 *static_cast<rocksdb::ColumnFamilyHandle**>(family), &range, 1, &bytes);
	return s.ok() ? bytes : 0;
}

// Takes at most so many steps and appends each key, after its length in four bytes, the lowest first.
// Returns 0 if the iterator is at the last key that was appended; 1 if it is beyond it, at a key that
// had no room or at the end.
extern "C" size_t fila_next_keys(void* iterator, char* to, size_t room, size_t most, size_t* used) {
	auto* it = *static_cast<rocksdb::Iterator**>(iterator);
	*used = 0;
	for (; most > 0; most--) {
		it->Next();
		if (!it->Valid()) return 1;
		const rocksdb::Slice key = it->key();
		if (4 + key.size() > room - *used) return 1;
		for (int i = 0; i < 4; i++) to[*used + i] = static_cast<char>(key.size() >> 8 * i);
		memcpy(to + *used + 4, key.data(), key.size());
		*used += 4 + key.size();
	}
	return 0;
}

extern "C" uint32_t fila_family_id(void* family) { return (*static_cast<rocksdb::ColumnFamilyHandle**>(family))->GetID(); }

// Returns what failed, to be freed, or null.
extern "C" char* fila_sync_log(void* db) {
	const rocksdb::Status s = database(db)->FlushWAL(true);
	return s.ok() ? nullptr : strdup(s.ToString().c_str());
}

// Returns a line for each table, to be freed: its file and its family.
extern "C" char* fila_table_families(void* db) {
	std::vector<rocksdb::LiveFileMetaData> tables;
	database(db)->GetLiveFilesMetaData(&tables);
	std::string lines;
	for (const auto& t : tables) lines += t.name + " " + t.column_family_name + "\n";
	return strdup(lines.c_str());
}

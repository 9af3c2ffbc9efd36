// Marks table files for compaction that consist mostly of deletions.
#include <memory>
#include <string>

#include <rocksdb/options.h>
#include <rocksdb/table_properties.h>

namespace {

// A long queue that is worked off leaves a single delete for each of its messages. These disappear
// together with their puts, and the space with them, only when the files meet in a compaction.
// RocksDB's own collector does not count single deletes.
//
// A table qualifies with at least kFew deletions and two deletions per put. Fewer are not worth it:
// a queue of constant length has one deletion per put, and compacting one file of level 0 rewrites
// everything that it overlaps.
constexpr uint64_t kFew = 16384;

class Drained : public rocksdb::TablePropertiesCollector {
 public:
	const char* Name() const override { return "fila.Drained"; }

	rocksdb::Status AddUserKey(const rocksdb::Slice&, const rocksdb::Slice&, rocksdb::EntryType type, rocksdb::SequenceNumber,
	                           uint64_t) override {
		entries_++;
		if (type == rocksdb::kEntrySingleDelete || type == rocksdb::kEntryDelete) deletes_++;
		return rocksdb::Status::OK();
	}

	rocksdb::Status Finish(rocksdb::UserCollectedProperties*) override { return rocksdb::Status::OK(); }
	rocksdb::UserCollectedProperties GetReadableProperties() const override { return {}; }
	bool NeedCompact() const override { return deletes_ >= kFew && deletes_ * 3 >= entries_ * 2; }

 private:
	uint64_t entries_ = 0, deletes_ = 0;
};

class DrainedFactory : public rocksdb::TablePropertiesCollectorFactory {
 public:
	const char* Name() const override { return "fila.Drained"; }
	rocksdb::TablePropertiesCollector* CreateTablePropertiesCollector(Context) override { return new Drained(); }
};

}  // namespace

// The C interface has no such collectors; its options begin with these.
extern "C" void fila_compact_drained(void* options) {
	static_cast<rocksdb::Options*>(options)->table_properties_collector_factories.push_back(std::make_shared<DrainedFactory>());
}

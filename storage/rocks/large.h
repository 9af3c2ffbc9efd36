// Memory of lane memtables for large values.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <rocksdb/memtablerep.h>

namespace rocksdb {

// RocksDB passes memtables an Allocator, of which its public headers say only that it exists. This is
// the class of memory/allocator.h, the same from RocksDB 5 to 10.
class Allocator {
 public:
	virtual ~Allocator() {}
	virtual char* Allocate(size_t bytes) = 0;
	virtual char* AllocateAligned(size_t bytes, size_t huge_page_size = 0, Logger* logger = nullptr) = 0;
	virtual size_t BlockSize() const = 0;
};

}  // namespace rocksdb

// fila_large bounds what all memtables of a store hold and do not count.
struct fila_large {
	explicit fila_large(size_t most) : most(most) {}
	const size_t most;
	std::atomic<size_t> uncounted{0};
};

// LargeRecords is the allocator of one memtable. RocksDB counts what its own allocator has given away,
// and replaces a memtable, and with it the log, when that is full; after some memtables it flushes what
// is left of them. Messages of 256 KiB fill a memtable with 16 of them, and a flush finds many that
// are leased at the moment. So records of kLarge bytes and more lie in blocks of their own, of which a
// memtable counts the kCounted-th part, as long as the bound of the store allows: memtables, logs and
// flushes are then as much larger. For small records that gains nothing: their logs are spares
// (spares.cc), which have a size, and their memtables are to fit into the processor's cache.
//
// Only the writer allocates records; readers may allocate small things, and see the count.
class LargeRecords final : public rocksdb::Allocator {
 public:
	LargeRecords(rocksdb::Allocator* rest, std::shared_ptr<fila_large> all) : rest_(rest), all_(std::move(all)) {}
	~LargeRecords() override { all_->uncounted -= uncounted_; }
	LargeRecords(const LargeRecords&) = delete;
	LargeRecords& operator=(const LargeRecords&) = delete;

	char* Allocate(size_t bytes) override { return bytes < kLarge ? rest_->Allocate(bytes) : Block(bytes); }
	char* AllocateAligned(size_t bytes, size_t huge_page_size, rocksdb::Logger* logger) override {
		return bytes < kLarge ? rest_->AllocateAligned(bytes, huge_page_size, logger) : Block(bytes);
	}
	size_t BlockSize() const override { return rest_->BlockSize(); }

	// Returns the bytes that count for the size of the memtable.
	size_t Counted() const { return counted_.load(std::memory_order_relaxed); }

 private:
	static constexpr size_t kLarge = 16 << 10;
	static constexpr size_t kCounted = 4;

	// Returns a block that is aligned as by operator new, which is more than a skip list needs.
	char* Block(size_t bytes) {
		blocks_.emplace_back(new char[bytes]);
		const size_t less = bytes - bytes / kCounted;
		const bool room = all_->uncounted + less <= all_->most;  // one writer thread adds
		if (room) {
			all_->uncounted += less;
			uncounted_ += less;
		}
		counted_.store(counted_.load(std::memory_order_relaxed) + (room ? bytes - less : bytes), std::memory_order_relaxed);
		return blocks_.back().get();
	}

	rocksdb::Allocator* const rest_;
	const std::shared_ptr<fila_large> all_;
	std::vector<std::unique_ptr<char[]>> blocks_;
	size_t uncounted_ = 0;
	std::atomic<size_t> counted_{0};
};

// Where a record goes into a memtable. See hints.go.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include <rocksdb/slice.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/utilities/object_registry.h>

namespace {

constexpr size_t kIDBytes = 16;     // the end of a message's key
constexpr size_t kFenceBytes = 8;   // what the key of its lease has behind
constexpr size_t kSlots = 1024;     // a power of two; each has two hints of some 220 bytes in a memtable, if it is used
constexpr char kMessages[] = "fila.MessageHints";
constexpr char kLeases[] = "fila.LeaseHints";

// Hints maps what the key of a message, or of its lease, begins with (queue, fairness
// key and rank) to a slot, and the record to one of the slot's two names: that of its
// end if its id is not below all that were seen there, else that of its middle.
//
// A slot is whose it was used for last. Who finds another in it goes without a
// hint, which would be a wrong one: so very many keys cost nothing.
//
// It may be called by several threads. What one of them misses is the quality of
// a hint only.
class Hints : public rocksdb::SliceTransform {
 public:
	Hints(const char* name, size_t tail) : name_(name), tail_(tail) {
		for (size_t i = 0; i < kSlots; i++) {
			slots_[i].end = static_cast<uint16_t>(2 * i);
			slots_[i].middle = static_cast<uint16_t>(2 * i + 1);
		}
	}

	const char* Name() const override { return name_; }

	bool InDomain(const rocksdb::Slice& key) const override {
		if (key.size() <= tail_) {
			return false;
		}
		const uint64_t h = Hash(key);
		Slot& s = SlotOf(h);
		if (s.owner.load(std::memory_order_relaxed) == h) {
			return true;
		}
		s.owner.store(h, std::memory_order_relaxed);
		s.newest.store(0, std::memory_order_relaxed);
		return false;
	}

	rocksdb::Slice Transform(const rocksdb::Slice& key) const override {
		Slot& s = SlotOf(Hash(key));
		uint64_t id = 0;
		for (size_t i = key.size() - tail_; i < key.size() - tail_ + sizeof id; i++) {
			id = id << 8 | static_cast<unsigned char>(key[i]);
		}
		if (id < s.newest.load(std::memory_order_relaxed)) {
			return rocksdb::Slice(reinterpret_cast<const char*>(&s.middle), sizeof s.middle);
		}
		s.newest.store(id, std::memory_order_relaxed);
		return rocksdb::Slice(reinterpret_cast<const char*>(&s.end), sizeof s.end);
	}

 private:
	struct Slot {
		std::atomic<uint64_t> owner{0}, newest{0};
		uint16_t end, middle;  // the names are these numbers
	};
	const char* const name_;
	const size_t tail_;  // bytes of a key that begin with the id
	mutable Slot slots_[kSlots];

	uint64_t Hash(const rocksdb::Slice& key) const {
		uint64_t h = 14695981039346656037u;  // FNV-1a
		for (size_t i = 0; i < key.size() - tail_; i++) {
			h = (h ^ static_cast<unsigned char>(key[i])) * 1099511628211u;
		}
		return h;
	}

	Slot& SlotOf(uint64_t h) const { return slots_[(h ^ h >> 32) & (kSlots - 1)]; }
};

}  // namespace

// Makes hints known to RocksDB under their name, which it returns: for messages, or
// for their leases.
extern "C" const char* fila_hints(int leases) {
	static std::once_flag once;
	std::call_once(once, [] {
		const auto add = [](const char* name, size_t tail) {
			rocksdb::ObjectLibrary::Default()->AddFactory<const rocksdb::SliceTransform>(
				name, [name, tail](const std::string&, std::unique_ptr<const rocksdb::SliceTransform>* made, std::string*) {
					made->reset(new Hints(name, tail));
					return made->get();
				});
		};
		add(kMessages, kIDBytes);
		add(kLeases, kIDBytes + kFenceBytes);
	});
	return leases ? kLeases : kMessages;
}

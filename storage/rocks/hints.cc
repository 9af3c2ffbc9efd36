// Where a message goes into a memtable. See hints.go.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include <rocksdb/slice.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/utilities/object_registry.h>

namespace {

constexpr size_t kIDBytes = 16;  // the end of a message's key
constexpr size_t kSlots = 1024;  // a power of two; each has two hints of some 220 bytes in a memtable, if it is used
constexpr char kName[] = "fila.MessageHints";

// MessageHints maps what a message's key begins with (queue, fairness key and
// rank) to a slot, and the message to one of the slot's two names: that of its
// end if its id is not below all that were seen there, else that of its middle.
//
// A slot is whose it was used for last. Who finds another in it goes without a
// hint, which would be a wrong one: so very many keys cost nothing.
//
// It may be called by several threads. What one of them misses is the quality of
// a hint only.
class MessageHints : public rocksdb::SliceTransform {
 public:
	MessageHints() {
		for (size_t i = 0; i < kSlots; i++) {
			slots_[i].end = static_cast<uint16_t>(2 * i);
			slots_[i].middle = static_cast<uint16_t>(2 * i + 1);
		}
	}

	const char* Name() const override { return kName; }

	bool InDomain(const rocksdb::Slice& key) const override {
		if (key.size() <= kIDBytes) {
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
		for (size_t i = key.size() - kIDBytes; i < key.size() - sizeof id; i++) {
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
	mutable Slot slots_[kSlots];

	static uint64_t Hash(const rocksdb::Slice& key) {
		uint64_t h = 14695981039346656037u;  // FNV-1a
		for (size_t i = 0; i < key.size() - kIDBytes; i++) {
			h = (h ^ static_cast<unsigned char>(key[i])) * 1099511628211u;
		}
		return h;
	}

	Slot& SlotOf(uint64_t h) const { return slots_[(h ^ h >> 32) & (kSlots - 1)]; }
};

}  // namespace

// Makes the class known to RocksDB under its name, which it returns.
extern "C" const char* fila_message_hints() {
	static std::once_flag once;
	std::call_once(once, [] {
		rocksdb::ObjectLibrary::Default()->AddFactory<const rocksdb::SliceTransform>(
			kName, [](const std::string&, std::unique_ptr<const rocksdb::SliceTransform>* made, std::string*) {
				made->reset(new MessageHints());
				return made->get();
			});
	});
	return kName;
}

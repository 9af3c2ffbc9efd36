// Memtables for records that come in the order of their ids. See lanes.go.
#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include <rocksdb/memtablerep.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>

namespace {

using rocksdb::MemTableRep;
using rocksdb::Slice;

constexpr size_t kTagBytes = 8;          // RocksDB's: a type and a sequence number behind each key
constexpr char kPut = 1;                 // the type of a put
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kSlotsFirst = 256;      // a power of two
constexpr size_t kHintedLanes = 1024;    // a hint takes some 220 bytes
constexpr size_t kDrainAtOnce = 256;     // records that are inserted while a writer waits
constexpr size_t kOrderedMost = 64;      // iterators over what was never drained

// Lanes is a memtable that puts off the search for a record's place until somebody asks
// for it.
//
// A record is noted in the lane of what its key begins with, in one of the lane's two
// streams: puts, and everything else. Within a stream records mostly come in order. Most
// are deleted before anybody reads them here, and the memtable is only read to be
// flushed: then the streams are merged and the lanes put one behind the other, which is
// cheap. Both are checked, and sorted where they are not in order: nothing depends on
// what lanes mostly are.
//
// For somebody who reads before that, all that is noted is inserted into a skip list
// first, with a hint for each stream. What such a reader must see is noted by then: the
// sequence number that it reads at was published afterwards.
class Lanes : public MemTableRep {
 public:
	Lanes(const KeyComparator& compare, rocksdb::Allocator* allocator, MemTableRep* list, size_t tail)
		: MemTableRep(allocator), compare_(compare), list_(list), tail_(tail), slots_(kSlotsFirst, kNone) {}

	rocksdb::KeyHandle Allocate(const size_t len, char** buf) override { return list_->Allocate(len, buf); }

	// RocksDB inserts with one thread at a time.
	void Insert(rocksdb::KeyHandle handle) override {
		const char* record = static_cast<const char*>(handle);
		std::lock_guard<std::mutex> held(mu_);
		const uint32_t stream = StreamOf(compare_.decode_key(record));
		const auto at = static_cast<uint32_t>(notes_.size());
		notes_.push_back({record, kNone, stream});
		Stream& s = StreamAt(stream);
		if (s.last == kNone) {
			s.first = at;
		} else {
			notes_[s.last].next = at;
		}
		s.last = at;
		extra_.store(notes_.capacity() * sizeof(Note) + lanes_.capacity() * sizeof(Lane) + slots_.capacity() * sizeof(uint32_t),
		             std::memory_order_relaxed);
		noted_.store(notes_.size(), std::memory_order_release);
	}

	bool Contains(const char* key) const override {
		Drain();
		return list_->Contains(key);
	}

	void Get(const rocksdb::LookupKey& key, void* arg, bool (*found)(void* arg, const char* record)) override {
		Drain();
		list_->Get(key, arg, found);
	}

	uint64_t ApproximateNumEntries(const Slice& from, const Slice& to) override {
		Drain();
		return list_->ApproximateNumEntries(from, to);
	}

	size_t ApproximateMemoryUsage() override { return extra_.load(std::memory_order_relaxed) + list_->ApproximateMemoryUsage(); }

	void MarkReadOnly() override {
		std::lock_guard<std::mutex> held(mu_);
		complete_ = true;
	}

	Iterator* GetIterator(rocksdb::Arena* arena) override {
		{
			std::lock_guard<std::mutex> held(mu_);
			if (complete_ && drained_.load(std::memory_order_relaxed) == 0 && !notes_.empty() && iterators_.size() < kOrderedMost) {
				if (ordered_.empty()) Order();
				// The caller frees what it got without an arena, and nothing with one,
				// which is not RocksDB's to show: so it is the memtable's.
				iterators_.emplace_back();
				return new (&iterators_.back()) Ordered(compare_, ordered_);
			}
		}
		Drain();
		return list_->GetIterator(arena);
	}

 private:
	struct Stream {
		uint32_t first = kNone, last = kNone;  // of notes_
		void* hint = nullptr;                  // of the skip list
	};
	struct Lane {
		uint64_t hash;
		Stream streams[2];
	};
	struct Note {
		const char* record;
		uint32_t next;    // in its stream
		uint32_t stream;  // twice the lane's number, and one for what is no put
	};

	// Ordered iterates over records in order.
	class Ordered : public Iterator {
	 public:
		Ordered(const KeyComparator& compare, const std::vector<const char*>& records) : compare_(compare), records_(records) {}
		static void operator delete(void*) {}  // see GetIterator

		bool Valid() const override { return at_ < records_.size(); }
		const char* key() const override { return records_[at_]; }
		void Next() override {
			constexpr size_t ahead = 6;  // records lie where they came, not where they belong
			if (at_ + ahead < records_.size()) __builtin_prefetch(records_[at_ + ahead]);
			at_++;
		}
		void Prev() override { at_ = at_ == 0 ? records_.size() : at_ - 1; }
		void Seek(const Slice& key, const char* encoded) override {
			const auto below = [this](const char* record, const Slice& target) { return compare_(record, target) < 0; };
			at_ = std::lower_bound(records_.begin(), records_.end(), Target(key, encoded), below) - records_.begin();
		}
		void SeekForPrev(const Slice& key, const char* encoded) override {
			const Slice target = Target(key, encoded);
			Seek(target, nullptr);
			if (!Valid() || compare_(records_[at_], target) != 0) {
				at_ = at_ == 0 ? records_.size() : at_ - 1;
			}
		}
		void SeekToFirst() override { at_ = 0; }
		void SeekToLast() override { at_ = records_.size() - 1; }  // there is one

	 private:
		Slice Target(const Slice& key, const char* encoded) const { return encoded ? compare_.decode_key(encoded) : key; }

		const KeyComparator& compare_;
		const std::vector<const char*>& records_;
		size_t at_ = ~size_t{0};
	};
	struct alignas(Ordered) Place {
		char bytes[sizeof(Ordered)];
	};

	Stream& StreamAt(uint32_t number) const { return lanes_[number >> 1].streams[number & 1]; }

	uint32_t StreamOf(const Slice& key) {
		const size_t end = key.size() - kTagBytes;
		const size_t head = end > tail_ ? end - tail_ : 0;
		uint64_t hash = 14695981039346656037u;  // FNV-1a
		for (size_t i = 0; i < head; i++) {
			hash = (hash ^ static_cast<unsigned char>(key[i])) * 1099511628211u;
		}
		return LaneOf(hash) * 2 + (key[end] == kPut ? 0 : 1);
	}

	// Heads with the same hash share a lane: its streams are out of order then.
	uint32_t LaneOf(uint64_t hash) {
		for (size_t at = Slot(hash);; at = (at + 1) & (slots_.size() - 1)) {
			if (slots_[at] == kNone) {
				slots_[at] = static_cast<uint32_t>(lanes_.size());
				lanes_.push_back({hash, {}});
				if (lanes_.size() * 2 > slots_.size()) GrowSlots();
				return static_cast<uint32_t>(lanes_.size() - 1);
			}
			if (lanes_[slots_[at]].hash == hash) return slots_[at];
		}
	}

	size_t Slot(uint64_t hash) const { return (hash ^ hash >> 32) & (slots_.size() - 1); }

	void GrowSlots() {
		slots_.assign(slots_.size() * 4, kNone);
		for (uint32_t n = 0; n < lanes_.size(); n++) {
			size_t at = Slot(lanes_[n].hash);
			while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
			slots_[at] = n;
		}
	}

	// Inserts what is noted into the skip list.
	void Drain() const {
		const size_t upto = noted_.load(std::memory_order_acquire);
		while (drained_.load(std::memory_order_acquire) < upto) {
			std::lock_guard<std::mutex> held(mu_);
			size_t n = drained_.load(std::memory_order_relaxed);
			for (const size_t end = std::min(upto, n + kDrainAtOnce); n < end; n++) {
				const Note& note = notes_[n];
				void** hint = &StreamAt(note.stream).hint;
				// A hint takes memory, of which a complete memtable must not need more:
				// RocksDB has counted it.
				if (*hint != nullptr || (!complete_ && note.stream / 2 < kHintedLanes)) {
					list_->InsertKeyWithHint(const_cast<char*>(note.record), hint);
				} else {
					list_->InsertKey(const_cast<char*>(note.record));
				}
			}
			drained_.store(std::max(n, drained_.load(std::memory_order_relaxed)), std::memory_order_release);
		}
	}

	// Run is a lane in order.
	struct Run {
		uint64_t begins[2];  // of its first key, what comes behind what all keys begin with
		size_t from, to;
	};

	void Order() {
		const auto below = [this](const char* a, const char* b) { return compare_(a, b) < 0; };
		std::vector<const char*> records, streams[2];
		std::vector<Run> runs;
		records.reserve(notes_.size());
		runs.reserve(lanes_.size());
		for (const Lane& lane : lanes_) {
			for (int i = 0; i < 2; i++) {
				streams[i].clear();
				for (uint32_t at = lane.streams[i].first; at != kNone; at = notes_[at].next) {
					streams[i].push_back(notes_[at].record);
				}
				if (!std::is_sorted(streams[i].begin(), streams[i].end(), below)) {
					std::sort(streams[i].begin(), streams[i].end(), below);
				}
			}
			const size_t from = records.size();
			std::merge(streams[0].begin(), streams[0].end(), streams[1].begin(), streams[1].end(), std::back_inserter(records), below);
			runs.push_back({{0, 0}, from, records.size()});
		}
		NoteBegins(records, runs);
		std::sort(runs.begin(), runs.end(), [&](const Run& a, const Run& b) {
			for (int i = 0; i < 2; i++) {
				if (a.begins[i] != b.begins[i]) return a.begins[i] < b.begins[i];
			}
			return below(records[a.from], records[b.from]);
		});
		ordered_.reserve(notes_.size());
		bool apart = true;  // each run is in order: is the next one behind it?
		for (const Run& run : runs) {
			apart = apart && (ordered_.empty() || below(ordered_.back(), records[run.from]));
			ordered_.insert(ordered_.end(), records.begin() + run.from, records.begin() + run.to);
		}
		// What one key begins with may be the beginning of what another does.
		if (!apart) std::sort(ordered_.begin(), ordered_.end(), below);
	}

	// With very many lanes most comparisons are of these numbers, and not of keys all
	// over the memory.
	void NoteBegins(const std::vector<const char*>& records, std::vector<Run>& runs) const {
		const auto key_of = [&](const Run& run) {
			Slice key = compare_.decode_key(records[run.from]);
			key.remove_suffix(kTagBytes);
			return key;
		};
		const Slice first = key_of(runs[0]);
		size_t common = first.size();
		for (const Run& run : runs) common = std::min(common, first.difference_offset(key_of(run)));
		for (Run& run : runs) {
			const Slice key = key_of(run);
			for (size_t i = 0; i < sizeof run.begins; i++) {
				const size_t at = common + i;
				run.begins[i / 8] = run.begins[i / 8] << 8 | (at < key.size() ? static_cast<unsigned char>(key[at]) : 0);
			}
		}
	}

	const KeyComparator& compare_;
	const std::unique_ptr<MemTableRep> list_;
	const size_t tail_;  // bytes at the end of a key that are not its lane's

	mutable std::mutex mu_;  // guards what follows, and inserting into list_
	std::vector<Note> notes_;
	mutable std::vector<Lane> lanes_;
	std::vector<uint32_t> slots_;  // hash table of lanes_
	bool complete_ = false;        // nothing will be inserted any more
	std::vector<const char*> ordered_;
	std::deque<Place> iterators_;

	std::atomic<size_t> noted_{0};            // of notes_, those that a reader may want
	mutable std::atomic<size_t> drained_{0};  // of them, those that list_ has
	std::atomic<size_t> extra_{0};            // bytes beside the allocator's
};

class LanesFactory : public rocksdb::MemTableRepFactory {
 public:
	explicit LanesFactory(size_t tail) : tail_(tail) {}
	const char* Name() const override { return "fila.Lanes"; }

	using MemTableRepFactory::CreateMemTableRep;
	MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator& compare, rocksdb::Allocator* allocator,
	                               const rocksdb::SliceTransform* transform, rocksdb::Logger* logger) override {
		return new Lanes(compare, allocator, lists_.CreateMemTableRep(compare, allocator, transform, logger), tail_);
	}

 private:
	const size_t tail_;
	rocksdb::SkipListFactory lists_;
};

}  // namespace

// The C interface knows only RocksDB's own memtables; its options begin with these.
extern "C" void fila_lanes(void* options, size_t tail) {
	static_cast<rocksdb::Options*>(options)->memtable_factory = std::make_shared<LanesFactory>(tail);
}

// Memtables for records that arrive in the order of their ids. See lanes.go.
#include <algorithm>
#include <array>
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
#include <rocksdb/slice_transform.h>

#include "large.h"

// A header of RocksDB calls it, and the library may keep it to itself, as Ubuntu's do: what
// follows a length of seven bits a byte, the lowest first.
__attribute__((weak)) rocksdb::Slice rocksdb::GetLengthPrefixedSlice(const char* data) {
	uint32_t size = 0;
	for (int shift = 0;; shift += 7) {
		const auto byte = static_cast<unsigned char>(*data++);
		size |= static_cast<uint32_t>(byte & 127) << shift;
		if (byte < 128) return {data, size};
	}
}

namespace {

using rocksdb::MemTableRep;
using rocksdb::Slice;
using rocksdb::SliceTransform;

constexpr size_t kTagBytes = 8;          // the suffix that RocksDB appends to each key: type and sequence number
constexpr char kPut = 1;                 // RocksDB's type of a put
constexpr uint32_t kNone = ~uint32_t{0};
constexpr size_t kSlotsFirst = 256;      // a power of two
constexpr size_t kDrainAtOnce = 256;     // records inserted into the skip list per lock, which bounds a writer's wait
constexpr size_t kOrderedMost = 64;      // iterators over the merged order of one memtable
constexpr size_t kLentMost = 1 << 16;    // single-lane iterators in the memtable's own memory

// Lanes is a memtable that defers finding the position of a record.
//
// A record is appended to the lane of its key prefix, in one of the lane's two streams: puts, and
// everything else. Within a stream records usually arrive in order. The states of a memtable:
//
//   collecting   Insert appends to a stream. This is all that most memtables do:
//                most records are deleted before they are read.
//   drained      A read across lanes has inserted the records so far into a skip
//                list; it does so again for later records (drained_ < noted_).
//   ordered      After MarkReadOnly the flush merges the streams of each lane and
//                concatenates the lanes (Order), unless the memtable was drained.
//
// Reads within one lane, the common case, sort and merge only the streams of that lane (Read), in
// any state. Each step verifies the order and sorts where it does not hold, so correctness does not
// depend on the order of arrival.
//
// A reader sees every record that it must: a record is appended before the sequence number at which
// it becomes visible is published.
//
// How records are found, for two lanes a and b and the records 0 to 4 in order of arrival:
//
//   slots_  ──hash of the prefix──▶  lanes_[a].streams[puts]   first 0, last 3
//                                             .streams[others] first 4, last 4
//                                    lanes_[b].streams[puts]   first 1, last 2
//   notes_  0 ──next──▶ 3    1 ──next──▶ 2    4
//
// A note is a pointer to the record, which lies in RocksDB's arena or in a block (large.h), and the
// number of the next note of its stream, so appending takes no allocation but the growth of notes_.
// An insert hashes the prefix and probes slots_, and compares no keys.
//
// Threads. One writer inserts; any number of readers and one flush run beside it. mu_ guards all
// containers, and is held for a bounded time: an append, kDrainAtOnce inserts into the skip list, or
// the records of one lane that are new since its last read. Order holds it for all records, but only
// after MarkReadOnly, when there is no writer. What a reader takes from under the lock stays valid
// without it: Records are shared and only grow behind the length that it saw, and ordered_ does not
// change once it is filled.
class Lanes : public MemTableRep {
 public:
	Lanes(const KeyComparator& compare, std::unique_ptr<LargeRecords> large, MemTableRep* list, const SliceTransform* head, size_t tail)
		: MemTableRep(large.get()), compare_(compare), large_(std::move(large)), list_(list), head_(head), tail_(tail), slots_(kSlotsFirst, kNone) {}

	rocksdb::KeyHandle Allocate(const size_t len, char** buf) override { return list_->Allocate(len, buf); }

	// RocksDB inserts from one thread at a time (allow_concurrent_memtable_write is off).
	void Insert(rocksdb::KeyHandle handle) override {
		const char* record = static_cast<const char*>(handle);
		std::lock_guard<std::mutex> held(mu_);
		const uint32_t stream = StreamOf(compare_.decode_key(record));
		const auto at = static_cast<uint32_t>(notes_.size());
		notes_.push_back({record, kNone});
		Stream& s = StreamAt(stream);
		if (s.last == kNone) {
			s.first = at;
		} else {
			notes_[s.last].next = at;
		}
		s.last = at;
		// Memory is counted only here: RocksDB expects that the size of a memtable stops growing
		// once the writer has switched to the next. Memory that readers add is counted with the
		// next record.
		extra_.store(notes_.capacity() * sizeof(Note) + lanes_.capacity() * sizeof(Lane) + slots_.capacity() * sizeof(uint32_t) + read_ +
		                 lent_.size() * sizeof(Lent),
		             std::memory_order_relaxed);
		noted_.store(notes_.size(), std::memory_order_release);
	}

	bool Contains(const char* key) const override {
		Drain();
		return list_->Contains(key);
	}

	void Get(const rocksdb::LookupKey& key, void* args, bool (*callback)(void*, const char*)) override {
		Lookup(*this).Get(key, args, callback);
	}

	uint64_t ApproximateNumEntries(const Slice& from, const Slice& to) override {
		Drain();
		return list_->ApproximateNumEntries(from, to);
	}

	size_t ApproximateMemoryUsage() override { return extra_.load(std::memory_order_relaxed) + large_->Counted() + list_->ApproximateMemoryUsage(); }

	void MarkReadOnly() override {
		std::lock_guard<std::mutex> held(mu_);
		complete_ = true;
	}

	Iterator* GetIterator(rocksdb::Arena* arena) override {
		{
			std::lock_guard<std::mutex> held(mu_);
			if (complete_ && drained_.load(std::memory_order_relaxed) == 0 && !notes_.empty() && iterators_.size() < kOrderedMost) {
				if (ordered_.empty()) Order();
				// The caller deletes an iterator that it got without an arena, and does not free
				// one in an arena, whose type RocksDB does not export. So the memtable owns the
				// iterator.
				iterators_.emplace_back();
				return new (&iterators_.back()) Ordered(compare_, ordered_);
			}
		}
		Drain();
		return list_->GetIterator(arena);
	}

	// The iterator covers the lane of the key it seeks, and nothing before a Seek.
	Iterator* GetDynamicPrefixIterator(rocksdb::Arena* arena) override {
		if (arena == nullptr) return new InLane(*this);
		{
			std::lock_guard<std::mutex> held(mu_);
			if (lent_.size() < kLentMost) {
				lent_.emplace_back();
				return new (&lent_.back()) InLane(*this);
			}
		}
		Drain();  // bounds lent_ where a memtable is read but never replaced
		return list_->GetIterator(arena);
	}

 private:
	// Records is the sorted part of a stream that has been read. The array only grows at its end or
	// is replaced by another one, so a reader may keep it and read up to the length it saw.
	struct Records {
		std::shared_ptr<const char*[]> at;
		size_t n = 0, room = 0;
		uint32_t upto = kNone;  // the last note that is included
	};
	struct Stream {
		uint32_t first = kNone, last = kNone;  // of notes_
	};
	struct Lane {
		uint64_t hash;
		Stream streams[2];
		std::unique_ptr<std::array<Records, 2>> read;
	};
	struct Note {
		const char* record;
		uint32_t next;  // in its stream
	};

	// Ordered iterates over all records of a read-only memtable.
	class Ordered : public Iterator {
	 public:
		Ordered(const KeyComparator& compare, const std::vector<const char*>& records) : compare_(compare), records_(records) {}
		static void operator delete(void*) {}  // see GetIterator

		bool Valid() const override { return at_ < records_.size(); }
		const char* key() const override { return records_[at_]; }
		void Next() override {
			constexpr size_t ahead = 6;  // memory is in order of arrival, not of keys
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
		void SeekToLast() override { at_ = records_.size() - 1; }  // the memtable is not empty

	 private:
		Slice Target(const Slice& key, const char* encoded) const { return encoded ? compare_.decode_key(encoded) : key; }

		const KeyComparator& compare_;
		const std::vector<const char*>& records_;
		size_t at_ = ~size_t{0};
	};
	struct alignas(Ordered) Place {
		char bytes[sizeof(Ordered)];
	};

	// InLane iterates over one lane by merging its two streams.
	class InLane : public Iterator {
	 public:
		explicit InLane(Lanes& of) : of_(of) {}

		bool Valid() const override { return in_ && (in_->Left(0) || in_->Left(1)); }
		const char* key() const override { return in_->Key(in_->Next()); }
		void Next() override { in_->at[in_->Next()]++; }
		void Prev() override { in_->Back(); }
		void Seek(const Slice& key, const char* encoded) override {
			if (!in_) in_ = std::make_unique<State>(of_.compare_);
			if (!of_.Read(key, in_->streams)) {
				in_.reset();
				return;
			}
			const Slice target = encoded ? of_.compare_.decode_key(encoded) : key;
			for (int i = 0; i < 2; i++) {
				const char* const* records = in_->streams[i].at.get();
				const auto below = [this](const char* record, const Slice& k) { return of_.compare_(record, k) < 0; };
				in_->at[i] = std::lower_bound(records, records + in_->streams[i].n, target, below) - records;
			}
		}
		void SeekForPrev(const Slice& key, const char* encoded) override {
			Seek(key, encoded);
			if (in_ && (!Valid() || of_.compare_(this->key(), encoded ? of_.compare_.decode_key(encoded) : key) != 0)) in_->Back();
		}
		void SeekToFirst() override { in_.reset(); }
		void SeekToLast() override { in_.reset(); }

	 private:
		// State is allocated separately because the iterator itself often lies in memory that it
		// does not own.
		struct State {
			explicit State(const KeyComparator& compare) : compare(compare) {}

			bool Left(int i) const { return at[i] < streams[i].n; }
			const char* Key(int i) const { return streams[i].at[at[i]]; }
			int Next() const {
				if (!Left(0) || !Left(1)) return Left(0) ? 0 : 1;
				return compare(Key(0), of(Key(1))) < 0 ? 0 : 1;
			}
			// Back moves to the previous record, or behind the last one if there is none.
			void Back() {
				if (at[0] == 0 && at[1] == 0) {
					at[0] = streams[0].n;
					at[1] = streams[1].n;
					return;
				}
				int i = at[0] > 0 ? 0 : 1;
				if (at[0] > 0 && at[1] > 0) i = compare(streams[0].at[at[0] - 1], of(streams[1].at[at[1] - 1])) < 0 ? 1 : 0;
				at[i]--;
			}
			Slice of(const char* record) const { return compare.decode_key(record); }

			const KeyComparator& compare;
			Records streams[2];
			size_t at[2] = {0, 0};
		};

		Lanes& of_;
		std::unique_ptr<State> in_;  // null: no lane to iterate over
	};
	struct alignas(InLane) Lent {
		char bytes[sizeof(InLane)];
	};

	// Lookup is the memtable of one Get. The Get that it inherits is the only code that can read a
	// LookupKey, which has no public header. It takes an iterator from GetDynamicPrefixIterator and
	// never deletes it; here the iterator is part of the Lookup, and destroyed with it unless a
	// version of RocksDB has.
	class Lookup final : public MemTableRep {
	 public:
		explicit Lookup(Lanes& of) : MemTableRep(nullptr), it_(new (&place_) Borrowed(of, *this)) {}
		~Lookup() override {
			if (it_ != nullptr) it_->~Borrowed();
		}
		Iterator* GetDynamicPrefixIterator(rocksdb::Arena*) override { return it_; }

		// Get calls none of these.
		Iterator* GetIterator(rocksdb::Arena*) override { return it_; }
		void Insert(rocksdb::KeyHandle) override {}
		bool Contains(const char*) const override { return false; }
		size_t ApproximateMemoryUsage() override { return 0; }

	 private:
		class Borrowed final : public InLane {
		 public:
			Borrowed(Lanes& of, Lookup& by) : InLane(of), by_(by) {}
			~Borrowed() override { by_.it_ = nullptr; }
			static void operator delete(void*) {}

		 private:
			Lookup& by_;
		};
		struct alignas(Borrowed) {
			char bytes[sizeof(Borrowed)];
		} place_;
		Borrowed* it_;
	};

	Stream& StreamAt(uint32_t number) const { return lanes_[number >> 1].streams[number & 1]; }

	// StreamOf returns the number of the stream of a key: puts of lane n are 2n, all else 2n + 1. They
	// are apart because each is in order by itself: new messages are put at the end of a key while
	// old ones are deleted at its beginning.
	uint32_t StreamOf(const Slice& key) {
		return LaneOf(PrefixHash(key)) * 2 + (key[key.size() - kTagBytes] == kPut ? 0 : 1);
	}

	// PrefixHash hashes the key prefix that selects the lane.
	uint64_t PrefixHash(const Slice& key) const {
		const Slice user(key.data(), key.size() - kTagBytes);
		size_t head = user.size() > tail_ ? user.size() - tail_ : 0;
		if (head_ != nullptr && head_->InDomain(user)) head = head_->Transform(user).size();
		uint64_t hash = 14695981039346656037u;  // FNV-1a
		for (size_t i = 0; i < head; i++) {
			hash = (hash ^ static_cast<unsigned char>(key[i])) * 1099511628211u;
		}
		return hash;
	}

	// Prefixes with the same hash share a lane; its streams are then out of order, which readers
	// detect and sort.
	uint32_t LaneOf(uint64_t hash) {
		for (size_t at = Slot(hash);; at = (at + 1) & (slots_.size() - 1)) {
			if (slots_[at] == kNone) {
				slots_[at] = static_cast<uint32_t>(lanes_.size());
				lanes_.push_back({hash, {}, nullptr});
				if (lanes_.size() * 2 > slots_.size()) GrowSlots();
				return static_cast<uint32_t>(lanes_.size() - 1);
			}
			if (lanes_[slots_[at]].hash == hash) return slots_[at];
		}
	}

	// Slot is where the probing for a hash begins.
	size_t Slot(uint64_t hash) const { return (hash ^ hash >> 32) & (slots_.size() - 1); }

	// GrowSlots makes the hash table four times as large. At most half of its slots are in use, so
	// probing ends.
	void GrowSlots() {
		slots_.assign(slots_.size() * 4, kNone);
		for (uint32_t n = 0; n < lanes_.size(); n++) {
			size_t at = Slot(lanes_[n].hash);
			while (slots_[at] != kNone) at = (at + 1) & (slots_.size() - 1);
			slots_[at] = n;
		}
	}

	// Read returns the sorted streams of a key's lane, or false if there is no such lane.
	bool Read(const Slice& key, Records streams[2]) {
		const uint64_t hash = PrefixHash(key);
		std::lock_guard<std::mutex> held(mu_);
		size_t at = Slot(hash);
		for (; slots_[at] != kNone && lanes_[slots_[at]].hash != hash; at = (at + 1) & (slots_.size() - 1)) {}
		if (slots_[at] == kNone) return false;
		Lane& lane = lanes_[slots_[at]];
		if (!lane.read) lane.read = std::make_unique<std::array<Records, 2>>();
		for (int i = 0; i < 2; i++) {
			Add(lane.streams[i], (*lane.read)[i]);
			streams[i] = (*lane.read)[i];
		}
		return true;
	}

	// Add extends the sorted part of a stream by the records that arrived since the last read. Records
	// that follow all others, which is the usual case, are appended to the array; others are merged
	// into a new array, since readers may be using the old one. Arrays double, so the work is linear
	// in the records of the lane as long as they arrive in order.
	void Add(const Stream& s, Records& r) {
		fresh_.clear();
		for (uint32_t at = r.upto == kNone ? s.first : notes_[r.upto].next; at != kNone; at = notes_[at].next) {
			fresh_.push_back(notes_[at].record);
			r.upto = at;
		}
		if (fresh_.empty()) return;
		const auto below = [this](const char* a, const char* b) { return compare_(a, b) < 0; };
		const bool sorted = std::is_sorted(fresh_.begin(), fresh_.end(), below);
		const bool behind = r.n == 0 || below(r.at[r.n - 1], *std::min_element(fresh_.begin(), fresh_.end(), below));
		if (!sorted) std::sort(fresh_.begin(), fresh_.end(), below);
		const size_t n = r.n + fresh_.size();
		if (!behind || n > r.room) {
			const size_t room = n * 2;
			std::shared_ptr<const char*[]> wider(new const char*[room]);
			if (behind) {
				std::copy(r.at.get(), r.at.get() + r.n, wider.get());
			} else {
				std::merge(r.at.get(), r.at.get() + r.n, fresh_.begin(), fresh_.end(), wider.get(), below);
			}
			read_ += (room - r.room) * sizeof(char*);
			r.at = std::move(wider);
			r.room = room;
		}
		if (behind) std::copy(fresh_.begin(), fresh_.end(), r.at.get() + r.n);
		r.n = n;
	}

	// Inserts the records that arrived so far into the skip list.
	void Drain() const {
		const size_t upto = noted_.load(std::memory_order_acquire);
		while (drained_.load(std::memory_order_acquire) < upto) {
			std::lock_guard<std::mutex> held(mu_);
			size_t n = drained_.load(std::memory_order_relaxed);
			for (const size_t end = std::min(upto, n + kDrainAtOnce); n < end; n++) {
				list_->InsertKey(const_cast<char*>(notes_[n].record));
			}
			drained_.store(std::max(n, drained_.load(std::memory_order_relaxed)), std::memory_order_release);
		}
	}

	// Run is the sorted records of a lane within the array of Order.
	struct Run {
		uint64_t begins[2];  // 16 bytes of the first key, after the prefix common to all runs
		size_t from, to;
	};

	// Order builds ordered_: it merges the streams of each lane and sorts the lanes by their first
	// keys.
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
		bool apart = true;  // whether the runs do not overlap
		for (const Run& run : runs) {
			apart = apart && (ordered_.empty() || below(ordered_.back(), records[run.from]));
			ordered_.insert(ordered_.end(), records.begin() + run.from, records.begin() + run.to);
		}
		// Runs overlap where one prefix begins with another.
		if (!apart) std::sort(ordered_.begin(), ordered_.end(), below);
	}

	// NoteBegins fills Run::begins. With many lanes most comparisons then use these integers
	// instead of keys that are scattered in memory.
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
	const std::unique_ptr<LargeRecords> large_;
	const std::unique_ptr<MemTableRep> list_;
	const SliceTransform* const head_;  // selects the lane prefix of a key; null, or out of domain:
	const size_t tail_;                 // the key without this many bytes at its end

	mutable std::mutex mu_;  // guards the fields below and inserts into list_
	std::vector<Note> notes_;
	mutable std::vector<Lane> lanes_;
	std::vector<uint32_t> slots_;  // hash table of lanes_
	bool complete_ = false;        // read-only: no more inserts
	std::vector<const char*> ordered_;
	std::deque<Place> iterators_;
	std::deque<Lent> lent_;
	std::vector<const char*> fresh_;  // of Add
	size_t read_ = 0;                 // bytes of the sorted parts of streams

	std::atomic<size_t> noted_{0};            // length of notes_ that is visible to readers
	mutable std::atomic<size_t> drained_{0};  // of these, how many are in list_
	std::atomic<size_t> extra_{0};            // bytes outside of RocksDB's allocator
};

// LanesFactory creates the memtables of one family.
class LanesFactory : public rocksdb::MemTableRepFactory {
 public:
	LanesFactory(size_t tail, std::shared_ptr<fila_large> large) : tail_(tail), large_(std::move(large)) {}
	const char* Name() const override { return "fila.Lanes"; }

	using MemTableRepFactory::CreateMemTableRep;
	MemTableRep* CreateMemTableRep(const MemTableRep::KeyComparator& compare, rocksdb::Allocator* allocator,
	                               const rocksdb::SliceTransform* transform, rocksdb::Logger* logger) override {
		auto large = std::make_unique<LargeRecords>(allocator, large_);
		MemTableRep* list = lists_.CreateMemTableRep(compare, large.get(), transform, logger);
		return new Lanes(compare, std::move(large), list, transform, tail_);
	}

 private:
	const size_t tail_;
	const std::shared_ptr<fila_large> large_;
	rocksdb::SkipListFactory lists_;
};

// FairnessKeyPrefix is the prefix that the records of a fairness key share: the number of the
// queue, the length of the key and the key. See storage/keys.go.
class FairnessKeyPrefix : public SliceTransform {
 public:
	const char* Name() const override { return "fila.FairnessKey"; }
	Slice Transform(const Slice& key) const override { return {key.data(), Size(key)}; }
	bool InDomain(const Slice& key) const override { return Size(key) > 0; }
	bool SameResultWhenAppended(const Slice& head) const override { return InDomain(head); }

 private:
	// Size returns the length of the prefix in bytes, or 0 for a key without one.
	static size_t Size(const Slice& key) {
		constexpr size_t before = 6;
		if (key.size() < before) return 0;
		const size_t n = before + (static_cast<unsigned char>(key[4]) << 8 | static_cast<unsigned char>(key[5]));
		return n <= key.size() ? n : 0;
	}
};

}  // namespace

// The C interface offers only RocksDB's own memtables. rocksdb_options_t begins with an Options, so
// the pointer converts.
extern "C" void fila_lanes(void* options, size_t tail, void* large) {
	static_cast<rocksdb::Options*>(options)->memtable_factory =
	    std::make_shared<LanesFactory>(tail, *static_cast<std::shared_ptr<fila_large>*>(large));
}

// The memtables hold the bound as well, until the last reader has left them.
extern "C" void* fila_large_new(size_t most) { return new std::shared_ptr<fila_large>(std::make_shared<fila_large>(most)); }
extern "C" size_t fila_large_uncounted(void* large) { return (*static_cast<std::shared_ptr<fila_large>*>(large))->uncounted; }
extern "C" void fila_large_free(void* large) { delete static_cast<std::shared_ptr<fila_large>*>(large); }

extern "C" void fila_heads(void* options) { static_cast<rocksdb::Options*>(options)->prefix_extractor = std::make_shared<FairnessKeyPrefix>(); }

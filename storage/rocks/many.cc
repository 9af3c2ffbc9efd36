// See many.go.
#include <array>
#include <cstring>

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/version.h>

// Reads n keys, each after its length in four bytes, the lowest first. Appends the values in their order,
// up to the first one that is missing, cannot be read or has no room, and returns how many these are;
// sizes takes the size of each.
extern "C" size_t fila_get_many(void* db, void* family, const char* keys, size_t n, char* to, size_t room, uint32_t* sizes) {
#if ROCKSDB_MAJOR > 6  // older ones have no bound for the memory
	constexpr size_t most = 16;
	std::array<rocksdb::Slice, most> slices;
	std::array<rocksdb::PinnableSlice, most> values;
	std::array<rocksdb::Status, most> statuses;
	if (n > most) n = most;
	for (size_t i = 0; i < n; i++) {
		size_t size = 0;
		for (int b = 0; b < 4; b++) size |= static_cast<size_t>(static_cast<unsigned char>(*keys++)) << 8 * b;
		slices[i] = {keys, size};
		keys += size;
	}
	rocksdb::ReadOptions options;
	options.value_size_soft_limit = room;
	(*static_cast<rocksdb::DB**>(db))->MultiGet(options, *static_cast<rocksdb::ColumnFamilyHandle**>(family), n, slices.data(), values.data(), statuses.data());
	for (size_t i = 0; i < n; i++) {
		const size_t size = values[i].size();
		if (!statuses[i].ok() || size > room) return i;
		memcpy(to, values[i].data(), size);
		sizes[i] = static_cast<uint32_t>(size);
		to += size;
		room -= size;
	}
	return n;
#else
	return 0;
#endif
}

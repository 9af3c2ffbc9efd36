//go:build !plain

// CRC-32C by the instruction that processors have for it.
//
// Debian and Ubuntu build RocksDB for processors without SSE 4.2, so that its library has the
// checksum in software only: 1.3 GB/s, for each byte of the log and of tables. The library finds
// the function below in the program before its own, because it exports the symbol. In a static
// program the linker redirects RocksDB's calls (--wrap, see deploy/release/static.sh). A library that
// hides the symbol keeps its own function.
//
// RocksDB for arm64 uses that processor's instruction by itself.
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

#include <array>
#include <cstring>

#include <nmmintrin.h>

namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bits reversed

constexpr auto kTable = [] {
	std::array<uint32_t, 256> table{};
	for (uint32_t i = 0; i < table.size(); i++) {
		uint32_t c = i;
		for (int bit = 0; bit < 8; bit++) c = (c & 1) != 0 ? c >> 1 ^ kPolynomial : c >> 1;
		table[i] = c;
	}
	return table;
}();

// Both continue a checksum whose bits are inverted.

uint32_t BySoftware(uint32_t crc, const char* data, size_t size) {
	for (; size > 0; size--) crc = kTable[(crc ^ static_cast<unsigned char>(*data++)) & 255] ^ crc >> 8;
	return crc;
}

__attribute__((target("sse4.2"))) uint32_t ByInstruction(uint32_t crc, const char* data, size_t size) {
	uint64_t words = crc;
	for (; size >= 8; size -= 8, data += 8) {
		uint64_t word;
		memcpy(&word, data, 8);
		words = _mm_crc32_u64(words, word);
	}
	crc = static_cast<uint32_t>(words);
	for (; size > 0; size--) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(*data++));
	return crc;
}

// A function so that a checksum before this file's initialization is right as well.
bool HasInstruction() {
	static const bool has = __builtin_cpu_supports("sse4.2");
	return has;
}

}  // namespace

extern "C" {

// Returns the CRC-32C of some bytes and of data after them. crc is that of the bytes.
uint32_t fila_crc32c(uint32_t crc, const char* data, size_t size) {
	return ~(HasInstruction() ? ByInstruction(~crc, data, size) : BySoftware(~crc, data, size));
}

// The same without the instruction.
uint32_t fila_crc32c_by_software(uint32_t crc, const char* data, size_t size) { return ~BySoftware(~crc, data, size); }

// RocksDB's name in a static program.
__attribute__((alias("fila_crc32c"))) uint32_t fila_crc32c_wrapped(uint32_t, const char*, size_t)
	asm("__wrap__ZN7rocksdb6crc32c6ExtendEjPKcm");

}  // extern "C"

// RocksDB's name in any other. The definition of a static library comes before this one.
namespace rocksdb::crc32c {
__attribute__((weak)) uint32_t Extend(uint32_t crc, const char* data, size_t size) { return fila_crc32c(crc, data, size); }
}  // namespace rocksdb::crc32c

#endif

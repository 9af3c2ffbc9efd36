//go:build !plain && amd64

package rocks

// #include <stddef.h>
// #include <stdint.h>
// uint32_t fila_crc32c(uint32_t crc, const char* data, size_t size);
// uint32_t fila_crc32c_by_software(uint32_t crc, const char* data, size_t size);
import "C"

import "unsafe"

// checksumName is the symbol of the function that checksum.cc puts in the place of RocksDB's.
const checksumName = "_ZN7rocksdb6crc32c6ExtendEjPKcm"

// checksum returns the CRC-32C of some bytes and of data after them; crc is that of the bytes.
func checksum(crc uint32, data []byte) uint32 {
	return uint32(C.fila_crc32c(C.uint32_t(crc), (*C.char)(unsafe.Pointer(unsafe.SliceData(data))), C.size_t(len(data))))
}

// softChecksum is checksum on a processor without an instruction for it.
func softChecksum(crc uint32, data []byte) uint32 {
	return uint32(C.fila_crc32c_by_software(C.uint32_t(crc), (*C.char)(unsafe.Pointer(unsafe.SliceData(data))), C.size_t(len(data))))
}

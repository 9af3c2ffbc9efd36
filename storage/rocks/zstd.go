package rocks

// #cgo LDFLAGS: -lzstd
// #include <stddef.h>
// size_t ZSTD_decompress(void* to, size_t room, const void* from, size_t n);
// unsigned ZSTD_isError(size_t code);
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/faisca/fila/storage"
)

// unzstd decompresses a Zstandard block into out, which must have exactly the decompressed size. It
// returns ErrCorrupt otherwise.
func unzstd(out, compressed []byte) error {
	if len(out) == 0 || len(compressed) == 0 {
		return fmt.Errorf("%w: an empty block", storage.ErrCorrupt)
	}
	n := C.ZSTD_decompress(unsafe.Pointer(&out[0]), C.size_t(len(out)), unsafe.Pointer(&compressed[0]), C.size_t(len(compressed)))
	if C.ZSTD_isError(n) != 0 || int(n) != len(out) {
		return fmt.Errorf("%w: a block that cannot be decompressed", storage.ErrCorrupt)
	}
	return nil
}

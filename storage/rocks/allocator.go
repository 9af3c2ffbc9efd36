//go:build !plain

package rocks

// #include <stddef.h>
// int fila_allocator_arenas();
// size_t fila_allocator_used();
import "C"

// arenas returns the number of malloc arenas. allocator.cc sets it to 1 when the process starts.
func arenas() int { return int(C.fila_allocator_arenas()) }

// used returns the bytes that C and C++ have allocated and not freed, or 0 where the C library does
// not count them.
func used() int { return int(C.fila_allocator_used()) }

//go:build !plain

package rocks

// int fila_allocator_arenas();
import "C"

// arenas returns the number of malloc arenas. allocator.cc sets it to 1 when the process starts.
func arenas() int { return int(C.fila_allocator_arenas()) }

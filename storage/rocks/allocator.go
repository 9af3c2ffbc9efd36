package rocks

// int fila_allocator_arenas();
import "C"

// arenas is how many pools the C library keeps memory in: allocator.cc makes it one, when
// the process begins.
func arenas() int { return int(C.fila_allocator_arenas()) }

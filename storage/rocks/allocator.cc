// How the C library keeps what RocksDB allocates.
//
// glibc gives each thread an arena of its own, eight for each processor, and what was
// freed in one is not used by another. RocksDB allocates in one thread and frees in
// another all the time: a block is read by whoever asks first and freed by whoever
// evicts it, a memtable is filled by the writer and freed by a flush. So with several
// arenas memory grows for hours while what is in use does not.
//
// And when a large block is freed, glibc takes the next one of that size from an arena
// instead of the system, so that a value of 16 MiB is seldom given back. A fixed
// threshold keeps large blocks apart: they come from the system and go back to it.
//
// Who sets MALLOC_ARENA_MAX has decided otherwise.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <malloc.h>

#ifdef __GLIBC__

// Before the process has a second thread: an arena that is there stays.
__attribute__((constructor)) static void settle() {
	if (getenv("MALLOC_ARENA_MAX") == nullptr) {
		mallopt(M_ARENA_MAX, 1);
		mallopt(M_MMAP_THRESHOLD, 1 << 20);
		mallopt(M_TRIM_THRESHOLD, 4 << 20);
	}
}

// fila_allocator_arenas counts the arenas there are.
extern "C" int fila_allocator_arenas() {
	char* text = nullptr;
	size_t size = 0;
	FILE* f = open_memstream(&text, &size);
	if (f == nullptr) {
		return -1;
	}
	malloc_info(0, f);
	fclose(f);
	int n = 0;
	for (const char* at = text; (at = strstr(at, "<heap nr=")) != nullptr; at++) {
		n++;
	}
	free(text);
	return n;
}

#else

extern "C" int fila_allocator_arenas() { return 1; }

#endif

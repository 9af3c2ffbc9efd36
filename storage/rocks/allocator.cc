//go:build !plain

// Configuration of glibc malloc for RocksDB.
//
// glibc gives threads up to eight arenas per processor, and memory freed in one arena is not reused
// by another. RocksDB allocates and frees in different threads: a block is allocated by the thread
// that reads it and freed by the one that evicts it; a memtable is filled by the writer and freed
// by a flush. With several arenas the resident memory grows for hours at constant use.
//
// When a large block is freed, glibc raises its mmap threshold to that size, so that values of up
// to 16 MiB are later taken from an arena and rarely returned to the system. A fixed threshold
// keeps large blocks mapped separately.
//
// MALLOC_ARENA_MAX in the environment overrides all of this.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <malloc.h>

#ifdef __GLIBC__

// Runs before the process has a second thread: existing arenas cannot be removed.
__attribute__((constructor)) static void settle() {
	if (getenv("MALLOC_ARENA_MAX") == nullptr) {
		mallopt(M_ARENA_MAX, 1);
		mallopt(M_MMAP_THRESHOLD, 1 << 20);
		mallopt(M_TRIM_THRESHOLD, 4 << 20);
	}
}

// Bytes that the program has allocated and not freed.
extern "C" size_t fila_allocator_used() { return mallinfo2().uordblks; }

// Counts the arenas in the report of malloc_info.
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
extern "C" size_t fila_allocator_used() { return 0; }

#endif

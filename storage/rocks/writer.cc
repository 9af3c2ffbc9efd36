//go:build !plain

#include "writer.h"

#include <cerrno>
#include <thread>

#include <unistd.h>

#include <rocksdb/c.h>

// The thread alternates with the Go side, see writer.go:
//
//   Go                                    thread
//   fills in fila_write
//   request: one byte ─────────────────▶  reads it; fila_write and the batch are its own
//                                         rocksdb_write, with or without a sync
//   reads it; both are Go's again  ◀───── completed: one byte
//   closes request  ───────────────────▶  end of file: frees its options and ends
struct fila_writer {
	std::thread thread;
};

namespace {

// Applies one batch and stores RocksDB's error, or null.
void Write(rocksdb_t* db, const rocksdb_writeoptions_t* options, fila_write* w) {
	char* error = nullptr;
	rocksdb_writebatch_t* batch = rocksdb_writebatch_create_from(reinterpret_cast<const char*>(w->batch), w->size);
	rocksdb_write(db, options, batch, &error);
	rocksdb_writebatch_destroy(batch);
	w->error = error;
}

// The main loop of the thread: one write for each byte of the request pipe.
void Run(rocksdb_t* db, fila_write* w, int request, int completed) {
	rocksdb_writeoptions_t* plain = rocksdb_writeoptions_create();
	rocksdb_writeoptions_t* synced = rocksdb_writeoptions_create();
	rocksdb_writeoptions_set_sync(synced, 1);
	char byte;
	for (ssize_t n; (n = read(request, &byte, 1)) != 0;) {
		if (n < 0) {
			if (errno == EINTR) continue;
			break;
		}
		Write(db, w->sync ? synced : plain, w);
		// The pipe has room: the Go side has read the previous byte.
		while (write(completed, &byte, 1) < 0 && errno == EINTR) {}
	}
	rocksdb_writeoptions_destroy(plain);
	rocksdb_writeoptions_destroy(synced);
}

}  // namespace

fila_writer* fila_writer_start(void* db, fila_write* w, int request, int completed) {
	return new fila_writer{std::thread(Run, static_cast<rocksdb_t*>(db), w, request, completed)};
}

void fila_writer_end(fila_writer* w) {
	w->thread.join();
	delete w;
}

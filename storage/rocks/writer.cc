//go:build !plain

#include "writer.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

// The thread alternates with the Go side, see writer.go:
//
//   Go                                    thread
//   fills in fila_write
//   request: one byte ─────────────────▶  reads it; fila_write and the batch are its own
//                                         DB::Write, with or without a sync
//   reads it; both are Go's again  ◀───── completed: one byte
//   closes request  ───────────────────▶  end of file: frees its options and ends
struct fila_writer {
	std::thread thread;
};

namespace {

// Memory of batches up to this size is kept for the next one: a block that malloc maps for each
// batch costs a page fault for every 4 KiB of it.
constexpr size_t kKeptMost = 8 << 20;

// Applies one batch and stores RocksDB's error, or null. memory is what the last batch has left.
void Write(rocksdb::DB* db, const rocksdb::WriteOptions& options, fila_write* w, std::string& memory) {
	memory.assign(reinterpret_cast<const char*>(w->batch), w->size);
	rocksdb::WriteBatch batch(std::move(memory));
	const rocksdb::Status status = db->Write(options, &batch);
	w->error = status.ok() ? nullptr : strdup(status.ToString().c_str());
	memory = std::move(const_cast<std::string&>(batch.Data()));  // batch is not const, and ends here
	if (memory.capacity() > kKeptMost) std::string().swap(memory);
}

// The main loop of the thread: one write for each byte of the request pipe.
void Run(rocksdb::DB* db, fila_write* w, int request, int completed) {
	rocksdb::WriteOptions plain, synced;
	synced.sync = true;
	std::string memory;
	char byte;
	for (ssize_t n; (n = read(request, &byte, 1)) != 0;) {
		if (n < 0) {
			if (errno == EINTR) continue;
			break;
		}
		Write(db, w->sync ? synced : plain, w, memory);
		// The pipe has room: the Go side has read the previous byte.
		while (write(completed, &byte, 1) < 0 && errno == EINTR) {}
	}
}

}  // namespace

fila_writer* fila_writer_start(void* db, fila_write* w, int request, int completed) {
	// The C interface's handle begins with the database.
	return new fila_writer{std::thread(Run, *static_cast<rocksdb::DB**>(db), w, request, completed)};
}

void fila_writer_end(fila_writer* w) {
	w->thread.join();
	delete w;
}

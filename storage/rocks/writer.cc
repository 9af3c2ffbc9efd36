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

constexpr size_t kHead = 12;  // of a batch: sequence number, count

// Puts a batch into memory. If what the log ends in is not synced, the batch says in a record of its
// own, which is data of the log alone, from where on: log 8 | offset 8, little-endian (files/batch.go).
void Take(const char* batch, size_t size, fila_spares* spares, std::string& memory) {
	uint64_t log, from;
	if (spares == nullptr || !fila_spares_unsynced(spares, &log, &from)) {
		memory.assign(batch, size);
		return;
	}
	constexpr char kLogData = 3, kBytes = 16;
	memory.assign(batch, kHead);
	memory.push_back(kLogData);
	memory.push_back(kBytes);
	for (const uint64_t n : {log, from}) {
		for (int i = 0; i < 8; i++) memory.push_back(static_cast<char>(n >> 8 * i));
	}
	memory.append(batch + kHead, size - kHead);
}

// Applies one batch and stores RocksDB's error, or null. memory is what the last batch has left.
void Write(rocksdb::DB* db, fila_spares* spares, const rocksdb::WriteOptions& options, fila_write* w, std::string& memory) {
	Take(reinterpret_cast<const char*>(w->batch), w->size, spares, memory);
	rocksdb::WriteBatch batch(std::move(memory));
	const rocksdb::Status status = db->Write(options, &batch);
	w->error = status.ok() ? nullptr : strdup(status.ToString().c_str());
	memory = std::move(const_cast<std::string&>(batch.Data()));  // batch is not const, and ends here
	if (memory.capacity() > kKeptMost) std::string().swap(memory);
}

// The main loop of the thread: one write for each byte of the request pipe.
void Run(rocksdb::DB* db, fila_spares* spares, fila_write* w, int request, int completed) {
	rocksdb::WriteOptions plain, synced;
	synced.sync = true;
	std::string memory;
	char byte;
	for (ssize_t n; (n = read(request, &byte, 1)) != 0;) {
		if (n < 0) {
			if (errno == EINTR) continue;
			break;
		}
		Write(db, spares, w->sync ? synced : plain, w, memory);
		// The pipe has room: the Go side has read the previous byte.
		while (write(completed, &byte, 1) < 0 && errno == EINTR) {}
	}
}

}  // namespace

fila_writer* fila_writer_start(void* db, fila_spares* spares, fila_write* w, int request, int completed) {
	// The C interface's handle begins with the database.
	return new fila_writer{std::thread(Run, *static_cast<rocksdb::DB**>(db), spares, w, request, completed)};
}

void fila_writer_end(fila_writer* w) {
	w->thread.join();
	delete w;
}

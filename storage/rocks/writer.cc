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
//   closes request  ───────────────────▶  end of file: ends
//
// Between completed and the next request the Go side may write itself (fila_writer_write): the two never
// write at the same time, so they share the options and the memory.
struct fila_writer {
	rocksdb::DB* db;
	fila_spares* spares;
	fila_write* w;
	rocksdb::WriteOptions plain, synced;
	std::string memory;  // what the last batch has left
	std::thread thread;
};

namespace {

// Memory of batches up to this size is kept for the next one: a block that malloc maps for each
// batch costs a page fault for every 4 KiB of it.
constexpr size_t kKeptMost = 8 << 20;

// Batches from this size on are synced when they are applied, not before: the disk writes them
// (fila_spares_early) while they are copied into the memtables. Readers may see such a batch before it
// is on disk; it is acknowledged after the sync.
constexpr size_t kApart = 256 << 10;

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

// Applies one batch and stores RocksDB's error, or null.
void Write(fila_writer* t) {
	fila_write* w = t->w;
	Take(reinterpret_cast<const char*>(w->batch), w->size, t->spares, t->memory);
	rocksdb::WriteBatch batch(std::move(t->memory));
	const bool apart = w->sync && w->size >= kApart;
	if (t->spares != nullptr) fila_spares_early(t->spares, apart);
	rocksdb::Status status = t->db->Write(w->sync && !apart ? t->synced : t->plain, &batch);
	if (apart && status.ok()) status = t->db->SyncWAL();
	w->error = status.ok() ? nullptr : strdup(status.ToString().c_str());
	t->memory = std::move(const_cast<std::string&>(batch.Data()));  // batch is not const, and ends here
	if (t->memory.capacity() > kKeptMost) std::string().swap(t->memory);
}

// The main loop of the thread: one write for each byte of the request pipe.
void Run(fila_writer* t, int request, int completed) {
	char byte;
	for (ssize_t n; (n = read(request, &byte, 1)) != 0;) {
		if (n < 0) {
			if (errno == EINTR) continue;
			break;
		}
		Write(t);
		// The pipe has room: the Go side has read the previous byte.
		while (write(completed, &byte, 1) < 0 && errno == EINTR) {}
	}
}

}  // namespace

fila_writer* fila_writer_start(void* db, fila_spares* spares, fila_write* w, int request, int completed) {
	// The C interface's handle begins with the database.
	auto* t = new fila_writer{*static_cast<rocksdb::DB**>(db), spares, w};
	t->synced.sync = true;
	t->thread = std::thread(Run, t, request, completed);
	return t;
}

void fila_writer_write(fila_writer* t) { Write(t); }

void fila_writer_end(fila_writer* w) {
	w->thread.join();
	delete w;
}

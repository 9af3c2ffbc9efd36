// When a memtable is full, RocksDB begins a new log file, and leaves the end of the
// former to the system until that memtable is flushed. Where commits are not synced one
// by one, a loss of power could then take the end of the former file and leave the
// beginning of the new one: a hole in what was written, and not only its end lost.
#include <memory>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <rocksdb/listener.h>
#include <rocksdb/options.h>

namespace {

// RocksDB calls it between the two, with nothing written to the new file.
class LogsInOrder : public rocksdb::EventListener {
 public:
	explicit LogsInOrder(const char* dir) : dir_(dir) {}

	// An error is left to RocksDB, which syncs the same file before it flushes the
	// memtable, and is told the same error then.
	void OnMemTableSealed(const rocksdb::MemTableInfo&) override {
		DIR* files = opendir(dir_.c_str());
		if (!files) return;
		while (const dirent* entry = readdir(files)) {
			const std::string name = entry->d_name;
			if (name.size() < 4 || name.compare(name.size() - 4, 4, ".log") != 0) continue;
			const int file = open((dir_ + "/" + name).c_str(), O_RDONLY | O_CLOEXEC);
			if (file < 0) continue;  // it was removed meanwhile
			(void)fdatasync(file);
			close(file);
		}
		closedir(files);
	}

 private:
	const std::string dir_;
};

}  // namespace

// The C interface has no listeners; its options begin with these.
extern "C" void fila_logs_in_order(void* options, const char* dir) {
	static_cast<rocksdb::Options*>(options)->listeners.push_back(std::make_shared<LogsInOrder>(dir));
}

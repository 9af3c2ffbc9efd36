// When a memtable is full, RocksDB begins a new log and leaves the end of the previous one in the
// page cache until the memtable is flushed. Without a sync per commit, a power loss could then lose
// the end of the previous log and keep the beginning of the new one: a gap instead of a lost
// suffix. The listener below syncs the previous log first.
//
// RocksDB also keeps no list of logs, so it opens a store without a log that is missing. The
// listener therefore lists them in the file fila-logs, which survey.go reads:
//
//	logs <FNV-1a of the rest, 16 digits>\n
//	<number of a log>\n...
//
// A log is listed only after its directory entry is durable, so a power loss cannot remove a listed
// log. The list is overwritten in place, because a new file would make the next sync of the
// directory expensive; an incomplete write does not match the checksum and is ignored.
#include "log_names.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <rocksdb/listener.h>
#include <rocksdb/options.h>

namespace {

constexpr size_t kListed = 1000;  // the newest are kept; some dozens are needed at a time

std::vector<std::string> LogNames(const std::string& dir) {
	std::vector<std::string> names;
	DIR* files = opendir(dir.c_str());
	if (!files) return names;
	while (const dirent* entry = readdir(files)) {
		if (LogNumber(entry->d_name) > 0) names.emplace_back(entry->d_name);
	}
	closedir(files);
	return names;
}

bool SyncFile(const std::string& path, bool data_only) {
	const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) return false;  // it was deleted meanwhile
	const bool ok = (data_only ? fdatasync(file) : fsync(file)) == 0;
	close(file);
	return ok;
}

uint64_t Sum(const std::string& text) {
	uint64_t sum = 14695981039346656037ull;
	for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211ull;
	return sum;
}

std::string Head(const std::string& body) {
	char head[32];
	snprintf(head, sizeof head, "logs %016" PRIx64 "\n", Sum(body));
	return head;
}

// Returns the current list, empty if the checksum does not match.
std::set<uint64_t> Listed(const std::string& path) {
	std::set<uint64_t> all;
	std::string text(32 * kListed, '\0');
	const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
	if (file < 0) return all;
	const ssize_t n = read(file, text.data(), text.size());
	close(file);
	text.resize(std::max<ssize_t>(n, 0));
	const size_t line = text.find('\n');
	if (line == std::string::npos) return all;
	const std::string body = text.substr(line + 1);
	if (text.compare(0, line + 1, Head(body)) != 0) return all;
	for (size_t at = 0; at < body.size(); at = body.find('\n', at) + 1) all.insert(strtoull(body.c_str() + at, nullptr, 10));
	return all;
}

void WriteOver(const std::string& path, const std::string& text) {
	const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
	if (file < 0) return;
	if (pwrite(file, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) (void)!ftruncate(file, text.size());
	close(file);
}

// Adds logs to the list of a directory. A failure leaves the list shorter, never wrong.
void ListLogs(const std::string& dir, const std::vector<std::string>& names) {
	const std::string path = dir + "/fila-logs";
	std::set<uint64_t> all = Listed(path);
	for (const std::string& name : names) all.insert(LogNumber(name));
	while (all.size() > kListed) all.erase(all.begin());
	std::string body;
	for (const uint64_t n : all) body += std::to_string(n) + "\n";
	WriteOver(path, Head(body) + body);
}

// Syncs the previous log before the next one is written to: RocksDB calls OnMemTableSealed between
// the two.
class LogsInOrder : public rocksdb::EventListener {
 public:
	explicit LogsInOrder(const char* dir) : dir_(dir) {}

	// Errors are left to RocksDB, which syncs the same file before it flushes the memtable and gets
	// the same error.
	void OnMemTableSealed(const rocksdb::MemTableInfo&) override {
		const std::lock_guard<std::mutex> lock(mutex_);
		const std::vector<std::string> names = LogNames(dir_);
		uint64_t newest = 0;
		for (const std::string& name : names) newest = std::max(newest, LogNumber(name));
		std::set<uint64_t> synced;
		for (const std::string& name : names) {
			const uint64_t n = LogNumber(name);
			if ((synced_.count(n) > 0 || SyncFile(dir_ + "/" + name, true)) && n != newest) synced.insert(n);
		}
		synced_ = std::move(synced);
		if (SyncFile(dir_, false)) ListLogs(dir_, names);
	}

 private:
	const std::string dir_;
	std::mutex mutex_;
	// Logs that were synced when there was a newer one: nothing is written to them any more, and a
	// sync that finds nothing to write has the disk write its cache all the same.
	std::set<uint64_t> synced_;
};

}  // namespace

// The C interface has no listeners. rocksdb_options_t begins with an Options, so the pointer
// converts.
extern "C" void fila_logs_in_order(void* options, const char* dir) {
	static_cast<rocksdb::Options*>(options)->listeners.push_back(std::make_shared<LogsInOrder>(dir));
}

// Lists the logs of a newly opened store.
extern "C" void fila_list_logs(const char* dir) {
	if (SyncFile(dir, false)) ListLogs(dir, LogNames(dir));
}

// Makes an open keep the logs instead of flushing them, and disables preallocation.
extern "C" void fila_keep_logs(void* options) {
	auto o = static_cast<rocksdb::Options*>(options);
	o->avoid_flush_during_recovery = true;
	o->allow_fallocate = false;
}

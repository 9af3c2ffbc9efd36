// When a memtable is full, RocksDB begins a new log file, and leaves the end of the
// former to the system until that memtable is flushed. Where commits are not synced one
// by one, a loss of power could then take the end of the former file and leave the
// beginning of the new one: a hole in what was written, and not only its end lost.
//
// And RocksDB notes nowhere which logs there are: a store opens without one that is
// missing. So they are listed in a file of ours, fila-logs, which survey.go reads:
//
//	logs <FNV-1a of the rest, 16 digits>\n
//	<number of a log>\n...
//
// A log is in the list only once its name is on disk, so that a loss of power does not
// take a log that is listed. The list is written over in place, as a new file would make
// the next sync of the directory dear: one that was not written to its end does not match
// its sum, and says nothing.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <rocksdb/listener.h>
#include <rocksdb/options.h>

namespace {

constexpr size_t kListed = 1000;  // the newest are kept: logs that are needed are some dozens

// The number in the name of a log; 0 if it is none.
uint64_t LogNumber(const std::string& name) {
	if (name.size() < 5 || name.compare(name.size() - 4, 4, ".log") != 0) return 0;
	char* end = nullptr;
	const uint64_t n = strtoull(name.c_str(), &end, 10);
	return end == name.c_str() + name.size() - 4 ? n : 0;
}

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
	if (file < 0) return false;  // it was removed meanwhile
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

// What the list has so far; nothing where it is not what was written.
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

// Adds the logs of a directory to its list. Where that fails, less is known, and nothing
// wrong.
void ListLogs(const std::string& dir, const std::vector<std::string>& names) {
	const std::string path = dir + "/fila-logs";
	std::set<uint64_t> all = Listed(path);
	for (const std::string& name : names) all.insert(LogNumber(name));
	while (all.size() > kListed) all.erase(all.begin());
	std::string body;
	for (const uint64_t n : all) body += std::to_string(n) + "\n";
	WriteOver(path, Head(body) + body);
}

// RocksDB calls it between the two, with nothing written to the new file.
class LogsInOrder : public rocksdb::EventListener {
 public:
	explicit LogsInOrder(const char* dir) : dir_(dir) {}

	// An error is left to RocksDB, which syncs the same file before it flushes the
	// memtable, and is told the same error then.
	void OnMemTableSealed(const rocksdb::MemTableInfo&) override {
		const std::vector<std::string> names = LogNames(dir_);
		for (const std::string& name : names) (void)SyncFile(dir_ + "/" + name, true);
		if (SyncFile(dir_, false)) ListLogs(dir_, names);
	}

 private:
	const std::string dir_;
};

}  // namespace

// The C interface has no listeners; its options begin with these.
extern "C" void fila_logs_in_order(void* options, const char* dir) {
	static_cast<rocksdb::Options*>(options)->listeners.push_back(std::make_shared<LogsInOrder>(dir));
}

// Lists the logs of a store that was just opened.
extern "C" void fila_list_logs(const char* dir) {
	if (SyncFile(dir, false)) ListLogs(dir, LogNames(dir));
}

// Has an open keep the logs instead of writing tables, and allocate nothing in advance.
extern "C" void fila_keep_logs(void* options) {
	auto o = static_cast<rocksdb::Options*>(options);
	o->avoid_flush_during_recovery = true;
	o->allow_fallocate = false;
}

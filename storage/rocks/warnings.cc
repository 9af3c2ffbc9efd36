// RocksDB's info log, reimplemented: once RocksDB's own logger could not write for lack of space,
// its next line terminates the process if RocksDB was built with assertions, as Debian's is. This
// logger drops a line that it cannot write.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <rocksdb/c.h>
#include <rocksdb/env.h>

namespace {

constexpr off_t kSizeMax = 1 << 20; // bytes of one file; the previous one is kept as LOG.old

// Appends warnings and errors to the file LOG in the data directory.
class Log : public rocksdb::Logger {
public:
	explicit Log(const char* dir) : Logger(rocksdb::WARN_LEVEL), name_(std::string(dir) + "/LOG") {}
	~Log() override {
		if (file_ >= 0) close(file_);
	}

	void LogHeader(const char*, va_list) override {} // the options, verbose and not needed

	// Lines without a level; RocksDB 6 wants it to be there.
	void Logv(const char* format, va_list args) override { Logv(rocksdb::INFO_LEVEL, format, args); }

	void Logv(const rocksdb::InfoLogLevel level, const char* format, va_list args) override {
		if (level < GetInfoLogLevel() || level >= rocksdb::HEADER_LEVEL) return;
		char line[1024];
		const time_t now = time(nullptr);
		struct tm utc;
		gmtime_r(&now, &utc);
		size_t n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%SZ ", &utc);
		const int written = vsnprintf(line + n, sizeof line - n - 1, format, args);
		if (written < 0) return;
		n = std::min(n + written, sizeof line - 2);
		if (line[n - 1] != '\n') line[n++] = '\n';
		const std::lock_guard<std::mutex> hold(lock_);
		if (!ready()) return;
		if (write(file_, line, n) < 0) return;
	}

private:
	// ready opens the file, rotates it when it exceeds kSizeMax, and reports whether it is open.
	bool ready() {
		if (file_ < 0) file_ = Open();
		struct stat s;
		if (file_ >= 0 && fstat(file_, &s) == 0 && s.st_size > kSizeMax) {
			close(file_);
			if (rename(name_.c_str(), (name_ + ".old").c_str()) != 0) unlink(name_.c_str());
			file_ = Open();
		}
		return file_ >= 0;
	}

	int Open() const { return open(name_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640); }

	const std::string name_;
	std::mutex lock_;
	int file_ = -1;
};

} // namespace

// The C interface takes a rocksdb_logger_t and offers no constructor. This is its definition in
// RocksDB's c.cc.
struct rocksdb_logger_t {
	std::shared_ptr<rocksdb::Logger> rep;
};

// Installs the logger. The options, and every database opened with them, share it.
extern "C" void fila_rocksdb_log(void* options, const char* dir) {
	rocksdb_logger_t log{std::make_shared<Log>(dir)};
	rocksdb_options_set_info_log(static_cast<rocksdb_options_t*>(options), &log);
}

// A log that grows makes each sync slower: with the bytes, the file system has to write where they
// are and how long the file is, and to commit its journal if it has one. A write over bytes that are
// there already needs none of it, and its sync takes half as long. So the file system below gives
// RocksDB files that are full of synced zeros when it makes a log, and keeps some of them ready:
//
//                NewWritableFile, renamed                   DeleteFile, renamed
//   fila-spare-7 ─────────────────────────► 000123.log ─────────────────────────► fila-spare-8
//        ▲                                                                              │
//        └──────────────────── zeros over all of it, synced, by a thread ◄──────────────┘
//
// RocksDB writes a log from its beginning, as any other, and cuts off what is left when it closes it.
// Nothing waits for a spare: a log that finds none is an ordinary file, so under a load that fills
// logs faster than they are prepared some are. The first log of a store is an exception.
//
// The length of a log that is open is a multiple of a spare's: an ordinary file, and a spare that is
// too short, get a hole at their end. So a log of another length was closed in order.
//
// What this means for recovery is in cut.go. A sector of a log that did not reach the disk before a
// power loss is not missing but zero, and a later one may be there. To tell that from damage, batches say
// what was synced before them, where that is not everything (writer.cc): LogFile counts it.
//
// To write zeros takes the disk some 5 ms, as long as 16 syncs of 256 KiB gain. So no spares are made
// while logs are filled by large batches.
//
// The thread begins a second after the store was opened, so that short lives cost one spare.
#include "spares.h"

#include <rocksdb/version.h>

#if ROCKSDB_MAJOR < 7

extern "C" fila_spares* fila_spares_use(void*, const char*, size_t, size_t) { return nullptr; }
extern "C" void fila_spares_end(fila_spares*) {}
extern "C" void fila_spares_early(fila_spares*, int) {}
extern "C" int fila_spares_unsynced(fila_spares*, uint64_t*, uint64_t*) { return 0; }

#else

#include "log_names.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/options.h>

namespace {

using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;

constexpr char kPrefix[] = "fila-spare-";
constexpr std::chrono::seconds kQuiet{1};  // after an open
constexpr size_t kRoom = 8;                // no spare is made unless so many would fit on the disk
constexpr size_t kSyncs = 16;              // nor after a log with fewer syncs for the bytes of a spare

// How much of a log was written and synced, and how often.
struct End {
	explicit End(uint64_t number) : log(number) {}
	const uint64_t log;
	std::atomic<uint64_t> written{0}, synced{0}, syncs{0};
};

// A log that counts what was written and synced. One thread at a time writes; another may sync.
class LogFile : public rocksdb::FSWritableFileOwnerWrapper {
 public:
	LogFile(std::unique_ptr<rocksdb::FSWritableFile>&& file, std::string path, uint64_t length, uint64_t unit, std::shared_ptr<End> end, const std::atomic<bool>& early)
	    : FSWritableFileOwnerWrapper(std::move(file)), path_(std::move(path)), length_(length), unit_(unit), end_(std::move(end)), early_(early) {}

	IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, IODebugContext* dbg) override {
		Lengthen(data.size());
		return Wrote(data.size(), FSWritableFileOwnerWrapper::Append(data, options, dbg), options, dbg);
	}
	IOStatus Append(const rocksdb::Slice& data, const IOOptions& options, const rocksdb::DataVerificationInfo& info, IODebugContext* dbg) override {
		Lengthen(data.size());
		return Wrote(data.size(), FSWritableFileOwnerWrapper::Append(data, options, info, dbg), options, dbg);
	}
	IOStatus Sync(const IOOptions& options, IODebugContext* dbg) override {
		const uint64_t written = end_->written;
		return Synced(written, FSWritableFileOwnerWrapper::Sync(options, dbg));
	}
	IOStatus Fsync(const IOOptions& options, IODebugContext* dbg) override {
		const uint64_t written = end_->written;
		return Synced(written, FSWritableFileOwnerWrapper::Fsync(options, dbg));
	}
	// RocksDB cuts off what was not written, unless nothing was.
	IOStatus Close(const IOOptions& options, IODebugContext* dbg) override {
		const IOStatus s = FSWritableFileOwnerWrapper::Close(options, dbg);
		if (s.ok() && end_->written == 0) (void)!truncate(path_.c_str(), 0);
		return s;
	}

 private:
	// Makes the file long enough for what is appended next. Where that fails the file grows as it is written.
	void Lengthen(size_t bytes) {
		if (end_->written + bytes <= length_) return;
		length_ = (end_->written + bytes + unit_ - 1) / unit_ * unit_;
		(void)!truncate(path_.c_str(), length_);
	}
	IOStatus Wrote(size_t bytes, IOStatus s, const IOOptions& options, IODebugContext* dbg) {
		if (!s.ok()) return s;
		const uint64_t from = end_->written;
		end_->written += bytes;
		// The sync that follows waits for what this begins, and reports its errors.
		if (early_) RangeSync(from, bytes, options, dbg).PermitUncheckedError();
		return s;
	}
	IOStatus Synced(uint64_t bytes, IOStatus s) {
		if (s.ok()) {
			end_->synced = bytes;
			end_->syncs++;
		}
		return s;
	}

	const std::string path_;
	uint64_t length_;
	const uint64_t unit_;
	const std::shared_ptr<End> end_;
	const std::atomic<bool>& early_;
};

class SpareLogs : public rocksdb::FileSystemWrapper {
 public:
	SpareLogs(const std::string& dir, size_t bytes, size_t most)
	    : FileSystemWrapper(rocksdb::FileSystem::Default()), dir_(dir), bytes_(bytes), most_(most), opened_(std::chrono::steady_clock::now()),
	      end_(std::make_shared<End>(0)), thread_(&SpareLogs::Run, this) {}

	~SpareLogs() override {
		{
			std::lock_guard<std::mutex> lock(mutex_);
			ending_ = true;
		}
		changed_.notify_all();
		thread_.join();
		for (const std::string& f : ready_) unlink(f.c_str());
		for (const std::string& f : used_) unlink(f.c_str());
	}

	static const char* kClassName() { return "FilaSpareLogs"; }
	const char* Name() const override { return kClassName(); }

	IOStatus NewWritableFile(const std::string& f, const rocksdb::FileOptions& options, std::unique_ptr<rocksdb::FSWritableFile>* result, IODebugContext* dbg) override {
		const uint64_t number = Number(f);
		if (number == 0) return target()->NewWritableFile(f, options, result, dbg);
		IOStatus s = IOStatus::NotFound();
		uint64_t length = bytes_;
		if (const std::string spare = Take(); !spare.empty()) {
			s = target()->ReuseWritableFile(f, spare, options, result, dbg);
			if (!s.ok()) unlink(spare.c_str());
		}
		if (!s.ok()) {
			length = 0;
			s = target()->NewWritableFile(f, options, result, dbg);
		}
		if (!s.ok()) return s;
		auto end = std::make_shared<End>(number);
		*result = std::make_unique<LogFile>(std::move(*result), f, length, bytes_, end, early_);
		{
			std::lock_guard<std::mutex> lock(mutex_);
			worth_ = end_->written <= end_->syncs * (bytes_ / kSyncs);
			failed_ = false;
			end_ = std::move(end);
		}
		changed_.notify_all();
		return s;
	}

	IOStatus DeleteFile(const std::string& f, const IOOptions& options, IODebugContext* dbg) override {
		if (Number(f) > 0 && Keep(f)) return IOStatus::OK();
		return target()->DeleteFile(f, options, dbg);
	}

	// RocksDB copies logs in their length, as for a backup: of the newest one what was written.
	IOStatus GetFileSize(const std::string& f, const IOOptions& options, uint64_t* size, IODebugContext* dbg) override {
		const auto end = this->end();
		const IOStatus s = target()->GetFileSize(f, options, size, dbg);
		if (s.ok() && end->log > 0 && Number(f) == end->log) *size = std::min<uint64_t>(*size, end->written);
		return s;
	}

	// Has the disk begin to write what is appended to logs from now on, or leaves that to syncs.
	void Early(bool early) { early_ = early; }

	// Returns the newest log.
	std::shared_ptr<const End> end() {
		std::lock_guard<std::mutex> lock(mutex_);
		return end_;
	}

 private:
	// Returns the number of a log of this store, 0 for other files: a copy has logs as well.
	uint64_t Number(const std::string& f) const {
		return f.rfind('/') == dir_.size() && f.compare(0, dir_.size(), dir_) == 0 ? LogNumber(f) : 0;
	}

	// Returns a spare that is ready, or none. The first log of a store gets one that is made for it: a
	// store with little work may have no other for long. RocksDB has locked the store by then, so what
	// a killed process has left can be removed.
	std::string Take() {
		std::lock_guard<std::mutex> lock(mutex_);
		std::string f;
		if (!began_) {
			began_ = true;
			RemoveLeft();
			if (most_ > 0 && Room()) f = Made();
			if (!f.empty() && !Fill(f)) f.clear();
		} else if (!ready_.empty()) {
			f = ready_.back();
			ready_.pop_back();
		}
		return f;
	}

	// Makes a spare of a log that RocksDB does not need any more. A file that has another name belongs
	// to a copy of the store, too.
	bool Keep(const std::string& f) {
		std::lock_guard<std::mutex> lock(mutex_);
		if (!worth_ || ready_.size() + used_.size() + filling_ >= most_ || !Room()) return false;
		const std::string spare = Made();
		if (spare.empty()) return false;
		if (rename(f.c_str(), spare.c_str()) != 0) {
			unlink(spare.c_str());
			return false;
		}
		struct stat is;
		if (stat(spare.c_str(), &is) != 0 || is.st_nlink != 1) {
			unlink(spare.c_str());
			return true;
		}
		used_.push_back(spare);
		changed_.notify_all();
		return true;
	}

	// Makes an empty file of a new name and returns that, or nothing.
	std::string Made() {
		const std::string f = dir_ + "/" + kPrefix + std::to_string(++made_);
		const int file = open(f.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		if (file < 0) return "";
		close(file);
		return f;
	}

	bool Room() const {
		struct statvfs disk;
		return statvfs(dir_.c_str(), &disk) == 0 && static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize >= kRoom * bytes_;
	}

	// Writes zeros over a file and syncs it, or removes it.
	bool Fill(const std::string& f) const {
		const int file = open(f.c_str(), O_WRONLY | O_CLOEXEC);
		bool ok = file >= 0;
		const std::string zeros(256 << 10, '\0');
		for (size_t at = 0; ok && at < bytes_;) {
			const ssize_t n = pwrite(file, zeros.data(), std::min(zeros.size(), bytes_ - at), at);
			ok = n > 0;
			at += std::max<ssize_t>(n, 0);
		}
		// A log may have grown longer than a spare.
		ok = ok && ftruncate(file, bytes_) == 0 && fsync(file) == 0;
		if (file >= 0) close(file);
		if (!ok) unlink(f.c_str());
		return ok;
	}

	void RemoveLeft() const {
		DIR* files = opendir(dir_.c_str());
		if (!files) return;
		while (const dirent* entry = readdir(files)) {
			const std::string name = entry->d_name;
			if (name.compare(0, sizeof kPrefix - 1, kPrefix) == 0) unlink((dir_ + "/" + name).c_str());
		}
		closedir(files);
	}

	// Fills what was used, and makes new spares up to most_. After a failure it waits for the next log.
	void Run() {
		std::unique_lock<std::mutex> lock(mutex_);
		if (changed_.wait_until(lock, opened_ + kQuiet, [this] { return ending_; })) return;
		for (;;) {
			changed_.wait(lock, [this] { return ending_ || (began_ && worth_ && !failed_ && (!used_.empty() || ready_.size() < most_)); });
			if (ending_) return;
			std::string f;
			if (!used_.empty()) {
				f = used_.back();
				used_.pop_back();
			} else if (Room()) {
				f = Made();
			}
			filling_ = 1;
			lock.unlock();
			const bool ok = !f.empty() && Fill(f);
			lock.lock();
			filling_ = 0;
			if (ok) ready_.push_back(f);
			failed_ = !ok;
		}
	}

	const std::string dir_;
	const size_t bytes_, most_;
	std::atomic<bool> early_{false};  // of all logs, which end before this does
	const std::chrono::steady_clock::time_point opened_;
	std::mutex mutex_;
	std::shared_ptr<End> end_;  // of the newest log
	std::condition_variable changed_;
	std::vector<std::string> ready_;  // zeros
	std::vector<std::string> used_;   // former logs
	size_t filling_ = 0;              // 1: the thread has one that is in neither
	uint64_t made_ = 0;               // number of the newest spare
	bool began_ = false;              // the first log was made
	bool worth_ = false;              // the log before the newest was synced often, or there was none
	bool failed_ = false;             // the last spare could not be made
	bool ending_ = false;
	std::thread thread_;
};

}  // namespace

struct fila_spares {
	std::shared_ptr<SpareLogs> files;
	std::unique_ptr<rocksdb::Env> env;
};

extern "C" fila_spares* fila_spares_use(void* options, const char* dir, size_t bytes, size_t most) try {
	auto s = std::make_unique<fila_spares>();
	s->files = std::make_shared<SpareLogs>(dir, bytes, most);
	s->env = rocksdb::NewCompositeEnv(s->files);
	static_cast<rocksdb::Options*>(options)->env = s->env.get();
	return s.release();
} catch (const std::system_error&) {  // no further thread
	return nullptr;
}

extern "C" void fila_spares_end(fila_spares* s) { delete s; }

extern "C" void fila_spares_early(fila_spares* s, int early) { s->files->Early(early != 0); }

extern "C" int fila_spares_unsynced(fila_spares* s, uint64_t* log, uint64_t* from) {
	const auto end = s->files->end();
	*log = end->log;
	*from = end->synced;
	return *from < end->written;
}

#endif

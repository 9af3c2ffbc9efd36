// Package rocks implements storage.Store with RocksDB. It is the only package that imports the
// binding. No memory of RocksDB leaves it: every key, value and error that it returns is Go memory
// owned by the caller.
//
// # Calls into C
//
// A commit that syncs makes no cgo call. The writer (writer.go) passes the bytes that storage.Batch has
// built to a native thread, not managed by the Go scheduler, which applies them with one DB::Write. A
// small one that does not sync is one cgo call, which is over before two threads could wake each other. A
// step of an iterator is two cgo calls, plus one each for the key and the value when the caller
// asks for them. At about 50 ns a call that is less than the work of RocksDB for the step itself. A
// Get is two calls. In a plain build (see package tuning) a commit is a blocking cgo call.
//
// # Native extensions
//
// RocksDB provides tables, the write-ahead log and compaction (options.go). This package adds, in
// C++: memtables for messages, leases, results and budgets that sort when they are flushed or read
// (lanes.cc), a collector that marks tables of mostly deletions for compaction (drained.cc), a listener
// that syncs each log before the next one begins (sealed.cc), a file system that makes logs of files
// full of zeros, so that their syncs are shorter (spares.cc), and an info logger that survives a full
// disk (warnings.cc).
//
// # Guarantees of the write-ahead log
//
// A torn record at the end of the log is dropped: it is what a power loss leaves, and it was never
// acknowledged. Damage anywhere else keeps the store from opening, because acknowledged records
// follow it. Of RocksDB's recovery modes only kTolerateCorruptedTailRecords behaves that way; the
// default mode stops at the damage and opens the store without the rest.
//
// RocksDB recycles log files only in modes that skip damage, because it cannot tell damage from the
// old contents of a recycled file. The logs of spares.cc contain zeros instead. What a power loss
// has kept from the disk of such a log is zero, while something that was written later may be there.
// The newest log is cut off there before it is opened, if no batch behind says that it was synced
// (surveyedLog.torn): nothing from there on was acknowledged. Damage of the length of the very last
// record may look the same.
//
// Before a new log file receives its first record, the previous one is synced, whatever the sync
// mode of the commits (sealed.cc). So a power loss removes a suffix of the written records and
// never leaves a gap.
//
// A replica commits without a sync, so a power loss may leave damage anywhere behind the last sync,
// with intact records after it. The newest log is cut off at its first damage then
// (Options.Replica), so the store is as it was after some commit. The replicated log has what is
// missing.
//
// # Checks before opening
//
// survey.go and package files read every file without RocksDB first. Missing or truncated files are
// reported by name.
//
// # States after a failed write
//
//  1. The store refuses commits with ErrReopen. Reads continue.
//  2. Reopen writes and syncs a probe file as large as what recovery may have
//     to write. While the disk refuses it, Reopen fails and reads continue.
//  3. Reopen waits for running reads and open iterators, closes RocksDB and
//     opens it again, which replays the log.
//  4. If that fails, every call returns the reason together with ErrClosed,
//     and Reopen may be called again.
//
// On a full disk, step 2 releases the reserve file; the store is then in one of the states full or
// read-only, which full.go describes.
package rocks

// Package rocks keeps a store in RocksDB. It is the only package that knows
// RocksDB, and nothing of RocksDB leaves it: what it returns is Go memory.
//
// # Calls into C
//
// A commit is none: the bytes that storage.Batch built are handed, through a pipe,
// to a thread that Go does not know (writer.go), which writes them with one Write
// of RocksDB. A step of an iterator is two calls, and one more each for the key and
// the value if they are asked for; at some 50 ns a call that is less than what
// RocksDB itself needs for the step. A Get is two calls.
//
// # What is RocksDB's, and what is ours
//
// Tables, log and compaction are RocksDB's (options.go). Ours, in C++, are the
// memtables of messages and leases, which sort when they are flushed or read
// (lanes.cc), and what makes drained tables due for compaction (drained.cc).
//
// # What the log promises
//
// A torn record at the end of the log, which is what a power loss leaves, is
// dropped; it was never acknowledged. Damage anywhere else keeps the store
// from opening, since what follows it was acknowledged and would be lost
// without a word. Of RocksDB's recovery modes only one does that,
// kTolerateCorruptedTailRecords; its default stops at the damage and opens.
// RocksDB 7.8 recycles logs only in the mode that skips over any damage, because
// it cannot tell the old end of a recycled log from it. Without recycling a
// sync takes some tens of microseconds more, and correct goes before fast.
//
// Where a new log file begins, the former is synced first, whatever the mode of the
// commits (sealed.cc): what a power loss takes is the end of what was written, and
// never the end of one file with the beginning of the next kept.
//
// # Before it is opened
//
// All files are looked at without RocksDB (survey.go, package files): what is missing or
// cut short is found, and said with the name of the file.
//
// # After a failed write
//
//  1. The store refuses commits with ErrReopen; reads go on.
//  2. Reopen writes and syncs a file as large as what recovery may have to
//     write. While the disk refuses that, Reopen fails and reads still go on.
//  3. Reopen waits for running reads and open iterators, closes RocksDB and
//     opens it again, which replays the log.
//  4. If that fails, everything answers with the reason and ErrClosed, and
//     Reopen may be called again.
//
// On a full disk the reserve is given back in step 2, and the store is full then, or open
// for reading only: see full.go.
//
// RocksDB's log of warnings, the file LOG beside the data, is written by warnings.cc: with
// RocksDB's own, a full disk could end the process.
package rocks

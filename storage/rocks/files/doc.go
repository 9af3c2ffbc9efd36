// Package files reads the files of a RocksDB database without RocksDB: its logs, its
// MANIFEST and its tables. RocksDB answers damage with an error; this package says
// where the damage is, and returns everything that is sound before and behind it.
//
// It only reads. Nothing in a file is trusted: each length is checked before it is
// used, and bytes count as read only when their checksum matches.
//
// # Logs
//
// A log, and a MANIFEST, is blocks of 32 KiB; a block is fragments, a fragment is
//
//	CRC-32C 4 | length 2 (both little-endian) | kind 1 | bytes
//
// and a record is a whole fragment, or a first, some middle and a last one. In a log
// a record is a batch of writes, which carries the sequence number of its first write
// and their count: so what is missing between two batches can be counted.
//
// # Tables
//
// A table is blocks, each followed by how it is compressed (1 byte) and a checksum
// (4 bytes): data blocks in the order of their keys, then a few others, of which the
// index says where the data blocks are. A footer of 53 bytes leads to them. Where the
// index cannot be read, data blocks are found by trying: a block tells its own end.
package files

// Package files reads the logs, the MANIFEST and the tables of a RocksDB database without
// RocksDB. Where RocksDB answers damage with an error, this package locates the damage
// and returns everything intact before and behind it.
//
// It only reads, and trusts no byte: every length is checked before use, and bytes count
// as intact only if their checksum matches. Hence no input can make it panic, read
// outside of a file or allocate more than a fixed multiple of the file's size.
//
// # Logs
//
// Logs and MANIFEST files share a format. A file is blocks of 32 KiB, a block is
// fragments, and a fragment is
//
//	CRC-32C 4 | length 2 (both little-endian) | kind 1 | bytes
//
// A record is one whole fragment, or a first, any number of middle and a last fragment.
// In a log a record is a batch of writes with the sequence number of its first write and
// their count, so the number of writes missing between two batches is known.
//
// # Tables
//
// A table is blocks, each followed by its compression (1 byte) and a checksum (4 bytes):
// data blocks in key order, then the metadata blocks: filter, properties, range
// deletions, and the index, which locates the data blocks. A footer of 53 bytes locates
// the index. Without a readable index, data blocks are found by trial: a block can be
// parsed from its beginning to its own end.
package files

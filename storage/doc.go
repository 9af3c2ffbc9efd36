// Package storage says what Fila keeps on disk and how: families, keys,
// records, the batch that changes them, and the version of all that. This
// comment is the format document; the files in testdata/golden hold the code
// to it, byte by byte.
//
// # Stores
//
// A store keeps ordered keys in families and takes changes as batches, each of
// which is applied as a whole or not at all. There are two: Memory, here, and
// RocksDB, in storage/rocks. What a store promises is tested by
// storage/storetest, which both pass. The interface is declared by those who
// use it.
//
//   - After an error from Commit nothing of the batch is visible, and the store
//     takes no writes until Reopen succeeded. Reads go on.
//   - After that Reopen, or a crash, a batch whose commit failed is there as a
//     whole or not at all: a disk that failed to confirm a write may have done
//     it. A batch whose synced commit succeeded is there, and so is everything
//     committed before it.
//
// # Families
//
// The number of a family is RocksDB's column family id.
//
//	0 default    one key, "format": the version as a decimal number
//	1 messages   message key          Message   every message, until it is acked
//	2 leases     message key, fence   Lease     messages in the hands of a consumer
//	3 attempts   message key          Attempt   messages that failed or were released
//	4 scheduled  due time, message key  empty   messages that are not due yet
//	5 queues     the queue's name     Queue     settings
//	6 state      path                 as its owner says: runtime configuration, counters
//	7 dedup      dedup key            DedupEntry     deduplication ids, until their window is over
//	8 expiries   end of life, message key  empty   messages with a time to live
//
// # Keys
//
// Numbers are big-endian, strings have their length before them (2 bytes,
// big-endian), and there are no separators. So keys sort as their parts do,
// the first part first; of two strings the shorter sorts first, and of two of
// one length the one that is less by bytes. What sorts first is delivered
// first: within a fairness key that is the highest priority, then the oldest id.
//
//	message key  queue 4 | length 2 | fairness key | rank 1 | id 16
//	lease key    message key | fence 8
//	scheduled    due 8 | message key
//	state key    ( length 2 | part )...
//	dedup key    queue 4 | generation 8 | id
//	expiry key   as scheduled
//
// The queue is its number (see Queue). The rank is 9 - priority. The id is a
// UUIDv7. The fence is the number of the delivery. Due is nanoseconds since
// 1970, without a sign. A generation of deduplication ids is the time at which it
// began; it is dropped as a whole, by range. Its id is what the engine makes of a
// client's: see engine/dedup.go.
//
//	0000002a 0004 61636d65 04 018f5e8a7c007abc8def0123456789ab
//	queue 42 |    "acme"   |  |  id
//	                       rank 4 = priority 5
//
// # Records
//
// Values are the wire format of protobuf; fila.proto describes them. Fields
// are written in the order of their numbers and left out when they are zero.
// A reader skips fields that it does not know, so a new field needs no new
// format version. A known field with a value that cannot be is ErrCorrupt.
//
// # Batches
//
// A batch is RocksDB's WriteBatch:
//
//	sequence 8 (0) | count 4 (little-endian) | records
//	put           05 | family varint | length varint | key | length varint | value
//	delete        04 | family varint | length varint | key
//	single delete 08 | family varint | length varint | key
//	delete range  0e | family varint | length varint | first key | length varint | end
//
// # Versions
//
// The version counts up when an older Fila would misread the data. A store
// whose version is newer than FormatVersion is not opened.
//
//	1  the first
package storage

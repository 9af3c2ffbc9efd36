// Package storage defines what Fila keeps on disk: column families, keys, records, the
// batch that changes them, and the format version. This comment is the format document;
// the golden files in testdata/golden verify the code against it byte by byte.
//
// # Stores
//
// A store keeps ordered keys in families and applies batches atomically. There are two
// implementations: Memory, here, and RocksDB, in storage/rocks. The suite in
// storage/storetest verifies the contract for both. The interface itself is declared by
// its consumers.
//
//   - After an error from Commit nothing of the batch is visible, or all of it where
//     only its sync has failed, and the store refuses writes until Reopen succeeds.
//     Reads continue.
//   - After that Reopen, or after a crash, a batch whose commit failed is either
//     entirely present or absent: a disk that failed to confirm a write may have
//     done it. A batch whose synced commit succeeded is present, and so is
//     everything committed before it.
//
// # Families
//
// The number of a family is RocksDB's column family id.
//
//	0 default    one key, "format": the version as a decimal number
//	1 messages   message key          Message   every message, until it is acked; the newest of those
//	                                  that have taken the place of one another
//	2 leases     message key, fence   Lease     leased messages
//	3 attempts   message key          Attempt   messages that failed or were released
//	4 scheduled  due time, message key  empty   delayed messages
//	5 queues     the queue's name     Queue     settings
//	6 state      path                 runtime configuration, counters, histories of scripts, queues
//	                                  and keys, acts, groups of messages and other state
//	7 dedup      dedup key            DedupEntry     deduplication ids, until their window ends, and
//	                                  unique ids, until their messages end
//	8 expiries   expiry time, message key  empty   messages with a time to live
//	9 budgets    the budget's name    Budget    settings and sums
//	10 ledger    ledger key           LedgerEntry   what has moved budgets, and the ids of it
//	11 signals   signal key           Signal    sums that fade with time
//	12 results   result key           Result    messages that were acked: what their consumers have given, and what is kept of them
//	13 bodies    body key             Body or Holders  payload and headers that messages of several
//	                                  queues have in common, until the last of these messages ends
//
// # Keys
//
// Numbers are big-endian, strings are preceded by their length (2 bytes, big-endian), and
// there are no separators. So keys sort by their parts in order; of two strings the
// shorter sorts first, and strings of equal length sort by bytes. What sorts first is
// delivered first: within a fairness key the highest priority, then the oldest id.
//
//	message key  queue 4 | length 2 | fairness key | rank 1 | id 16
//	lease key    message key | fence 8
//	scheduled    due 8 | message key
//	state key    ( length 2 | part )...
//	dedup key    queue 4 | generation 8 | id
//	result key   queue 4 | generation 8 | id 16
//	expiry key   as scheduled
//	signal key   length 2 | subject | name
//	body key     0 | id 16, of a body, or 1 | id 16, of its holders
//	ledger key   day 4 | 0 | length 2 | budget | inverted time 8, or
//	             day 4 | 1 | length 2 | budget | id
//
// The queue is its number (see Queue). The rank is 9 - priority. The id is a UUIDv7. The
// fence is the delivery number. Due is unsigned nanoseconds since 1970. A generation of
// deduplication ids, or of results, is named by its start time and deleted as a range.
// Deduplication ids are derived from the clients' ids: see engine/dedup.go. Unique ids are as
// the clients gave them, in generation 0, which is never one of deduplication ids; each entry
// goes with its message, or with the first record of its lease where the id is free from the lease on. A day of the
// ledger is days since
// 1970; it is dropped as a range. An inverted time is 2^64-1 less the nanoseconds since
// 1970, so the newest entry sorts first.
//
//	0000002a 0004 61636d65 04 018f5e8a7c007abc8def0123456789ab
//	queue 42 |    "acme"   |  |  id
//	                       rank 4 = priority 5
//
// # Records
//
// Values are in the wire format of protobuf, described by fila.proto. Fields are written
// in the order of their numbers; zero values are omitted. A reader skips unknown fields,
// so a new field needs no new format version. A known field with an invalid value is
// ErrCorrupt.
//
// A new field takes a field of the struct, a line of its method fields, from which encoding
// and decoding follow (codec.go), a line of fila.proto, and a value in the complete record
// of golden_test.go. The tests compare the four; a field of a message is added to
// Message.sizeMax or Meta.sizeMax as well.
//
// A message that was published to several queues may refer to a body. Its record then has no payload
// and no headers: the body, which has these fields of a Message, and the record after it are the whole
// one (see GetMessage). The id of a body is that of the first of its messages. Holders lists the keys of
// all of them; those whose record still refers to the body hold it. A body that is held by none may be
// there until a broker looks for such bodies, which it does after a start and after a purge.
//
// # Stores of nodes
//
// The store of a node of a cluster has records more, in state. "replica" is the position in the
// replicated log up to which it has applied it, which changes with every batch, in the same write.
// "acl" with a name is a user, as the line of rules that ACL LIST shows, and "acl_version" the number
// of changes of the users. "learner" with the name of a node, and no value, has the leader not give
// that node a vote.
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
// The version is increased when an older Fila would misread the data. A store with a
// version above ReplicaFormatNewest is not opened.
//
//	1  the first
//	2  the store of a node of a cluster; nothing else differs
package storage

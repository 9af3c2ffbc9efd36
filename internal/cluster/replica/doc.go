// Package replica keeps several stores equal by way of one replicated log: what the engine of
// the leader commits becomes entries of the log, and every node applies the same entries in the
// same order to a store of its own. The log itself is behind an interface.
//
//	engine ──Commit──► Store ──entries──► Log ──committed entries──► Machine ──► local store
//	   ▲                                 (majority)                 on each node      │
//	   └───────────────────────── Get, Scan: the leader's local store ────────────────┘
//
// # Entries
//
// A batch is one entry, or several if it has more than PartBytes (entry.go):
//
//	version 1 | flags 1 | term 8 | number 8 | part 4 | parts 4 | CRC-32C 4 | bytes of the batch
//
// Numbers are big-endian. The term is that of the leadership that has made the batch, the number
// counts the batches of a leadership from 1, and parts are counted from 0. The CRC covers all
// other bytes of the entry. The version tells how to read what follows it; this is version 1.
// Its one flag marks an entry that is no batch: it has each node make a digest of its store as it is
// at this entry, to compare them.
//
// # What is applied
//
// A Machine decides by these rules, in this order. They depend on nothing but the log and the
// Replica record of the local store, so every node decides alike, and so does a node that has
// started again and reads entries for the second time.
//
//  1. An entry that is in the store already is skipped: its index is at most that of the record.
//     The record is in the same write as the batch, so each batch is applied exactly once.
//  2. An entry of another term than the one in which the log has taken it is dropped: an old
//     leadership has left it in a queue, and the present one does not know it. One that asks for a
//     digest goes no further: it changes neither the store nor what is kept.
//  3. A batch whose number does not follow the last one of its term is dropped: there is no gap
//     within a leadership.
//  4. The parts of a batch are kept until the last one is there, then applied in one write. The
//     first part of a batch discards what is kept of another. A part that does not follow the
//     kept ones is dropped with them.
//  5. The batch and the new record are committed to the local store in one write, without a sync.
//     What a crash takes is in the log: see Machine.Snapshot.
//  6. An entry of an unknown version, or a damaged one, stops the machine. It is never skipped.
//
// # Invariants
//
//   - Stores with equal records are equal.
//   - Store.Commit succeeds only if the batch is in the log of a majority and in the local store.
//   - After an error from Store.Commit, nothing that follows in this leadership is applied.
//   - What is kept of an unfinished batch is in the log: a snapshot is refused meanwhile.
package replica

package verify

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/faisca/fila/storage"
)

// Unique ids. A message that has one and is not dead owns the entry of the id, and each entry has
// an owner. With UNTIL LEASE, a message owns its id until a record says that it was leased: a lease record, or an
// attempts record with Freed. Repair never drops a message for its id: it writes a missing entry, drops an entry
// without an owner, and takes the id from a message that has it beside the owner.

// ownsID reports whether the entry of its unique id has to be of the message.
func (v *verifier) ownsID(mk storage.MessageKey, m *storage.Message) bool {
	return m.Unique != "" && m.Dead == nil && (!m.UntilLease || !v.wasLeased(mk))
}

// wasLeased reports whether a message is leased, or does not own its unique id since it was.
func (v *verifier) wasLeased(mk storage.MessageKey) bool {
	key := mk.Append(nil)
	var a storage.Attempt
	if value, err := v.store.Get(storage.Attempts, key); err == nil && a.Decode(value) == nil && a.Freed {
		return true
	}
	return len(v.leases(key)) > 0
}

// leases returns the lease records of a message by their keys, as far as they can be read.
func (v *verifier) leases(message []byte) map[string]storage.Lease {
	it := v.store.Scan(storage.Leases, message, storage.After(message))
	defer it.Close()
	var all map[string]storage.Lease
	for ok := it.Seek(message); ok; ok = it.Next() {
		var l storage.Lease
		if l.Decode(it.Value()) != nil {
			continue // a finding of its own
		}
		if all == nil {
			all = map[string]storage.Lease{}
		}
		all[string(it.Key())] = l
	}
	return all
}

// checkUnique: the entry of the message's unique id is of this message.
func (v *verifier) checkUnique(mk storage.MessageKey, m *storage.Message, key []byte) {
	entry := storage.AppendDedupKey(nil, mk.Queue, storage.UniqueGeneration, m.Unique)
	value, err := v.store.Get(storage.Dedup, entry)
	var e storage.DedupEntry
	switch {
	case err == nil && e.Decode(value) == nil && e.ID == mk.ID && e.Key == mk.Key:
		return
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return // the read error is a finding of its own
	}
	if err == nil && e.ID != mk.ID && v.checkOwner(mk.Queue, m.Unique, &e) == nil {
		v.report(Finding{
			Family: storage.Messages, Key: bytes.Clone(key), What: fmt.Sprintf("message %s has the unique id %.80q, which message %s has taken", mk.ID, m.Unique, e.ID),
			mend: v.dropID(mk, m),
		})
		return
	}
	v.report(Finding{
		Family: storage.Dedup, Key: entry, What: fmt.Sprintf("message %s has the unique id %.80q, which is not taken by it", mk.ID, m.Unique),
		mend: func(b *storage.Batch) string {
			b.Put(storage.Dedup, entry, (&storage.DedupEntry{ID: mk.ID, Key: mk.Key}).Append(nil))
			return fmt.Sprintf("restored the unique id %.80q of message %s", m.Unique, mk.ID)
		},
	})
}

// dropID returns the repair that takes its unique id from a message and its lease. The record is marked as
// written again, so that a delete removes it: a single delete would bring back the one before.
func (v *verifier) dropID(mk storage.MessageKey, m *storage.Message) func(b *storage.Batch) string {
	without := *m
	without.Unique, without.Rewritten = "", true
	key, record, id := mk.Append(nil), without.Append(nil), m.Unique // copies: m aliases the value of an iterator
	leases := v.leases(key)
	return func(b *storage.Batch) string {
		b.Put(storage.Messages, key, record)
		for key, l := range leases {
			l.Unique, l.Rewritten = "", true
			b.Put(storage.Leases, []byte(key), l.Append(nil))
		}
		return fmt.Sprintf("took the unique id %.80q, which is that of another one, from message %s", id, mk.ID)
	}
}

// checkOwner: the message of an entry exists and has the unique id.
func (v *verifier) checkOwner(queue uint32, id string, e *storage.DedupEntry) error {
	mk := storage.MessageKey{Queue: queue, Key: e.Key, Rank: e.ID.Rank(), ID: e.ID}
	if !v.exists(mk) {
		return fmt.Errorf("the unique id %.80q of message %s, which does not exist", id, e.ID)
	}
	if has := v.uniqueIDOf(mk); has != id {
		return fmt.Errorf("the unique id %.80q of message %s, which has the unique id %.80q", id, e.ID, has)
	}
	return nil
}

// uniqueIDOf returns the unique id whose entry has to be of a message; "": none.
func (v *verifier) uniqueIDOf(mk storage.MessageKey) string {
	value, err := v.store.Get(storage.Messages, mk.Append(nil))
	var m storage.Message
	if err != nil || m.Decode(value) != nil || !v.ownsID(mk, &m) {
		return ""
	}
	return m.Unique
}

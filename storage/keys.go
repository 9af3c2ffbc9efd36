package storage

import (
	"encoding/binary"
	"fmt"
	"math"
)

// This file encodes and decodes keys. Numbers are big-endian, strings are preceded by
// their length, and there are no separators: keys sort by their parts in order (strings:
// the shorter first, then by bytes). The package comment shows every key byte by byte.

// MessageKey is the decoded key of a message.
type MessageKey struct {
	Queue uint32
	Key   string // fairness key
	Rank  uint8  // 9 - priority: the highest priority sorts first
	ID    ID
}

const (
	messageKeyMin = 4 + 2 + 1 + 16
	keyStringMax  = math.MaxUint16 // bytes of a string within a key
)

// AppendQueuePrefix appends the common prefix of all message keys of a queue.
func AppendQueuePrefix(dst []byte, queue uint32) []byte {
	return binary.BigEndian.AppendUint32(dst, queue)
}

// AppendKeyPrefix appends the common prefix of all message keys of a fairness key.
func AppendKeyPrefix(dst []byte, queue uint32, key string) []byte {
	return appendString(AppendQueuePrefix(dst, queue), key)
}

// KeyPrefixLen returns the length of the AppendKeyPrefix part of a message key, or of the
// beginning of one; 0: it is shorter than that.
func KeyPrefixLen(k []byte) int {
	const before = 4 + 2
	if len(k) < before {
		return 0
	}
	n := before + int(binary.BigEndian.Uint16(k[4:]))
	if n > len(k) {
		return 0
	}
	return n
}

// AppendMessageKey appends the key of a message.
func AppendMessageKey(dst []byte, queue uint32, key string, rank uint8, id ID) []byte {
	dst = append(AppendKeyPrefix(dst, queue, key), rank)
	return append(dst, id[:]...)
}

// Append appends the key of the message.
func (mk MessageKey) Append(dst []byte) []byte {
	return AppendMessageKey(dst, mk.Queue, mk.Key, mk.Rank, mk.ID)
}

// ParseMessageKey decodes the key of a message, or returns ErrCorrupt.
func ParseMessageKey(k []byte) (MessageKey, error) {
	mk, rest, ok := nextMessageKey(k)
	if !ok || len(rest) != 0 {
		return MessageKey{}, badKey("message", k)
	}
	return mk, nil
}

// AppendLeaseKey appends the key of a lease: the message key and the fence.
func AppendLeaseKey(dst []byte, mk MessageKey, fence uint64) []byte {
	return binary.BigEndian.AppendUint64(mk.Append(dst), fence)
}

// ParseLeaseKey decodes the key of a lease, or returns ErrCorrupt.
func ParseLeaseKey(k []byte) (MessageKey, uint64, error) {
	mk, rest, ok := nextMessageKey(k)
	if !ok || len(rest) != 8 {
		return MessageKey{}, 0, badKey("lease", k)
	}
	return mk, binary.BigEndian.Uint64(rest), nil
}

// AppendScheduledKey appends the key of a delayed message: its due time in nanoseconds
// since 1970 and its message key. Times before 1970 count as 0.
func AppendScheduledKey(dst []byte, due int64, mk MessageKey) []byte {
	return mk.Append(AppendDuePrefix(dst, due))
}

// AppendDuePrefix appends the common prefix of all messages due at a time. As the end of
// a scan it bounds everything due before that time.
func AppendDuePrefix(dst []byte, due int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(max(due, 0)))
}

// ParseScheduledKey decodes the key of a delayed message, or returns ErrCorrupt.
func ParseScheduledKey(k []byte) (due int64, mk MessageKey, err error) {
	if len(k) < 8 || k[0] > 0x7F {
		return 0, MessageKey{}, badKey("scheduled", k)
	}
	mk, rest, ok := nextMessageKey(k[8:])
	if !ok || len(rest) != 0 {
		return 0, MessageKey{}, badKey("scheduled", k)
	}
	return int64(binary.BigEndian.Uint64(k)), mk, nil
}

// AppendDedupPrefix appends the common prefix of a generation of deduplication ids, which
// is named by its start time.
func AppendDedupPrefix(dst []byte, queue uint32, generation int64) []byte {
	return AppendDuePrefix(AppendQueuePrefix(dst, queue), generation)
}

// RangePrefixLen returns the length of the prefixes whose records are deleted as one range: queues, generations,
// days. 0: a family has none of a size that matters.
func RangePrefixLen(f Family) int {
	switch f { //nolint:exhaustive // the others have none
	case Messages, Leases, Attempts:
		return len(AppendQueuePrefix(nil, 0))
	case Dedup, Results:
		return len(AppendDedupPrefix(nil, 0, 0))
	case Ledger:
		return len(AppendLedgerDay(nil, 0))
	}
	return 0
}

// UniqueGeneration is the generation of all unique ids. Those of deduplication ids are named by the
// time at which they began, which is never 0.
const UniqueGeneration = 0

// AppendDedupKey appends the key of a deduplication id, or of a unique id.
func AppendDedupKey(dst []byte, queue uint32, generation int64, id string) []byte {
	return append(AppendDedupPrefix(dst, queue, generation), id...)
}

// ParseDedupKey decodes the key of a deduplication id, or returns ErrCorrupt.
func ParseDedupKey(k []byte) (queue uint32, generation int64, id string, err error) {
	const least = 4 + 8 + 1
	if len(k) < least || k[4] > 0x7F {
		return 0, 0, "", badKey("dedup", k)
	}
	return binary.BigEndian.Uint32(k), int64(binary.BigEndian.Uint64(k[4:])), string(k[12:]), nil
}

// ResultKeySize is the size of the key of a result in bytes.
const ResultKeySize = 4 + 8 + 16

// AppendResultKey appends the key of a result: a generation as of deduplication ids, and the id of
// the message.
func AppendResultKey(dst []byte, queue uint32, generation int64, id ID) []byte {
	return append(AppendDedupPrefix(dst, queue, generation), id[:]...)
}

// ParseResultKey decodes the key of a result, or returns ErrCorrupt.
func ParseResultKey(k []byte) (queue uint32, generation int64, id ID, err error) {
	if len(k) != ResultKeySize || k[4] > 0x7F {
		return 0, 0, ID{}, badKey("result", k)
	}
	copy(id[:], k[12:])
	return binary.BigEndian.Uint32(k), int64(binary.BigEndian.Uint64(k[4:])), id, nil
}

// AppendStateKey appends the key of a piece of state: a path of parts.
func AppendStateKey(dst []byte, parts ...string) []byte {
	for _, p := range parts {
		dst = appendString(dst, p)
	}
	return dst
}

// ParseStateKey returns the parts of the key of a piece of state.
func ParseStateKey(k []byte) ([]string, error) {
	var parts []string
	for rest := k; len(rest) > 0; {
		s, r, ok := nextString(rest)
		if !ok {
			return nil, badKey("state", k)
		}
		parts = append(parts, s)
		rest = r
	}
	return parts, nil
}

// After returns the smallest key that is greater than every key with the
// prefix, or nil if there is none.
func After(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xFF {
			after := append([]byte(nil), prefix[:i+1]...)
			after[i]++
			return after
		}
	}
	return nil
}

// appendString appends a string with its length. Callers enforce limits far below 64 KiB;
// a longer string would decode as a different key, so it panics.
func appendString(dst []byte, s string) []byte {
	if len(s) > keyStringMax {
		panic(fmt.Sprintf("storage: string of %d bytes in a key", len(s)))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

func nextString(k []byte) (s string, rest []byte, ok bool) {
	if len(k) < 2 {
		return "", nil, false
	}
	n := int(binary.BigEndian.Uint16(k))
	if k = k[2:]; n > len(k) {
		return "", nil, false
	}
	return string(k[:n]), k[n:], true
}

func nextMessageKey(k []byte) (mk MessageKey, rest []byte, ok bool) {
	if len(k) < messageKeyMin {
		return MessageKey{}, nil, false
	}
	mk.Queue = binary.BigEndian.Uint32(k)
	if mk.Key, k, ok = nextString(k[4:]); !ok || len(k) < 17 {
		return MessageKey{}, nil, false
	}
	mk.Rank = k[0]
	copy(mk.ID[:], k[1:17])
	return mk, k[17:], true
}

func badKey(kind string, k []byte) error {
	const shown = 64
	return fmt.Errorf("%s key %x of %d bytes: %w", kind, k[:min(len(k), shown)], len(k), ErrCorrupt)
}

package storage

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// ID is the id of a message: a UUIDv7 that is never reused. Its free bits hold the rank and a
// hash of the fairness key, so that an id and a queue lead to the record without an index.
//
//	48 bits  Unix milliseconds of the enqueue        (RFC 9562)
//	 4 bits  version 7
//	12 bits  upper bits of the nanoseconds within the millisecond
//	 2 bits  variant
//	 8 bits  lower bits of the same
//	22 bits  hash of the fairness key
//	 4 bits  rank (9 - priority)
//	28 bits  random
//
// The engine gives nanoseconds that increase strictly, also across restarts, so ids sort by time
// of enqueue and no id is assigned twice.
type ID [16]byte

// PriorityMax is the highest priority of a message. Its rank is PriorityMax - priority, so that lower ranks are
// delivered first.
const PriorityMax = 9

// KeyHashBits is the number of bits of an id that are the hash of the fairness key.
const KeyHashBits = 22

// MakeID returns the id of a message that is enqueued at a time in Unix nanoseconds. Of the random number, 28 bits count.
func MakeID(nanos int64, keyHash uint32, rank uint8, random uint32) (id ID) {
	ms, sub := uint64(nanos/1e6), uint64(nanos%1e6)
	binary.BigEndian.PutUint64(id[:8], ms<<16|0x7000|sub>>8)
	low := uint64(2)<<62 | (sub&0xff)<<54 | uint64(keyHash)<<32 | uint64(rank&15)<<28 | uint64(random>>4)
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}

// Nanos returns the Unix nanoseconds at which the message was enqueued.
func (id ID) Nanos() int64 {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	return int64(hi>>16)*1e6 + int64(hi&0xfff<<8|lo>>54&0xff)
}

// Time returns the time at which the message was enqueued.
func (id ID) Time() time.Time { return time.Unix(0, id.Nanos()) }

// KeyHash returns the hash of the message's fairness key, see the function of that name.
func (id ID) KeyHash() uint32 {
	return uint32(binary.BigEndian.Uint64(id[8:]) >> 32 & (1<<KeyHashBits - 1))
}

// Rank returns the rank of the message.
func (id ID) Rank() uint8 { return id[12] >> 4 }

// KeyHash is FNV-1a of a fairness key, folded to KeyHashBits.
func KeyHash(key string) uint32 {
	h := uint32(2166136261)
	for i := range len(key) {
		h = (h ^ uint32(key[i])) * 16777619
	}
	return (h>>KeyHashBits ^ h) & (1<<KeyHashBits - 1)
}

// Check returns an error if an id does not belong to its key: an id repeats the rank and the
// hash of the fairness key.
func (mk MessageKey) Check() error {
	switch {
	case mk.Rank > PriorityMax:
		return fmt.Errorf("message %s has the rank %d", mk.ID, mk.Rank)
	case mk.ID.Rank() != mk.Rank || mk.ID.KeyHash() != KeyHash(mk.Key):
		return fmt.Errorf("message %s has an id that does not belong to its key %.80q", mk.ID, mk.Key)
	}
	return nil
}

// idText is the length of an id as text.
const idText = 36

var errID = errors.New("not a message id: want 32 hexadecimal digits in groups of 8-4-4-4-12")

// String returns the id in the usual text form of a UUID, in lower case.
func (id ID) String() string {
	var b [idText]byte
	id.encode(&b)
	return string(b[:])
}

// AppendText appends the text form to dst. It never fails.
func (id ID) AppendText(dst []byte) ([]byte, error) {
	var b [idText]byte
	id.encode(&b)
	return append(dst, b[:]...), nil
}

func (id ID) encode(b *[idText]byte) {
	hex.Encode(b[0:8], id[0:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:36], id[10:16])
}

// ParseID parses the text form of an id, in either case. Other forms of a UUID are
// rejected: an id has one spelling apart from case.
func ParseID[T string | []byte](s T) (ID, error) {
	if len(s) != idText || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, errID
	}
	var digits [32]byte
	copy(digits[0:8], s[0:8])
	copy(digits[8:12], s[9:13])
	copy(digits[12:16], s[14:18])
	copy(digits[16:20], s[19:23])
	copy(digits[20:32], s[24:36])
	var id ID
	if _, err := hex.Decode(id[:], digits[:]); err != nil {
		return ID{}, errID
	}
	return id, nil
}

package storage

import (
	"encoding/hex"
	"errors"
)

// ID identifies a message. It is a UUIDv7: ids sort by creation time.
type ID [16]byte

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
func ParseID(s string) (ID, error) {
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

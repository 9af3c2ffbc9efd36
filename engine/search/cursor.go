package search

import (
	"encoding/base64"
	"encoding/binary"
	"slices"

	"github.com/faisca/fila/storage"
)

// A cursor is where a page begins, in a text form that every client can keep. "" is the beginning, and the end.

// Cursor returns the cursor for the key of a message; "" for nil, the end. It is the key without the number of its queue.
func Cursor(key []byte) string {
	if key == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(key[len(storage.AppendQueuePrefix(nil, 0)):])
}

// ParseCursor returns the message key of a cursor; nil for "", the beginning. ok is false for
// anything that Cursor cannot have returned.
func ParseCursor(queue uint32, cursor string) (key []byte, ok bool) {
	if cursor == "" {
		return nil, true
	}
	place, err := base64.RawURLEncoding.DecodeString(cursor)
	key = slices.Concat(storage.AppendQueuePrefix(nil, queue), place)
	if err == nil {
		_, err = storage.ParseMessageKey(key)
	}
	return key, err == nil
}

// Place is where a page of messages that are done begins: behind this one. The zero place is the beginning.
type Place struct {
	generation int64
	id         storage.ID
}

// Cursor returns the text form of a place; "" for the beginning, which is that of the end as well.
func (p Place) Cursor() string {
	if p == (Place{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, uint64(p.generation)), p.id[:]...))
}

// ParsePlace is the reverse of Place.Cursor. ok is false for anything that it cannot have returned.
func ParsePlace(cursor string) (p Place, ok bool) {
	if cursor == "" {
		return p, true
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	const size = 8 + len(p.id)
	if err != nil || len(b) != size || int64(binary.BigEndian.Uint64(b)) <= 0 {
		return p, false
	}
	p.generation = int64(binary.BigEndian.Uint64(b))
	copy(p.id[:], b[8:])
	return p, true
}

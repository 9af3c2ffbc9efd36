package storage

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Bodies. A message that goes to several queues has one body, its payload and headers, and a record
// in each queue that refers to it. The body is the beginning of a Message record, so that body and
// record together are the record of a message that refers to nothing.
//
// Beside a body are its holders: the keys of the messages that were stored with it, in one batch.
// One of them holds the body as long as its record refers to it. None begins to hold it later: what
// moves to another queue is stored as a whole. So a body that no message holds is never held again,
// and may be deleted at any later time.

// Reader is what reads messages.
type Reader interface {
	Get(f Family, key []byte) ([]byte, error)
	Scan(f Family, from, to []byte) Iterator
}

// Holders is the record beside a body.
type Holders struct {
	Messages []string // keys in the family messages
}

// Append appends the encoded record.
func (h *Holders) Append(dst []byte) []byte { return encode(dst, h) }

// Decode reads a record that Append made.
func (h *Holders) Decode(b []byte) error { return decode(b, h, Holders{}, "holders", nil) }

func (h *Holders) fields(c *codec) { c.strings(1, &h.Messages, nil) }

// The first byte of a key of the family bodies: all bodies sort before all holders, so that a scan of
// the holders reads no payload.
const (
	bodyKind    = 0
	holdersKind = 1
)

// AppendBodyKey appends the key of a body.
func AppendBodyKey(dst []byte, id ID) []byte { return append(append(dst, bodyKind), id[:]...) }

// AppendHoldersKey appends the key of the holders of a body.
func AppendHoldersKey(dst []byte, id ID) []byte { return append(append(dst, holdersKind), id[:]...) }

// HoldersPrefix returns the common prefix of the keys of all holders.
func HoldersPrefix() []byte { return []byte{holdersKind} }

// ParseBodyKey decodes a key of the family bodies, or returns ErrCorrupt.
func ParseBodyKey(k []byte) (id ID, holders bool, err error) {
	if len(k) != 1+len(id) || k[0] > holdersKind {
		return ID{}, false, badKey("body", k)
	}
	copy(id[:], k[1:])
	return id, k[0] == holdersKind, nil
}

// WithBody returns the record of a message with a reference to a body, in place of the payload and the
// headers with which the record begins.
func WithBody(record []byte, id ID) []byte {
	for len(record) > 0 {
		num, _, n := protowire.ConsumeField(record)
		if n < 0 || num != messagePayload && num != messageHeaders {
			break
		}
		record = record[n:]
	}
	out := make([]byte, 0, len(record)+2+len(id))
	return appendItem(append(out, record...), messageBody, id[:])
}

// BodyOf returns the body that a record refers to; false: none. A record that is damaged refers to
// none, and its decoding tells.
func BodyOf(record []byte) (id ID, ok bool) {
	for len(record) > 0 {
		num, typ, n := protowire.ConsumeTag(record)
		if n < 0 || num == messagePayload || num == messageHeaders { // a record with a reference has neither
			return ID{}, false
		}
		rest := record[n:]
		if num == messageBody && typ == protowire.BytesType {
			b, n := protowire.ConsumeBytes(rest)
			if n < 0 || len(b) != len(id) {
				return ID{}, false
			}
			return ID(b), true
		}
		if n = protowire.ConsumeFieldValue(num, typ, rest); n < 0 {
			return ID{}, false
		}
		record = rest[n:]
	}
	return ID{}, false
}

// GetMessage returns the record of a message with its payload and headers, wherever they are stored. It
// returns ErrNotFound if there is no such message, and ErrCorrupt if its body is missing.
func GetMessage(store Reader, key []byte) ([]byte, error) {
	record, err := store.Get(Messages, key)
	if err != nil {
		return nil, err
	}
	return whole(store, key, record)
}

// GetMessages returns the records of the first of some messages, those that the store can read at a time
// within room bytes: the first n of the keys, or none. GetMessage reads the next one, and any error.
func GetMessages(store Reader, keys [][]byte, room int) [][]byte {
	records := GetMany(store, Messages, keys, room)
	for i, record := range records {
		if _, elsewhere := BodyOf(record); elsewhere {
			return records[:i]
		}
	}
	return records
}

// whole adds its body to the record of a message. The reads are not of one state of the store: a message
// whose body is gone has ended in between, or was stored anew.
func whole(store Reader, key, record []byte) ([]byte, error) {
	for {
		id, ok := BodyOf(record)
		if !ok {
			return record, nil
		}
		body, err := store.Get(Bodies, AppendBodyKey(nil, id))
		if err == nil {
			return append(body, record...), nil
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("body %s: %w", id, err)
		}
		again, err := store.Get(Messages, key)
		switch {
		case err != nil:
			return nil, err
		case bytes.Equal(again, record):
			return nil, fmt.Errorf("the body %s of a message is missing: %w", id, ErrCorrupt)
		}
		record = again
	}
}

// ScanMessages iterates over the messages in [from, to), as Scan does, with their payloads and headers. A
// message that ends during the iteration may be left out.
func ScanMessages(store Reader, from, to []byte) Iterator {
	return &messageIterator{Iterator: store.Scan(Messages, from, to), store: store}
}

// ScanMessageKeys is ScanKeys of the messages, with their payloads and headers.
func ScanMessageKeys(store Reader) Iterator {
	return &messageIterator{Iterator: ScanKeys(store, Messages), store: store}
}

// ScanMessageKeysInOrder is ScanKeysInOrder of the messages, with their payloads and headers.
func ScanMessageKeysInOrder(store Reader, from []byte) Iterator {
	return &messageIterator{Iterator: ScanKeysInOrder(store, Messages, from), store: store}
}

type messageIterator struct {
	Iterator

	store Reader
	value []byte
	err   error
}

// Seek implements Iterator.
func (it *messageIterator) Seek(key []byte) bool { return it.complete(it.Iterator.Seek(key)) }

// Next implements Iterator.
func (it *messageIterator) Next() bool { return it.complete(it.Iterator.Next()) }

// complete adds the body to the record, and goes on where the message has ended.
func (it *messageIterator) complete(ok bool) bool {
	for ; ok && it.err == nil; ok = it.Iterator.Next() {
		value, err := whole(it.store, it.Key(), it.Iterator.Value())
		if err == nil {
			it.value = value
			return true
		}
		if !errors.Is(err, ErrNotFound) {
			it.err = err
		}
	}
	return false
}

// Value implements Iterator.
func (it *messageIterator) Value() []byte { return it.value }

// Err implements Iterator.
func (it *messageIterator) Err() error {
	if it.err != nil {
		return it.err
	}
	return it.Iterator.Err()
}

// BodyHeld reports whether one of the holders of a body still holds it.
func BodyHeld(store Reader, id ID, holders []byte) (bool, error) {
	var h Holders
	if err := h.Decode(holders); err != nil {
		return false, err
	}
	for _, key := range h.Messages {
		record, err := store.Get(Messages, []byte(key))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		if of, ok := BodyOf(record); ok && of == id {
			return true, nil
		}
	}
	return false, nil
}

// DeleteBody deletes a body and its holders.
func DeleteBody(b *Batch, id ID) {
	b.Delete(Bodies, AppendBodyKey(nil, id))
	b.Delete(Bodies, AppendHoldersKey(nil, id))
}

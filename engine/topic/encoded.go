package topic

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/faisca/fila/storage"
)

// Encoded is a published message that is encoded once: queues that store the same record share it.
type Encoded struct {
	whole   []byte // as a queue stores it whose hook changes nothing
	content int    // bytes of its head, the payload and the headers
}

// Encode encodes a message. Its Payload and Headers are then parts of the record.
func Encode(m *storage.Message) (*Encoded, error) {
	rest := *m
	rest.Payload, rest.Headers = nil, nil
	whole := slices.Clip(m.Append(nil))
	e := &Encoded{whole, len(whole) - len(rest.Append(nil))}
	if err := m.Decode(e.Content()); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return e, nil
}

// Content returns the part of the record that has the payload and the headers.
func (e *Encoded) Content() []byte { return e.whole[:e.content] }

// Len returns the bytes of the record.
func (e *Encoded) Len() int { return len(e.whole) }

// Record returns the record with other settings, which have no content, and whether it is the shared one, since they are the same.
func (e *Encoded) Record(m *storage.Message) (record []byte, shared bool) {
	rest := m.Append(nil)
	if bytes.Equal(rest, e.whole[e.content:]) {
		return e.whole, true
	}
	return append(slices.Clip(e.Content()), rest...), false
}

package verify

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/faisca/fila/storage"
)

// Bodies. The body of a message exists, and its holders name the message; bodies and holders exist in
// pairs. Repair drops a message whose body is gone, since nothing is left of its payload, adds a message
// to the holders that do not name it, and drops a body or holders that are alone.

// checkReference: the body that a message refers to exists. A message that its holders do not name is
// noted for reportUnnamed.
func (v *verifier) checkReference(mk storage.MessageKey, record, key []byte) error {
	id, ok := storage.BodyOf(record)
	if !ok {
		return nil
	}
	if _, err := v.store.Get(storage.Bodies, storage.AppendBodyKey(nil, id)); errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("message %s refers to the body %s, which does not exist", mk.ID, id)
	}
	if h, err := v.holders(id); err != nil || slices.Contains(h.Messages, string(key)) {
		return nil //nolint:nilerr // the read error is a finding of its own
	}
	if v.unnamed == nil {
		v.unnamed = map[storage.ID][]string{}
	}
	v.unnamed[id] = append(v.unnamed[id], string(key))
	return nil
}

// holders reads the holders of a body; the zero value if there are none or they are damaged.
func (v *verifier) holders(id storage.ID) (h storage.Holders, err error) {
	value, err := v.store.Get(storage.Bodies, storage.AppendHoldersKey(nil, id))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return h, nil
	case err != nil:
		return h, err
	}
	_ = h.Decode(value) // what cannot be decoded names no message
	return h, nil
}

// reportUnnamed reports the messages that the holders of their bodies do not name, by body.
func (v *verifier) reportUnnamed() {
	order := slices.SortedFunc(maps.Keys(v.unnamed), func(a, b storage.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range order {
		h, err := v.holders(id)
		if err != nil {
			continue // a finding of its own
		}
		missing := v.unnamed[id]
		h.Messages = append(h.Messages, missing...)
		key := storage.AppendHoldersKey(nil, id)
		v.report(Finding{
			Family: storage.Bodies, Key: key, What: fmt.Sprintf("%d messages refer to the body %s, whose holders do not name them", len(missing), id),
			mend: func(b *storage.Batch) string {
				b.Put(storage.Bodies, key, h.Append(nil))
				return fmt.Sprintf("added %d messages to the holders of the body %s", len(missing), id)
			},
		})
	}
}

// checkBody: a body is the beginning of a message, and a body and its holders exist together.
func (v *verifier) checkBody(key, value []byte) error {
	id, holders, err := storage.ParseBodyKey(key)
	if err != nil {
		return err
	}
	if len(v.unnamed[id]) > 0 { // its holders are a finding already
		return nil
	}
	if holders {
		if err := new(storage.Holders).Decode(value); err != nil {
			return err
		}
		return v.mustHave(storage.AppendBodyKey(nil, id), fmt.Sprintf("the holders of the body %s, which does not exist", id))
	}
	var m storage.Message
	if err := m.Decode(value); err != nil {
		return err
	}
	return v.mustHave(storage.AppendHoldersKey(nil, id), fmt.Sprintf("the body %s has no holders", id))
}

// mustHave returns an error with the text if there is no such record in the family bodies.
func (v *verifier) mustHave(key []byte, text string) error {
	if _, err := v.store.Get(storage.Bodies, key); errors.Is(err, storage.ErrNotFound) {
		return errors.New(text)
	}
	return nil
}

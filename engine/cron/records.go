package cron

import (
	"fmt"
	"strconv"
	"time"

	"github.com/faisca/fila/storage"
)

// The headers that tell a consumer the entry and the time of the tick, in Unix milliseconds.
const (
	headerName = "fila-cron"
	headerAt   = "fila-cron-at"
	// Headers is how many headers a message of a tick has beside its own.
	Headers = 2
)

// Put writes the record of an entry, without the content of its message.
func (e *Entry) Put(b *storage.Batch) {
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateCron, e.name), e.rec.Append(nil))
}

// PutContent writes the content of the messages of an entry.
func (e *Entry) PutContent(b *storage.Batch, record []byte) {
	b.Put(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, e.name), record)
}

// Remove removes an entry with its records.
func (t *Table) Remove(e *Entry, b *storage.Batch) {
	t.Delete(e)
	b.Delete(storage.State, storage.AppendStateKey(nil, storage.StateCron, e.name))
	b.Delete(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, e.name))
}

// Read adds the entry of a record. disabled says why its expression or zone is not valid any more; nil: they are.
func (t *Table) Read(key, value []byte) (name string, disabled, err error) {
	parts, err := storage.ParseStateKey(key)
	if err != nil || len(parts) != 2 {
		return "", nil, fmt.Errorf("cron %q: %w", key, storage.ErrCorrupt)
	}
	var rec storage.Cron
	if err := rec.Decode(value); err != nil {
		return "", nil, fmt.Errorf("cron %q: %w", parts[1], err)
	}
	return parts[1], t.Restore(parts[1], rec), nil
}

// Content reads the content of the messages of an entry. It may be called on any goroutine.
func Content(store storage.Reader, name string) (m storage.Message, err error) {
	body, err := store.Get(storage.State, storage.AppendStateKey(nil, storage.StateCronMessage, name))
	if err == nil {
		err = m.Decode(body)
	}
	if err != nil {
		return m, fmt.Errorf("read the message: %w", err)
	}
	return m, nil
}

// Content reads the content of the message of a tick, and adds the headers that say of which tick it is. It may be called on
// any goroutine.
func (k *Tick) Content(store storage.Reader) (storage.Message, error) {
	m, err := Content(store, k.Name())
	m.Headers = append(m.Headers,
		storage.Header{Name: []byte(headerName), Value: []byte(k.Name())},
		storage.Header{Name: []byte(headerAt), Value: strconv.AppendInt(nil, k.At/int64(time.Millisecond), 10)})
	return m, err
}

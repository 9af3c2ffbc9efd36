package search

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/faisca/fila/engine/internal/causes"
	"github.com/faisca/fila/storage"
)

// Record is what the store has of a message. One that Messages or Range has read is valid until the next one is read,
// since its parts are those of the store: what stays is copied.
type Record struct {
	ID      storage.ID
	Message storage.Message
	Attempt storage.Attempt // the zero value: there is none

	Key     storage.MessageKey
	Value   []byte // of the messages record: Message is decoded from it, and aliases it
	Retried bool   // there is an attempts record
}

// decode begins with a message, which has no attempts record so far. It reuses the names of throttles and budgets of the
// message before, which are usually the same.
func (r *Record) decode(mk storage.MessageKey, value []byte) error {
	r.Key, r.Value, r.ID, r.Attempt, r.Retried = mk, value, mk.ID, storage.Attempt{}, false
	if err := r.Message.DecodeLike(value, &r.Message.Meta); err != nil {
		return fmt.Errorf("message %s: %w", mk.ID, err)
	}
	return nil
}

// decodeAttempt adds the attempts record.
func (r *Record) decodeAttempt(value []byte) error {
	if err := r.Attempt.Decode(value); err != nil {
		return fmt.Errorf("message %s: %w", r.ID, err)
	}
	r.Retried = true
	return nil
}

// Since returns when the message became ready, in Unix nanoseconds, as exactly as the records have it.
func (r *Record) Since() int64 {
	at := max(r.ID.Nanos(), r.Message.ReadyAt)
	if d := r.Message.Dead; d != nil {
		at = max(at, d.DiedAt)
	}
	return max(at, r.Attempt.ReadyAt, r.Attempt.LastFailedAt)
}

// ReadyAt returns the due time of the message, past or to come, in Unix nanoseconds; 0: it has none.
func (r *Record) ReadyAt() int64 {
	if r.Retried {
		return r.Attempt.ReadyAt
	}
	return r.Message.ReadyAt
}

// Delayed reports whether the message waits for its due time, that is, has a scheduled record. The due time alone does
// not tell: the clock may have gone back since the message became ready.
func (r *Record) Delayed(store storage.Reader) (bool, error) {
	at := r.ReadyAt()
	if at <= 0 {
		return false, nil
	}
	_, err := store.Get(storage.Scheduled, storage.AppendScheduledKey(nil, at, r.Key))
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// arrived returns when the message came into its queue, in Unix nanoseconds.
func (r *Record) arrived() int64 {
	if d := r.Message.Dead; d != nil {
		return d.DiedAt
	}
	return r.ID.Nanos()
}

// failure returns the error of a message that has failed or is dead, which may be empty, and its cause as it was named.
func (r *Record) failure() (text, cause string, failed bool) {
	switch d := r.Message.Dead; {
	case r.Attempt.FirstFailedAt != 0:
		return r.Attempt.Error, r.Attempt.Cause, true
	case d != nil:
		return d.Error, d.Cause, true
	default:
		return "", "", false
	}
}

// Collect adds a message to groups of failures, or returns false for one that would be a group too many. A message that has not failed
// is in none.
func (r *Record) Collect(groups *causes.Groups) bool {
	text, name, failed := r.failure()
	if !failed {
		return true
	}
	f := causes.Failure{Text: text, Name: name, Queue: groups.Queue, ID: r.ID}
	at := r.Attempt.LastFailedAt
	if d := r.Message.Dead; d != nil {
		if f.Queue = d.Queue; at == 0 {
			at = d.DiedAt
		}
	}
	f.At = time.Unix(0, at)
	return groups.Add(&f)
}

// Message reads a message with its attempts, or returns nil if there is none. The reads
// need not be of one state of the store: what changes in between is in the change log.
func Message(store storage.Reader, mk storage.MessageKey) (*Record, error) {
	key := mk.Append(nil)
	value, err := storage.GetMessage(store, key)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is no such message
	}
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := r.decode(mk, value); err != nil {
		return nil, err
	}
	switch value, err = store.Get(storage.Attempts, key); {
	case err == nil:
		err = r.decodeAttempt(value)
	case errors.Is(err, storage.ErrNotFound):
		err = nil
	}
	return r, err
}

// Messages reads the messages in [from, to) with their attempts, in order, until each
// returns false or an error. more reports whether there are messages after the last one.
func Messages(store storage.Reader, from, to []byte, each func(*Record) (bool, error)) (more bool, err error) {
	it := Iterators{storage.ScanMessages(store, from, to), store.Scan(storage.Attempts, from, to)}
	defer it.Close()
	return it.Range(from, each)
}

// Iterators read messages with their attempts: the two families have the same keys, so they advance in step.
type Iterators struct {
	messages, attempts storage.Iterator
}

// OpenKeys returns iterators each of whose ranges is the rest of a fairness key. Opening iterators costs more than a
// window read does with them.
func OpenKeys(store storage.Reader) Iterators {
	return Iterators{storage.ScanMessageKeys(store), storage.ScanKeys(store, storage.Attempts)}
}

// OpenNeighbours is OpenKeys for ranges that begin there, one of each fairness key. If they come in the order of the
// store, it steps from one to the next in place of looking each of them up: a start with very many keys takes two thirds of
// the CPU time then.
func OpenNeighbours(store storage.Reader, begins [][]byte) Iterators {
	if !slices.IsSortedFunc(begins, bytes.Compare) {
		return OpenKeys(store)
	}
	return Iterators{storage.ScanMessageKeysInOrder(store, begins[0]), storage.ScanKeysInOrder(store, storage.Attempts, begins[0])}
}

// Close frees the iterators.
func (it Iterators) Close() {
	it.messages.Close()
	it.attempts.Close()
}

// Range is Messages from a key on, as far as the iterators go. It tries to read the message after the last one, to tell
// whether there are more.
func (it Iterators) Range(from []byte, each func(*Record) (bool, error)) (more bool, err error) {
	another := it.attempts.Seek(from)
	var r Record
	for ok := it.messages.Seek(from); ok; ok = it.messages.Next() {
		if more { // each has returned false for the message before
			return true, nil
		}
		mk, err := storage.ParseMessageKey(it.messages.Key())
		if err != nil {
			return false, err
		}
		if err := r.decode(mk, it.messages.Value()); err != nil {
			return false, err
		}
		for another && string(it.attempts.Key()) < string(it.messages.Key()) {
			another = it.attempts.Next()
		}
		if another && string(it.attempts.Key()) == string(it.messages.Key()) {
			if err := r.decodeAttempt(it.attempts.Value()); err != nil {
				return false, err
			}
		}
		goOn, err := each(&r)
		if err != nil {
			return false, err
		}
		more = !goOn
	}
	if err := it.messages.Err(); err != nil {
		return false, err
	}
	return false, it.attempts.Err()
}

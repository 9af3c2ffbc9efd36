package storage

import "errors"

// What a store can answer. Stores wrap these with what was attempted, so compare with errors.Is.
var (
	// ErrNotFound says that a key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrFormat says that the data was written by a newer Fila, in a format this one does not know.
	ErrFormat = errors.New("unknown format version")
	// ErrLocked says that another process has the store open.
	ErrLocked = errors.New("store is in use by another fila process")
	// ErrCorrupt says that bytes read are not what was once written.
	ErrCorrupt = errors.New("corrupt")
	// ErrClosed says that the store was closed, or that its last Reopen failed.
	ErrClosed = errors.New("store is closed")
	// ErrReopen says that an earlier commit failed and that Reopen has to succeed before the next.
	ErrReopen = errors.New("store refuses writes until it is reopened")
	// ErrUnreadable says that a read failed, and that it was the store.
	ErrUnreadable = errors.New("the store cannot read")
	// ErrFull says that the disk has no space left.
	ErrFull = errors.New("the disk is full")
	// ErrSingleDelete says that a batch broke the contract of Batch.SingleDelete.
	ErrSingleDelete = errors.New("single delete of a key not written exactly once")
)

// Iterator walks the keys of one family in order, within the bounds given to
// Scan, and sees the store as it was when Scan was called.
//
//	for ok := it.Seek(from); ok; ok = it.Next() {
//		use(it.Key(), it.Value())
//	}
//	err := it.Err()
//
// It starts before the first key: Next without a Seek moves to the first one.
// It belongs to one goroutine. It must be closed, and soon: it holds back what
// the store would like to throw away, and a Reopen or Close waits for it.
type Iterator interface {
	// Seek moves to the first key that is not less than key, from wherever the
	// iterator stands. A key before the lower bound means the lower bound.
	Seek(key []byte) bool
	// Next moves on by one key. It is false at the end and after an error.
	Next() bool
	// Key returns the current key, valid until the next call and not to be changed.
	Key() []byte
	// Value returns the current value, valid until the next call and not to be changed.
	Value() []byte
	// Err returns what ended the walk early, or nil.
	Err() error
	// Close releases what the iterator holds. Closing twice is fine.
	Close()
}

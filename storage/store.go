package storage

import "errors"

// Errors of stores, wrapped with the failed operation: compare with errors.Is.
var (
	// ErrNotFound means that a key does not exist.
	ErrNotFound = errors.New("not found")
	// ErrFormat means that a newer version wrote the data, in an unknown format.
	ErrFormat = errors.New("unknown format version")
	// ErrLocked means that another process has the store open.
	ErrLocked = errors.New("store is in use by another fila process")
	// ErrCorrupt means that data read differs from what was written.
	ErrCorrupt = errors.New("corrupt")
	// ErrClosed means that the store was closed, or that its last Reopen failed.
	ErrClosed = errors.New("store is closed")
	// ErrReopen means that an earlier commit failed and Reopen must succeed before the
	// next.
	ErrReopen = errors.New("store refuses writes until it is reopened")
	// ErrUnreadable means that the store failed to read.
	ErrUnreadable = errors.New("the store cannot read")
	// ErrFull means that the disk has no free space.
	ErrFull = errors.New("the disk is full")
	// ErrDeposed means that another node of the cluster leads, or may lead: this one writes
	// nothing any more.
	ErrDeposed = errors.New("this node no longer leads")
	// ErrSingleDelete means that a batch violates the contract of Batch.SingleDelete.
	ErrSingleDelete = errors.New("single delete of a key not written exactly once")
)

// Iterator iterates over the keys of one family in order, within the bounds given to
// Scan, on a snapshot taken by Scan.
//
//	for ok := it.Seek(from); ok; ok = it.Next() {
//		use(it.Key(), it.Value())
//	}
//	err := it.Err()
//
// It starts before the first key: Next without a Seek moves to the first one. One
// goroutine may use it. Close it soon: it retains data that the store would otherwise
// delete, and Reopen and Close wait for it.
type Iterator interface {
	// Seek moves to the first key at or after key, from any position. A key before the
	// lower bound counts as the bound. It reports whether there is such a key.
	Seek(key []byte) bool
	// Next moves to the next key. It returns false at the end and after an error.
	Next() bool
	// Key returns the current key, valid until the next step and read-only.
	Key() []byte
	// Value returns the current value, valid until the next step and read-only.
	Value() []byte
	// Err returns the error that ended the iteration, or nil.
	Err() error
	// Close releases the snapshot. Further calls do nothing.
	Close()
}

// KeysOnly returns an iterator whose values are not wanted from now on: its Value must not be called.
// Where a store can, it then fetches many keys at a time.
func KeysOnly(it Iterator) Iterator {
	if k, ok := it.(interface{ KeysOnly() }); ok {
		k.KeysOnly()
	}
	return it
}

package storage

import (
	"bytes"
	"errors"
)

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
	// ErrForeign means that the directory of a new store holds files of something else.
	ErrForeign = errors.New("not files of a store")
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
	// Before moves to the last key before key, from any position, also from the current key to the one
	// before it. A key after the upper bound counts as the bound. It reports whether there is such a key.
	// Only iterators of the family results have it: the others are read forward.
	Before(key []byte) bool
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

// ScanKeys returns an iterator for many ranges of the family messages or attempts, each within one
// fairness key. A Seek to a message key, in any order, begins a range: it moves to the first key at or
// after it that has the same fairness key, and Next ends with that fairness key. Next must follow a Seek.
// A store that has a method of this name shows all ranges as they were at the call, and the iterator
// costs it less than one for each range; of another store a range is as it was at its Seek.
func ScanKeys(store Reader, f Family) Iterator {
	if s, ok := store.(interface{ ScanKeys(f Family) Iterator }); ok {
		return s.ScanKeys(f)
	}
	return &keyRanges{store: store, family: f}
}

// ScanKeysInOrder is ScanKeys for ranges in the order of their fairness keys, each of another one, where few keys of the
// family lie between them: it steps on from one range to the next, and looks up those that are further away.
func ScanKeysInOrder(store Reader, f Family, from []byte) Iterator {
	return &adjacentRanges{Iterator: store.Scan(f, from, nil)}
}

// adjacentRanges steps from range to range.
type adjacentRanges struct {
	Iterator

	prefix []byte // of the keys of the range
	stands bool   // the iterator is at a key: in the range, or the first one behind it
	ended  bool   // there is no key behind the ranges that were read
}

// adjacentSteps is how many keys are passed to come to the next range: a look-up costs about as much.
const adjacentSteps = 4

// Seek implements Iterator.
func (r *adjacentRanges) Seek(key []byte) bool {
	r.prefix = append(r.prefix[:0], key[:KeyPrefixLen(key)]...)
	for range adjacentSteps {
		if !r.stands || string(r.Key()) >= string(key) {
			break
		}
		r.moved(r.Iterator.Next())
	}
	if !r.ended && (!r.stands || string(r.Key()) < string(key)) {
		r.moved(r.Iterator.Seek(key))
	}
	return r.within()
}

// Next implements Iterator.
func (r *adjacentRanges) Next() bool {
	if r.stands {
		r.moved(r.Iterator.Next())
	}
	return r.within()
}

func (r *adjacentRanges) moved(stands bool) { r.stands, r.ended = stands, !stands }

func (r *adjacentRanges) within() bool { return r.stands && bytes.HasPrefix(r.Key(), r.prefix) }

// GetMany returns the values of the first of some keys, those that the store can read at a time within room
// bytes: of the first n, or none where the store has no method of this name. Get reads the next one, and
// any error.
func GetMany(store Reader, f Family, keys [][]byte, room int) [][]byte {
	s, ok := store.(interface {
		GetMany(f Family, keys [][]byte, room int) [][]byte
	})
	if !ok {
		return nil
	}
	return s.GetMany(f, keys, room)
}

// keyRanges opens an iterator for each range.
type keyRanges struct {
	Iterator

	store  Reader
	family Family
}

// Seek implements Iterator.
func (r *keyRanges) Seek(key []byte) bool {
	r.Close()
	r.Iterator = r.store.Scan(r.family, key, After(key[:KeyPrefixLen(key)]))
	return r.Iterator.Seek(key)
}

// Err implements Iterator.
func (r *keyRanges) Err() error {
	if r.Iterator == nil {
		return nil
	}
	return r.Iterator.Err()
}

// Close implements Iterator.
func (r *keyRanges) Close() {
	if r.Iterator != nil {
		r.Iterator.Close()
	}
}

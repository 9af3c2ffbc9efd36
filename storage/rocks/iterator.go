//go:build cgo

package rocks

import (
	"bytes"
	"fmt"
	"runtime"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// iterator implements storage.Iterator. It fetches key and value on request and copies them into
// reused buffers: RocksDB's memory is invalid after the next step, and a caller must not be able to
// modify it.
//
// States, with the steps that lead from one to another:
//
//	before ──Seek, Next──▶ on ──Next, Seek──▶ on
//	   │                    │
//	   └─────no key─────────┴──▶ after ──Seek──▶ on, unless it has failed or is closed
//
// It sees the store as it was when it was opened, whatever is written meanwhile, and keeps what it
// sees from being freed: files that a compaction has replaced stay on disk until Close.
type iterator struct {
	store    *Store
	it       *grocksdb.Iterator // nil if the range is empty, and after Close
	options  *grocksdb.ReadOptions
	pinner   runtime.Pinner // pins to, whose address RocksDB keeps
	family   storage.Family
	from, to []byte

	ahead *keysAhead // nil: values may be wanted

	at         position
	hasKey     bool // key holds the key of the current position
	hasValue   bool
	key, value []byte
	err        error
}

type position uint8

const (
	before position = iota // no Seek and no Next yet
	on                     // a key
	after                  // past the end, after an error, or closed
)

// Scan returns an iterator over a snapshot of the keys of a family in [from, to); a nil to means no
// end. An error of opening it is returned by Err. The iterator holds the database until Close.
func (s *Store) Scan(f storage.Family, from, to []byte) storage.Iterator {
	d, err := s.acquire()
	if err != nil {
		return &iterator{at: after, err: fmt.Errorf("%w: scan %s: %w", storage.ErrUnreadable, f, err)}
	}
	if d.families[f] == nil || to != nil && bytes.Compare(from, to) >= 0 {
		s.release()
		return &iterator{at: after}
	}
	i := &iterator{store: s, family: f, from: bytes.Clone(from), to: bytes.Clone(to)}
	if to == nil {
		i.it = d.db.NewIteratorCF(d.readAll, d.families[f])
		return i
	}
	i.pinner.Pin(&i.to[0]) // to is greater than from, so it is not empty
	i.options = grocksdb.NewDefaultReadOptions()
	i.options.SetIterateUpperBound(i.to)
	i.options.SetTotalOrderSeek(!withinKeyPrefix(f, from, to))
	i.it = d.db.NewIteratorCF(i.options, d.families[f])
	return i
}

// ScanKeys implements storage.ScanKeys: RocksDB ends a range with the prefix of its Seek.
func (s *Store) ScanKeys(f storage.Family) storage.Iterator {
	d, err := s.acquire()
	if err != nil {
		return &iterator{at: after, err: fmt.Errorf("%w: scan %s: %w", storage.ErrUnreadable, f, err)}
	}
	return &iterator{store: s, family: f, it: d.db.NewIteratorCF(d.readKeys, d.families[f])}
}

// Seek moves to the first key at or after key within the range, and reports whether there is one.
func (i *iterator) Seek(key []byte) bool {
	if i.it == nil || i.err != nil {
		return false
	}
	if bytes.Compare(key, i.from) < 0 {
		key = i.from
	}
	if i.to != nil && bytes.Compare(key, i.to) >= 0 {
		i.hasKey, i.hasValue = false, false
		i.at = after
		return false
	}
	i.ahead.drop()
	i.it.Seek(key)
	return i.moved()
}

// Next moves to the next key, at first to the first one, and reports whether there is one.
func (i *iterator) Next() bool {
	switch i.at {
	case before:
		return i.Seek(nil)
	case on:
		if i.ahead != nil {
			return i.nextAhead()
		}
		i.it.Next()
		return i.moved()
	case after:
	}
	return false
}

// Before moves to the last key before key within the range, and reports whether there is one.
func (i *iterator) Before(key []byte) bool {
	if i.it == nil || i.err != nil {
		return false
	}
	if i.to != nil && bytes.Compare(key, i.to) > 0 {
		key = i.to
	}
	i.ahead.drop()
	if i.at != on || !bytes.Equal(i.Key(), key) {
		i.it.SeekForPrev(key) // may be at the key itself
	}
	if i.it.Valid() && bytes.Equal(i.it.Key().Data(), key) {
		i.it.Prev()
	}
	return i.moved() && i.within()
}

// within ends the iteration at a key before the range.
func (i *iterator) within() bool {
	if bytes.Compare(i.Key(), i.from) < 0 {
		i.hasKey, i.at = false, after
	}
	return i.at == on
}

// moved updates the state after a step of RocksDB's iterator.
func (i *iterator) moved() bool {
	i.hasKey, i.hasValue = false, false
	if i.it.Valid() {
		i.at = on
		return true
	}
	i.at = after
	if err := i.it.Err(); err != nil {
		i.err = fmt.Errorf("%w: scan %s: %w", storage.ErrUnreadable, i.family, rocksError(err))
	}
	return false
}

// Key returns the current key, valid until the next step, or nil.
func (i *iterator) Key() []byte {
	if i.at != on {
		return nil
	}
	if !i.hasKey {
		i.key = append(i.key[:0], i.it.Key().Data()...)
		i.hasKey = true
	}
	return i.key
}

// Value returns the current value, valid until the next step, or nil; it is nil after KeysOnly.
func (i *iterator) Value() []byte {
	if i.at != on || i.ahead != nil {
		return nil
	}
	if !i.hasValue {
		i.value = append(i.value[:0], i.it.Value().Data()...)
		i.hasValue = true
	}
	return i.value
}

// Err returns the error that ended the iteration, or nil.
func (i *iterator) Err() error { return i.err }

// Close frees the iterator and releases the database. Further calls do nothing.
func (i *iterator) Close() {
	i.at = after
	if i.it == nil {
		return
	}
	i.it.Close()
	i.it = nil
	if i.options != nil {
		i.options.Destroy()
		i.pinner.Unpin()
	}
	i.store.release()
}

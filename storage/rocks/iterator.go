package rocks

import (
	"bytes"
	"fmt"
	"runtime"

	"github.com/linxGnu/grocksdb"

	"github.com/faisca/fila/storage"
)

// iterator walks a family. Keys and values are fetched when they are asked
// for, and copied into buffers that are used again: RocksDB's own memory is
// gone with the next step, and a caller must not be able to touch that.
type iterator struct {
	store    *Store
	it       *grocksdb.Iterator // nil once closed, and when there is nothing to see
	options  *grocksdb.ReadOptions
	pinner   runtime.Pinner // RocksDB keeps the address of the upper bound
	family   storage.Family
	from, to []byte

	at         position
	hasKey     bool // key is that of the current position
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

// Scan returns an iterator over the keys of a family from one (included) to
// another (excluded, or nil for no end), as they are now.
func (s *Store) Scan(f storage.Family, from, to []byte) storage.Iterator {
	d, err := s.enter()
	if err != nil {
		return &iterator{at: after, err: fmt.Errorf("%w: scan %s: %w", storage.ErrUnreadable, f, err)}
	}
	if d.families[f] == nil || to != nil && bytes.Compare(from, to) >= 0 {
		s.leave()
		return &iterator{at: after}
	}
	i := &iterator{store: s, family: f, from: bytes.Clone(from), to: bytes.Clone(to)}
	if to == nil {
		i.it = d.db.NewIteratorCF(d.read, d.families[f])
		return i
	}
	i.pinner.Pin(&i.to[0]) // to is greater than from, so it is not empty
	i.options = grocksdb.NewDefaultReadOptions()
	i.options.SetIterateUpperBound(i.to)
	i.options.SetTotalOrderSeek(!inHead(f, from, to))
	i.it = d.db.NewIteratorCF(i.options, d.families[f])
	return i
}

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
	i.it.Seek(key)
	return i.moved()
}

func (i *iterator) Next() bool {
	switch i.at {
	case before:
		return i.Seek(nil)
	case on:
		i.it.Next()
		return i.moved()
	case after:
	}
	return false
}

// moved looks where the iterator is now.
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

func (i *iterator) Value() []byte {
	if i.at != on {
		return nil
	}
	if !i.hasValue {
		i.value = append(i.value[:0], i.it.Value().Data()...)
		i.hasValue = true
	}
	return i.value
}

func (i *iterator) Err() error { return i.err }

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
	i.store.leave()
}

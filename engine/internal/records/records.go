// Package records reads the records of the family State that are named by texts.
package records

import (
	"fmt"
	"slices"

	"github.com/faisca/fila/storage"
)

// Scanner is what iterates over the records of a store.
type Scanner interface {
	Scan(f storage.Family, from, to []byte) storage.Iterator
}

// Each visits the records whose keys begin with a name and have some more parts, in the order of their keys. The value is valid
// during the visit. An error of a visit ends the scan, and so does a key with other parts; it names the record by what it is.
func Each(store Scanner, what, name string, parts int, visit func(parts []string, value []byte) error) error {
	prefix := storage.AppendStateKey(nil, name)
	it := store.Scan(storage.State, prefix, storage.After(prefix))
	defer it.Close()
	for ok := it.Seek(prefix); ok; ok = it.Next() {
		all, err := storage.ParseStateKey(it.Key())
		if err != nil || len(all) != parts+1 {
			return fmt.Errorf("%s %q: %w", what, it.Key(), storage.ErrCorrupt)
		}
		if err := visit(all[1:], it.Value()); err != nil {
			return fmt.Errorf("%s %q: %w", what, all[1:], err)
		}
	}
	return it.Err()
}

// Key returns the key of a record with a name and more parts.
func Key(name string, parts []string) []byte {
	return storage.AppendStateKey(nil, slices.Insert(slices.Clone(parts), 0, name)...)
}

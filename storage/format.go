package storage

import (
	"errors"
	"fmt"
	"strconv"
)

// FormatVersion is the format that this Fila writes. It goes up when an older
// Fila would misread the data: fields that are added to a record do not count.
const FormatVersion = 1

// formatKey is where the version stands, in the family Default.
const formatKey = "format"

// PutFormat adds the format record to a batch. A store commits it, synced, as
// the first thing in a new directory.
func PutFormat(b *Batch) {
	b.Put(Default, []byte(formatKey), strconv.AppendInt(nil, FormatVersion, 10))
}

// CheckFormat reads the format record through a store's Get. It returns
// ErrNotFound when there is none (the store is new), ErrFormat when a newer
// Fila wrote it, and ErrCorrupt when it is no version.
func CheckFormat(get func(f Family, key []byte) ([]byte, error)) error {
	value, err := get(Default, []byte(formatKey))
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			return ErrNotFound
		}
		return fmt.Errorf("read the format version: %w", err)
	}
	version, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil || version == 0 {
		return fmt.Errorf("format version %.40q: %w", value, ErrCorrupt)
	}
	if version > FormatVersion {
		return fmt.Errorf("%w: the data is in format %d, this fila knows formats up to %d; run a newer fila",
			ErrFormat, version, FormatVersion)
	}
	return nil
}

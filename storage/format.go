package storage

import (
	"errors"
	"fmt"
	"strconv"
)

// FormatVersion is the format that this version writes. It is increased when an older
// version would misread the data; new fields in records do not count.
const FormatVersion = 1

// ReplicaFormatVersion is the first format of the store of a node of a cluster. What an older version, or
// a broker without replication, wrote into it would not be in the stores of the other nodes. Later
// formats, up to ReplicaFormatNewest, come with the replicated log.
const ReplicaFormatVersion = 2

// formatKey is the key of the version in the family Default.
const formatKey = "format"

// PutFormat adds the format record to a batch. A store commits it, synced, first of all.
func PutFormat(b *Batch) {
	b.Put(Default, []byte(formatKey), strconv.AppendInt(nil, FormatVersion, 10))
}

// PutReplicaFormat adds the format record of the store of a node to a batch.
func PutReplicaFormat(b *Batch, version uint32) {
	b.Put(Default, []byte(formatKey), strconv.AppendUint(nil, uint64(version), 10))
}

// CheckFormat reads the format record through a store's Get. It returns ErrNotFound if
// there is none (a new store), ErrFormat if it is newer, and ErrCorrupt if it is invalid.
func CheckFormat(get func(f Family, key []byte) ([]byte, error)) error {
	_, err := FormatOf(get)
	return err
}

// FormatOf returns the format version of a store, with the errors of CheckFormat.
func FormatOf(get func(f Family, key []byte) ([]byte, error)) (uint64, error) {
	value, err := get(Default, []byte(formatKey))
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			return 0, ErrNotFound
		}
		return 0, fmt.Errorf("read the format version: %w", err)
	}
	version, err := strconv.ParseUint(string(value), 10, 32)
	if err != nil || version == 0 {
		return 0, fmt.Errorf("format version %.40q: %w", value, ErrCorrupt)
	}
	if version > ReplicaFormatNewest {
		return 0, fmt.Errorf("%w: the data is in format %d, this fila knows formats up to %d; run a newer fila",
			ErrFormat, version, ReplicaFormatNewest)
	}
	return version, nil
}

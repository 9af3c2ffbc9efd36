package files

import (
	"encoding/binary"
	"fmt"
)

// Batch is a batch of a log.
type Batch struct {
	At     int64  // offset of its record
	First  uint64 // sequence number of its first write
	Writes uint64
	// Records is the batch without its sequence number and without what it says of the log, as
	// package storage has made it. It belongs to the one that it was given to.
	Records []byte

	marked    bool
	log, from uint64
}

// Synced returns the offset up to which the log with this number, the one of the batch, was surely
// synced when the batch was written.
func (b *Batch) Synced(log uint64) int64 {
	switch {
	case !b.marked:
		return b.At
	case b.log == log:
		return int64(b.from)
	}
	return 0 // the mark is about the log before
}

const (
	batchHeader = 12 // sequence number 8 | count 4, little-endian

	// A batch that was written behind bytes that were not synced begins with such a record, which
	// RocksDB keeps in the log alone (writer.cc): number of the log 8 | offset of these bytes 8.
	logData   = 3
	markBytes = 16
)

// ReadBatches is ReadLog for a log of batches. A record that is no batch is given with an error.
func ReadBatches(path string, take func(b Batch, err error) error) (Log, error) {
	return ReadLog(path, func(at int64, record []byte) error {
		b, err := parseBatch(record)
		b.At = at
		return take(b, err)
	})
}

func parseBatch(record []byte) (b Batch, err error) {
	if len(record) < batchHeader {
		return b, fmt.Errorf("a batch of %d bytes", len(record))
	}
	b.First, b.Writes = binary.LittleEndian.Uint64(record), uint64(binary.LittleEndian.Uint32(record[8:]))
	clear(record[:8])
	if m := record[batchHeader:]; len(m) >= 2+markBytes && m[0] == logData && m[1] == markBytes {
		b.marked, b.log, b.from = true, binary.LittleEndian.Uint64(m[2:]), binary.LittleEndian.Uint64(m[10:])
		copy(record[2+markBytes:], record[:batchHeader])
		record = record[2+markBytes:]
	}
	b.Records = record
	return b, nil
}

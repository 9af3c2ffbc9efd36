package files

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
)

const (
	logBlock  = 32 << 10
	logHeader = 7

	logWhole, logFirst, logMiddle, logLast = 1, 2, 3, 4
)

// Log is what was found in a file of records.
type Log struct {
	Records int
	// Damage is where bytes are no record although sound records follow.
	Damage []int64
	// BadEnd is where the last record begins if all of its bytes are there and do not
	// match its checksum; else -1.
	BadEnd int64
	// Torn says that the file ends within a record, which is what a crash leaves.
	Torn bool
}

// ReadLog hands on every whole record of a file, with where it begins. The bytes are
// the callee's to keep.
func ReadLog(path string, take func(offset int64, record []byte) error) (Log, error) {
	data, err := os.ReadFile(path) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return Log{}, err
	}
	return readLog(data, take)
}

func readLog(data []byte, take func(offset int64, record []byte) error) (Log, error) {
	r := logReader{Log: Log{BadEnd: -1}, data: data, lost: -1, take: take}
	for at := 0; at < len(data); {
		if left := logBlock - at%logBlock; left < logHeader {
			at += left
			continue
		}
		kind, body, ok := fragment(data, at)
		if !ok {
			at = r.skip(at)
			continue
		}
		if err := r.fragment(at, kind, body); err != nil {
			return r.Log, err
		}
		at += logHeader + len(body)
	}
	if r.lost >= 0 || r.open {
		r.Torn = r.BadEnd < 0
	}
	return r.Log, nil
}

// logReader puts records together from fragments.
type logReader struct {
	Log
	data  []byte
	take  func(offset int64, record []byte) error
	lost  int64 // where bytes begin that are no fragment; -1: there are none
	open  bool  // a record has begun
	begun int64
	parts []byte
}

func (r *logReader) fragment(at int, kind byte, body []byte) error {
	if r.lost >= 0 {
		r.Damage = append(r.Damage, r.lost)
		r.lost, r.BadEnd, r.open = -1, -1, false
	}
	switch {
	case kind == logWhole || kind == logFirst:
		if r.open {
			r.Damage = append(r.Damage, r.begun)
		}
		r.begun, r.open, r.parts = int64(at), true, append([]byte(nil), body...)
	case r.open:
		r.parts = append(r.parts, body...)
	default: // its start is in the damage before it
	}
	if !r.open || kind != logWhole && kind != logLast {
		return nil
	}
	r.open = false
	r.Records++
	return r.take(r.begun, r.parts)
}

// skip returns the next place where a fragment is, or the next block.
func (r *logReader) skip(at int) int {
	end := min(at-at%logBlock+logBlock, len(r.data))
	if zeros(r.data[at:end]) { // a file may be longer than what was written to it
		return end
	}
	if r.lost < 0 {
		r.lost = int64(at)
		if r.BadEnd < 0 && complete(r.data, at) {
			r.BadEnd = r.lost
		}
	}
	for next := at + 1; next+logHeader <= end; next++ {
		if _, _, ok := fragment(r.data, next); ok {
			return next
		}
	}
	return end
}

// complete tells whether a fragment has all of its bytes, whatever its checksum and its kind
// are: RocksDB takes it for damage then, and else for the end.
func complete(data []byte, at int) bool {
	if at+logHeader > len(data) {
		return false
	}
	n, kind := int(binary.LittleEndian.Uint16(data[at+4:])), data[at+6]
	end := at + logHeader + n
	return (kind != 0 || n != 0) && end <= len(data) && at/logBlock == (end-1)/logBlock
}

// fragment returns the fragment at a place, if there is a whole one.
func fragment(data []byte, at int) (kind byte, body []byte, ok bool) {
	if at+logHeader > len(data) {
		return 0, nil, false
	}
	n := int(binary.LittleEndian.Uint16(data[at+4:]))
	kind = data[at+6]
	end := at + logHeader + n
	if kind < logWhole || kind > logLast || end > len(data) || at/logBlock != (end-1)/logBlock {
		return 0, nil, false
	}
	if masked(checksumCRC(data[at+6:end])) != binary.LittleEndian.Uint32(data[at:]) {
		return 0, nil, false
	}
	return kind, data[at+logHeader : end], true
}

func checksumCRC(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// masked is how RocksDB stores a CRC.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

const batchHeader = 12 // sequence number 8 | count 4, little-endian

// Sequence returns the number of the first write of a batch and how many it holds.
func Sequence(batch []byte) (first, n uint64, err error) {
	if len(batch) < batchHeader {
		return 0, 0, fmt.Errorf("a batch of %d bytes", len(batch))
	}
	return binary.LittleEndian.Uint64(batch), uint64(binary.LittleEndian.Uint32(batch[8:])), nil
}

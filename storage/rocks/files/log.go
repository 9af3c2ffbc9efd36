package files

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

const (
	// Sizes in bytes.
	logBlock  = 32 << 10
	logHeader = 7

	// Kinds of fragments.
	logWhole, logFirst, logMiddle, logLast = 1, 2, 3, 4
)

// Log is the result of reading a file of records.
type Log struct {
	Records int
	// Damage lists the offsets of unreadable bytes that are followed by intact records.
	Damage []int64
	// BadEnd is the offset of what follows the last intact record if it has a record that is
	// complete but does not match its checksum, else -1.
	BadEnd int64
	// Torn means that the file ends within a record, as after a crash.
	Torn bool
	// Open is the offset of a record that does not go on after one of its fragments: zeros follow.
	// RocksDB takes that for damage. -1: there is none, or it is followed by an intact record.
	Open int64
	// Unkept is the last offset in the first unreadable fragment, or of the zeros behind Open, from
	// which on a sector is zero to its end: what there is of it in a file that was full of zeros if a
	// disk has not kept a write. -1: there is none.
	Unkept int64
	Bytes  int64 // size of the file
}

// ReadLog calls take for every intact record, in order, with its offset. take owns the
// bytes; its error ends the reading and is returned. Damage is reported in the result,
// not as an error.
func ReadLog(path string, take func(offset int64, record []byte) error) (Log, error) {
	data, err := os.ReadFile(path) //nolint:gosec // below the directory that the operator chose
	if err != nil {
		return Log{}, err
	}
	return readLog(data, take)
}

func readLog(data []byte, take func(offset int64, record []byte) error) (Log, error) {
	r := logReader{Log: Log{BadEnd: -1, Open: -1, Unkept: -1, Bytes: int64(len(data))}, data: data, lost: -1, zeros: -1, take: take}
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
	switch first := r.first(); {
	case first >= 0:
		r.Unkept = unkept(data, int(first))
	case r.open && r.zeros >= 0:
		r.Open, r.Unkept = r.begun, r.zeros
	case r.open && r.lost >= 0 && zeros(data[r.lost:min(int(r.lost)+logHeader, len(data))]):
		r.Open, r.Unkept = r.begun, r.lost
	}
	return r.Log, nil
}

// first returns the first offset of Damage, or BadEnd if that is before it.
func (l *Log) first() int64 {
	if len(l.Damage) > 0 && (l.BadEnd < 0 || l.Damage[0] < l.BadEnd) {
		return l.Damage[0]
	}
	return l.BadEnd
}

// sector is the least that a disk writes.
const sector = 512

// unkept returns the last offset of the fragment at an offset from which on a sector is zero to its
// end, or -1.
func unkept(data []byte, at int) (last int64) {
	end := min(at+logHeader, len(data))
	if !zeros(data[at:end]) && end == at+logHeader {
		end = min(end+int(binary.LittleEndian.Uint16(data[at+4:])), at-at%logBlock+logBlock, len(data))
	}
	last = -1
	for at < end {
		next := min(at-at%sector+sector, len(data))
		if zeros(data[at:next]) {
			last = int64(at)
		}
		at = next
	}
	return last
}

// logReader assembles records from fragments. Its states: between records; open, inside a
// record; headless, inside one whose beginning is lost; lost, inside unreadable bytes, which an
// intact fragment ends. Zeros up to the end of the file are room that was reserved; zeros that
// anything follows are unreadable bytes.
type logReader struct {
	Log
	data  []byte
	take  func(offset int64, record []byte) error
	lost  int64 // offset of the current unreadable bytes; -1: none
	zeros int64 // offset of the current zeros; -1: none
	open  bool  // a record has begun and not ended
	begun int64
	parts []byte

	headless bool // the beginning of the current record is lost
}

// fragment processes one intact fragment and emits the record that it completes.
func (r *logReader) fragment(at int, kind byte, body []byte) error {
	r.endZeros()
	if r.lost >= 0 {
		r.Damage = append(r.Damage, r.lost)
		r.lost, r.BadEnd, r.open, r.headless = -1, -1, false, true
	}
	switch {
	case kind == logWhole || kind == logFirst:
		if r.open {
			r.Damage = append(r.Damage, r.begun)
		}
		r.begun, r.open, r.parts, r.headless = int64(at), true, append([]byte(nil), body...), false
	case r.open:
		r.parts = append(r.parts, body...)
	case !r.headless:
		r.Damage, r.headless = append(r.Damage, int64(at)), true
	}
	if !r.open || kind != logWhole && kind != logLast {
		return nil
	}
	r.open = false
	r.Records++
	return r.take(r.begun, r.parts)
}

// endZeros takes zeros that something follows for unreadable bytes.
func (r *logReader) endZeros() {
	if r.zeros >= 0 && r.lost < 0 {
		r.lost = r.zeros
	}
	r.zeros = -1
}

// skip records unreadable bytes and returns the offset of the next intact fragment, or of
// the next block.
func (r *logReader) skip(at int) int {
	end := min(at-at%logBlock+logBlock, len(r.data))
	if zeros(r.data[at:end]) {
		if r.zeros < 0 {
			r.zeros = int64(at)
		}
		return end
	}
	r.endZeros()
	if r.lost < 0 {
		r.lost = int64(at)
	}
	// Also in a later block: RocksDB goes on there if this one begins with zeros.
	if r.BadEnd < 0 && complete(r.data, at) {
		r.BadEnd = r.lost
	}
	for next := at + 1; next+logHeader <= end; next++ {
		if _, _, ok := fragment(r.data, next); ok {
			return next
		}
	}
	return end
}

// complete reports whether all bytes of a fragment are present, regardless of checksum
// and kind. RocksDB treats a complete but wrong fragment as damage, and an incomplete one
// as the end of the log.
func complete(data []byte, at int) bool {
	if at+logHeader > len(data) {
		return false
	}
	n, kind := int(binary.LittleEndian.Uint16(data[at+4:])), data[at+6]
	end := at + logHeader + n
	return (kind != 0 || n != 0) && end <= len(data) && at/logBlock == (end-1)/logBlock
}

// fragment parses the fragment at an offset; ok is false unless it is complete and
// matches its checksum.
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

// masked applies RocksDB's masking of stored CRCs.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

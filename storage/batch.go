package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// Op is the operation of a record, with the values of RocksDB's WriteBatch in their
// variants with a column family.
type Op uint8

// The operations of a batch.
const (
	OpDelete       Op = 0x04
	OpPut          Op = 0x05
	OpSingleDelete Op = 0x08
	OpDeleteRange  Op = 0x0E
)

// String returns the operation's name.
func (op Op) String() string {
	switch op {
	case OpDelete:
		return "delete"
	case OpPut:
		return "put"
	case OpSingleDelete:
		return "single delete"
	case OpDeleteRange:
		return "delete range"
	}
	return fmt.Sprintf("operation %#x", uint8(op))
}

const (
	batchHeader  = 12      // sequence number (8), count of records (4), both little-endian
	batchKeepMax = 8 << 20 // bytes of capacity that survive a Reset
)

// Batch is one atomic write in RocksDB's own WriteBatch representation: the store passes
// it on in one call, however many records it has, and building it only appends bytes to a
// buffer.
//
// The zero value is ready for use. One goroutine at a time may use a batch.
type Batch struct {
	buf    []byte // header and records; the header's count is patched by Bytes
	count  uint32
	ranges bool // there is a range delete
}

// Record is one operation of a batch.
type Record struct {
	Op     Op
	Family Family
	Key    []byte
	Value  []byte // value of a put, end of a range delete, otherwise nil
}

// Put writes a value. Key and value are copied.
func (b *Batch) Put(f Family, key, value []byte) {
	b.start(OpPut, f)
	b.bytes(key)
	b.bytes(value)
}

// Delete removes a key, whether it exists or not.
func (b *Batch) Delete(f Family, key []byte) {
	b.start(OpDelete, f)
	b.bytes(key)
}

// SingleDelete removes a key that exists and was put exactly once since it last did not
// exist. It is cheaper than Delete: RocksDB drops both records as soon as they meet in a
// compaction. For any other key the result is undefined and an older value may reappear.
// The memory store verifies this contract.
func (b *Batch) SingleDelete(f Family, key []byte) {
	b.start(OpSingleDelete, f)
	b.bytes(key)
}

// DeleteRange removes the keys in [from, to). An empty range adds no record, because
// RocksDB refuses one only after it has logged it. There is no unbounded range: an empty
// to is a programming error and panics.
func (b *Batch) DeleteRange(f Family, from, to []byte) {
	if len(to) == 0 {
		panic("storage: range delete without an end")
	}
	if bytes.Compare(from, to) >= 0 {
		return
	}
	b.ranges = true
	b.start(OpDeleteRange, f)
	b.bytes(from)
	b.bytes(to)
}

// Append appends the records of another batch. RocksDB inserts a run of neighbouring keys
// for a third less than alternating ones, so collect the puts and the deletes of a turn
// separately where their order does not matter, and join them at its end.
func (b *Batch) Append(other *Batch) {
	if other.count == 0 {
		return
	}
	if uint64(b.count)+uint64(other.count) > math.MaxUint32 {
		panic("storage: batch has too many records")
	}
	b.header()
	b.buf = append(b.buf, other.buf[batchHeader:]...)
	b.count += other.count
	b.ranges = b.ranges || other.ranges
}

// Len returns the number of records.
func (b *Batch) Len() int { return int(b.count) }

// DeletesRange reports whether a record deletes a range.
func (b *Batch) DeletesRange() bool { return b.ranges }

// Size returns the length of Bytes.
func (b *Batch) Size() int { return max(len(b.buf), batchHeader) }

// Bytes returns the batch in RocksDB's representation, valid until the next change of the
// batch.
func (b *Batch) Bytes() []byte {
	b.header()
	binary.LittleEndian.PutUint32(b.buf[8:], b.count)
	return b.buf
}

// Reset empties the batch and keeps its memory up to batchKeepMax.
func (b *Batch) Reset() {
	b.count, b.ranges = 0, false
	if cap(b.buf) > batchKeepMax {
		b.buf = nil
		return
	}
	b.buf = b.buf[:0]
}

// Each calls fn with every record in order, until its first error, which it returns. The
// slices of a record alias the batch.
func (b *Batch) Each(fn func(Record) error) error {
	rest := b.buf[min(batchHeader, len(b.buf)):]
	for len(rest) > 0 {
		var r Record
		var err error
		if r, rest, err = nextRecord(rest); err != nil {
			return err
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// ParseBatch validates a representation and returns a batch with a copy of it. It returns
// ErrCorrupt for anything that Batch cannot build.
func ParseBatch(rep []byte) (*Batch, error) { return AdoptBatch(bytes.Clone(rep)) }

// AdoptBatch is ParseBatch without the copy: rep belongs to the batch afterwards, which changes
// and extends it. After an error nothing of rep has changed.
func AdoptBatch(rep []byte) (*Batch, error) {
	if len(rep) < batchHeader {
		return nil, fmt.Errorf("batch of %d bytes: %w", len(rep), ErrCorrupt)
	}
	if binary.LittleEndian.Uint64(rep) != 0 {
		return nil, fmt.Errorf("batch with a sequence number: %w", ErrCorrupt)
	}
	count := binary.LittleEndian.Uint32(rep[8:])
	var seen uint64
	ranges := false
	for rest := rep[batchHeader:]; len(rest) > 0; seen++ {
		var r Record
		var err error
		if r, rest, err = nextRecord(rest); err != nil {
			return nil, fmt.Errorf("batch record %d: %w", seen, err)
		}
		ranges = ranges || r.Op == OpDeleteRange
	}
	if seen != uint64(count) {
		return nil, fmt.Errorf("batch of %d records says it has %d: %w", seen, count, ErrCorrupt)
	}
	return &Batch{buf: rep, count: count, ranges: ranges}, nil
}

func (b *Batch) header() {
	if len(b.buf) == 0 {
		b.buf = append(b.buf, make([]byte, batchHeader)...)
	}
}

func (b *Batch) start(op Op, f Family) {
	if f >= FamilyCount {
		panic("storage: " + f.String() + " does not exist")
	}
	if b.count == math.MaxUint32 {
		panic("storage: batch has too many records")
	}
	b.header()
	b.count++
	// A family's number is below 128, so it is its own varint.
	b.buf = append(b.buf, byte(op), byte(f))
}

func (b *Batch) bytes(p []byte) {
	if uint64(len(p)) > math.MaxUint32 {
		panic("storage: key or value of 4 GiB")
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(p)))
	b.buf = append(b.buf, p...)
}

var errShortRecord = fmt.Errorf("truncated record: %w", ErrCorrupt)

// nextRecord parses the first record of p and returns the rest.
func nextRecord(p []byte) (Record, []byte, error) {
	if len(p) < 2 {
		return Record{}, nil, errShortRecord
	}
	r := Record{Op: Op(p[0]), Family: Family(p[1])}
	if r.Family >= FamilyCount {
		return Record{}, nil, fmt.Errorf("%s does not exist: %w", r.Family, ErrCorrupt)
	}
	var err error
	if r.Key, p, err = nextBytes(p[2:]); err != nil {
		return Record{}, nil, err
	}
	switch r.Op {
	case OpDelete, OpSingleDelete:
		return r, p, nil
	case OpPut:
		r.Value, p, err = nextBytes(p)
	case OpDeleteRange:
		r.Value, p, err = nextBytes(p)
		if err == nil && bytes.Compare(r.Key, r.Value) >= 0 {
			err = fmt.Errorf("range delete ends before it starts: %w", ErrCorrupt)
		}
	default:
		err = fmt.Errorf("%s does not exist: %w", r.Op, ErrCorrupt)
	}
	return r, p, err
}

func nextBytes(p []byte) (b, rest []byte, err error) {
	n, used := binary.Uvarint(p)
	if used <= 0 || n > math.MaxUint32 || n > uint64(len(p)-used) {
		return nil, nil, errShortRecord
	}
	p = p[used:]
	return p[:n:n], p[n:], nil
}

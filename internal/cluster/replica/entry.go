package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/faisca/fila/storage"
)

const (
	// PartBytes is how many bytes of a batch an entry has at most. The log keeps some entries in
	// memory, for nodes that lag: together they are bounded by this.
	PartBytes = 1 << 20
	// PartsMax is how many parts a batch has at most: with PartBytes, 1 GiB.
	PartsMax = 1 << 10

	headerBytes = 1 + 1 + 8 + 8 + 4 + 4 + 4
	crcAt       = headerBytes - 4
)

// ErrNewer means that a newer Fila has written an entry. The node cannot go on without it.
var ErrNewer = errors.New("written by a newer Fila: upgrade this node")

// Entry is one entry of the log: a batch or a part of one.
type Entry struct {
	Version uint8 // that Append writes; 0: EntryVersion

	Term   uint64 // of the leadership that has made the batch, at least 1
	Number uint64 // of the batch in this term, from 1
	Part   uint32 // from 0
	Parts  uint32 // of the batch, at least 1
	Bytes  []byte // of storage.Batch.Bytes, at most PartBytes
	// Digest is set in an entry that is no batch, and asks each node for a digest of its store as it is
	// at this entry. It has no Number and no Bytes, and one part.
	Digest bool
}

// flagDigest is the flag of Entry.Digest.
const flagDigest = 1

// Append appends the encoded entry.
func (e *Entry) Append(dst []byte) []byte {
	from := len(dst)
	flags := byte(0)
	if e.Digest {
		flags = flagDigest
	}
	dst = append(dst, max(e.Version, EntryVersion), flags)
	dst = binary.BigEndian.AppendUint64(dst, e.Term)
	dst = binary.BigEndian.AppendUint64(dst, e.Number)
	dst = binary.BigEndian.AppendUint32(dst, e.Part)
	dst = binary.BigEndian.AppendUint32(dst, e.Parts)
	head := dst[from:]
	dst = binary.BigEndian.AppendUint32(dst, crcOf(head, e.Bytes))
	return append(dst, e.Bytes...)
}

// ParseEntry decodes an entry, whose Bytes alias b. It returns ErrNewer for an unknown version
// and storage.ErrCorrupt for what Append cannot have made.
func ParseEntry(b []byte) (Entry, error) {
	if len(b) == 0 {
		return Entry{}, fmt.Errorf("an empty entry: %w", storage.ErrCorrupt)
	}
	if b[0] > EntryNewest {
		return Entry{}, fmt.Errorf("version %d: %w", b[0], ErrNewer)
	}
	if b[0] == 0 || len(b) < headerBytes {
		return Entry{}, fmt.Errorf("an entry of %d bytes with version %d: %w", len(b), b[0], storage.ErrCorrupt)
	}
	e := Entry{
		Version: b[0], Term: binary.BigEndian.Uint64(b[2:]), Number: binary.BigEndian.Uint64(b[10:]),
		Part: binary.BigEndian.Uint32(b[18:]), Parts: binary.BigEndian.Uint32(b[22:]), Bytes: b[headerBytes:], Digest: b[1] == flagDigest,
	}
	if crcOf(b[:crcAt], e.Bytes) != binary.BigEndian.Uint32(b[crcAt:]) {
		return Entry{}, fmt.Errorf("wrong checksum of an entry: %w", storage.ErrCorrupt)
	}
	if b[1] > flagDigest {
		return Entry{}, fmt.Errorf("flags %#x: %w", b[1], ErrNewer)
	}
	if e.Term == 0 || (e.Number == 0) != e.Digest || e.Digest && (e.Parts != 1 || len(e.Bytes) > 0) || e.Parts == 0 || e.Parts > PartsMax || e.Part >= e.Parts || len(e.Bytes) > PartBytes {
		return Entry{}, fmt.Errorf("part %d of %d of batch %d in term %d, with %d bytes: %w", e.Part, e.Parts, e.Number, e.Term, len(e.Bytes), storage.ErrCorrupt)
	}
	return e, nil
}

// crcOf returns the checksum of the header up to the checksum, and of the bytes behind it.
func crcOf(head, rest []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum(head, table), table, rest)
}

// divide returns the entries of a batch, with at most partBytes of it in each. An entry is made when it
// is asked for, in memory of its own: the log keeps it for as long as it needs. of has the version, the
// term and the number.
func divide(of Entry, batch []byte, partBytes int) (iter.Seq[[]byte], error) {
	parts := max((len(batch)+partBytes-1)/partBytes, 1)
	if parts > PartsMax {
		return nil, fmt.Errorf("a write of %d bytes is refused, a cluster takes up to %d: do it in several smaller ones", len(batch), PartsMax*partBytes)
	}
	return func(yield func([]byte) bool) {
		for n := range parts {
			e := of
			e.Part, e.Parts, e.Bytes = uint32(n), uint32(parts), batch[n*partBytes:min((n+1)*partBytes, len(batch))]
			if !yield(e.Append(make([]byte, 0, headerBytes+len(e.Bytes)))) {
				return
			}
		}
	}, nil
}

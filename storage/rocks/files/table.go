package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Kind is the operation of an entry on its key.
type Kind byte

// The kinds that occur in Fila's tables, with RocksDB's values.
const (
	Delete       Kind = 0x00
	Put          Kind = 0x01
	SingleDelete Kind = 0x07
	RangeDelete  Kind = 0x0F
)

// Entry is one version of a key. For a RangeDelete, Key is the start and Value the
// exclusive end.
type Entry struct {
	Key      []byte
	Sequence uint64
	Kind     Kind
	Value    []byte
}

// Stretch is an unreadable part of a table. Its keys lie between First and Last; nil
// means that nothing readable bounds that side.
type Stretch struct {
	First, Last []byte
}

// Reader reads one table. It opens the file for each access and keeps no descriptor.
type Reader struct {
	path string
	zstd Decompress
	size int64

	// The properties of the table. Known is false if they are unreadable.
	Known              bool
	Name               string // name of the column family
	Entries, Deletions uint64
	RangeDeletions     uint64
	// Ranges are the readable range deletions. RangesLost means that there may be others.
	Ranges     []Entry
	RangesLost bool

	checksum byte // checksum type of the blocks; anyChecksum: unknown
	blocks   []handle
	indexed  bool // blocks comes from the index, not from a search
}

// Decompress fills out with the decompressed contents of a Zstandard frame, or fails.
type Decompress func(out, compressed []byte) error

// handle locates a block; size excludes the trailer.
type handle struct{ offset, size uint64 }

const (
	footerBytes   = 53
	trailerBytes  = 5
	magic         = 0x88e241b785f4cff7
	blockBytesMax = 1 << 30
	footerNewest  = 5 // format version of the tables that Fila writes
)

// OpenTable reads the metadata of a table, and searches for data blocks if the index is
// unreadable. It fails only if the file cannot be read at all.
func OpenTable(path string, zstd Decompress) (*Reader, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, zstd: zstd, size: info.Size(), checksum: anyChecksum}
	index, err := r.lead()
	if err == nil {
		err = r.readIndex(index)
	}
	if err == nil {
		r.indexed = true
		return r, nil
	}
	r.checksum, r.blocks = anyChecksum, nil // a damaged footer may have given wrong values
	if err := r.find(); err != nil {
		return nil, err
	}
	return r, nil
}

// CheckTable reads the metadata of a table except index and filter, and returns what is
// wrong with it. RocksDB needs this part to open the table.
func CheckTable(path string, zstd Decompress) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	r := &Reader{path: path, zstd: zstd, size: info.Size(), checksum: anyChecksum}
	if _, err := r.lead(); err != nil {
		return err
	}
	if !r.Known || r.RangesLost {
		return errors.New("properties or range deletions are unreadable")
	}
	return nil
}

// Indexed reports whether the index located the data blocks.
func (r *Reader) Indexed() bool { return r.indexed }

// lead reads footer and metadata, and returns the location of the index.
func (r *Reader) lead() (index handle, err error) {
	footer := make([]byte, footerBytes)
	if err := r.readAt(footer, r.size-footerBytes); err != nil {
		return handle{}, err
	}
	if binary.LittleEndian.Uint64(footer[footerBytes-8:]) != magic || binary.LittleEndian.Uint32(footer[footerBytes-12:]) != footerNewest {
		return handle{}, errors.New("invalid footer")
	}
	r.checksum = footer[0]
	meta, rest, ok := parseHandle(footer[1:])
	if !ok {
		return handle{}, errors.New("invalid footer")
	}
	if index, _, ok = parseHandle(rest); !ok {
		return handle{}, errors.New("invalid footer")
	}
	r.describe(meta)
	return index, nil
}

// describe reads the properties and range deletions.
func (r *Reader) describe(meta handle) {
	block, err := r.block(meta)
	if err != nil {
		r.RangesLost = true
		return
	}
	entries, _ := parseBlock(block, false)
	for _, e := range entries {
		at, _, ok := parseHandle(e.value)
		if !ok {
			continue
		}
		switch string(e.key) {
		case "rocksdb.properties":
			if block, err := r.block(at); err == nil {
				r.properties(block)
			}
		case "rocksdb.range_del":
			block, err := r.block(at)
			if err != nil || !r.ranges(block) {
				r.RangesLost = true
			}
		}
	}
}

// properties parses the properties block; Known stays false if it is damaged.
func (r *Reader) properties(block []byte) {
	entries, ok := parseBlock(block, false)
	if !ok {
		return
	}
	for _, e := range entries {
		n, _ := binary.Uvarint(e.value)
		switch string(e.key) {
		case "rocksdb.num.entries":
			r.Entries, r.Known = n, true
		case "rocksdb.deleted.keys":
			r.Deletions = n
		case "rocksdb.num.range-deletions":
			r.RangeDeletions = n
		case "rocksdb.column.family.name":
			r.Name = string(e.value)
		}
	}
}

// ranges parses a block of range deletions and reports whether it is one.
func (r *Reader) ranges(block []byte) bool {
	all, ok := dataBlock(block)
	if !ok || len(all) == 0 || all[0].Kind != RangeDelete {
		return false
	}
	r.Ranges = append(r.Ranges, all...)
	return true
}

// readIndex fills blocks from the index.
func (r *Reader) readIndex(at handle) error {
	block, err := r.block(at)
	if err != nil {
		return err
	}
	entries, ok := parseBlock(block, true)
	if !ok {
		return errors.New("invalid index")
	}
	for _, e := range entries {
		h, _, ok := parseHandle(e.value)
		if !ok || h.offset+h.size > uint64(r.size) {
			return errors.New("invalid index")
		}
		r.blocks = append(r.blocks, h)
	}
	return nil
}

func (r *Reader) readAt(b []byte, at int64) error {
	if at < 0 || at+int64(len(b)) > r.size {
		return errors.New("file too short")
	}
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadAt(b, at)
	return err
}

// block reads, verifies and decompresses one block.
func (r *Reader) block(h handle) ([]byte, error) {
	if h.size > blockBytesMax || h.offset > uint64(r.size) {
		return nil, errors.New("block too large")
	}
	b := make([]byte, h.size+trailerBytes)
	if err := r.readAt(b, int64(h.offset)); err != nil {
		return nil, err
	}
	if !r.sound(b) {
		return nil, errors.New("checksum mismatch in a block")
	}
	return r.decompress(b[:h.size], b[h.size])
}

// Walk calls take with the entries of each readable data block and lost with each
// unreadable stretch, in order. An error of take ends it.
func (r *Reader) Walk(take func(block []Entry) error, lost func(s Stretch)) error {
	w := r.Blocks()
	for {
		block, s, ok := w.Next()
		if !ok {
			return nil
		}
		if s != nil {
			lost(*s)
			continue
		}
		if err := take(block); err != nil {
			return err
		}
	}
}

// Walker iterates over the data blocks of a table.
type Walker struct {
	r    *Reader
	next int
	last []byte // key
	// ahead is the intact block behind the stretch that was returned last.
	ahead []Entry
	place handle
}

// Place returns the byte range of the block that Next returned last.
func (w *Walker) Place() (from, to int64) {
	return int64(w.place.offset), int64(w.place.offset + w.place.size + trailerBytes)
}

// Blocks returns a Walker before the first block.
func (r *Reader) Blocks() *Walker { return &Walker{r: r} }

// Next returns the entries of the next block, or an unreadable stretch. ok is false at
// the end of the table.
func (w *Walker) Next() (block []Entry, lost *Stretch, ok bool) {
	if block, w.ahead = w.ahead, nil; block != nil {
		return w.at(block), nil, true
	}
	before, bad := w.last, 0
	for ; w.next < len(w.r.blocks); bad++ {
		h := w.r.blocks[w.next]
		w.next++
		if h == unreadable {
			continue
		}
		b, err := w.r.block(h)
		if err != nil {
			continue
		}
		if block, ok = dataBlock(b); !ok {
			continue
		}
		w.place = h
		if bad == 0 {
			return w.at(block), nil, true
		}
		w.ahead = block
		return nil, &Stretch{First: before, Last: block[0].Key}, true
	}
	if bad > 0 {
		return nil, &Stretch{First: before}, true
	}
	return nil, nil, false
}

// at remembers the last key of the block as the lower bound of a following stretch.
func (w *Walker) at(block []Entry) []Entry {
	w.last = block[len(block)-1].Key
	return block
}

// dataBlock parses a block of internal keys; ok is false if a key is malformed or out of
// order.
func dataBlock(b []byte) ([]Entry, bool) {
	raw, ok := parseBlock(b, false)
	if !ok || len(raw) == 0 {
		return nil, false
	}
	all := make([]Entry, len(raw))
	for i, e := range raw {
		n := len(e.key) - tagBytes
		if n < 0 {
			return nil, false
		}
		tag := binary.LittleEndian.Uint64(e.key[n:])
		all[i] = Entry{Key: e.key[:n:n], Sequence: tag >> 8, Kind: Kind(tag & 0xff), Value: e.value}
		switch all[i].Kind {
		case Put, Delete, SingleDelete, RangeDelete:
		default:
			return nil, false
		}
		if i > 0 && bytes.Compare(all[i-1].Key, all[i].Key) > 0 {
			return nil, false
		}
	}
	return all, true
}

// String returns the kind in words.
func (k Kind) String() string {
	switch k {
	case Put:
		return "put"
	case Delete:
		return "delete"
	case SingleDelete:
		return "single delete"
	case RangeDelete:
		return "delete range"
	}
	return fmt.Sprintf("kind %d", byte(k))
}

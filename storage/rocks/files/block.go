package files

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/zeebo/xxh3"
)

// Values of the compression byte and of the checksum type.
const (
	compressNone, compressLZ4, compressZSTD = 0x00, 0x04, 0x07

	checksumNone, checksumCRC32C, checksumXXH3 = 0, 1, 4
	anyChecksum                                = 0xff
)

// sound reports whether the checksum in the trailer of a block matches.
func (r *Reader) sound(b []byte) bool {
	n := len(b) - trailerBytes
	stored := binary.LittleEndian.Uint32(b[n+1:])
	switch r.checksum {
	case checksumCRC32C:
		return masked(checksumCRC(b[:n+1])) == stored
	case checksumXXH3:
		return xxh(b[:n], b[n]) == stored
	case anyChecksum:
		return xxh(b[:n], b[n]) == stored || masked(checksumCRC(b[:n+1])) == stored
	}
	return false
}

// xxh returns RocksDB's XXH3 checksum: the lower half of the hash, with the last byte
// mixed in separately.
func xxh(b []byte, last byte) uint32 {
	const mix = 0x6b9083d9
	return uint32(xxh3.Hash(b)) ^ uint32(last)*mix
}

// decompress returns the contents of a block. Compressed contents begin with their size
// as a varint.
func (r *Reader) decompress(b []byte, how byte) ([]byte, error) {
	if how == compressNone {
		return b, nil
	}
	n, used := binary.Uvarint(b)
	if used <= 0 || n > blockBytesMax {
		return nil, errors.New("compressed block without a size")
	}
	switch how {
	case compressLZ4:
		out := make([]byte, 0, n)
		if _, ok := lz4(b[used:], int(n), &out); !ok {
			return nil, errors.New("block cannot be decompressed")
		}
		return out, nil
	case compressZSTD:
		out := make([]byte, n)
		return out, r.zstd(out, b[used:])
	}
	return nil, fmt.Errorf("unknown compression %d of a block", how)
}

// lz4 parses an LZ4 block until it has yielded n bytes, appends these to out unless it is
// nil, and returns how many bytes of p it used. It bounds every read and every match, so
// it is safe on arbitrary bytes.
func lz4(p []byte, n int, out *[]byte) (used int, ok bool) {
	const minMatch = 4
	at, done := 0, 0
	length := func(nibble int) int {
		if nibble < 15 {
			return nibble
		}
		for at < len(p) {
			b := int(p[at])
			at++
			nibble += b
			if b != 255 {
				return nibble
			}
		}
		return -1
	}
	for at < len(p) {
		token := int(p[at])
		at++
		literals := length(token >> 4)
		if literals < 0 || literals > len(p)-at || literals > n-done {
			return 0, false
		}
		if out != nil {
			*out = append(*out, p[at:at+literals]...)
		}
		at += literals
		if done += literals; done == n {
			return at, true
		}
		if at+2 > len(p) {
			return 0, false
		}
		back := int(p[at]) | int(p[at+1])<<8
		at += 2
		match := length(token & 15)
		if match < 0 || back == 0 || back > done || match+minMatch > n-done {
			return 0, false
		}
		done += match + minMatch
		if out == nil {
			continue
		}
		for range match + minMatch { // byte by byte: source and destination may overlap
			*out = append(*out, (*out)[len(*out)-back])
		}
	}
	return 0, false
}

// zstdFrame returns the length of the Zstandard frame at the beginning of p, from its
// headers alone.
func zstdFrame(p []byte) (n int, ok bool) {
	const magic, headerBytes = 0xfd2fb528, 3
	if len(p) < 5 || binary.LittleEndian.Uint32(p) != magic {
		return 0, false
	}
	how := p[4]
	at := 5
	single := how&0x20 != 0
	if !single {
		at++ // window descriptor
	}
	at += []int{0, 1, 2, 4}[how&3] // dictionary id
	size := []int{0, 2, 4, 8}[how>>6]
	if single && size == 0 {
		size = 1
	}
	at += size
	for at+headerBytes <= len(p) {
		head := int(p[at]) | int(p[at+1])<<8 | int(p[at+2])<<16
		at += headerBytes
		if kind := head >> 1 & 3; kind == 1 { // RLE block: one byte
			at++
		} else {
			at += head >> 3
		}
		if head&1 == 1 {
			if how&4 != 0 {
				at += 4 // a checksum
			}
			return at, at <= len(p)
		}
	}
	return 0, false
}

// unreadable marks a gap between blocks that were found.
var unreadable = handle{offset: ^uint64(0)} //nolint:gochecknoglobals // a constant

// find locates data blocks by trial at every offset. Gaps between them become unreadable.
func (r *Reader) find() error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	lost := false
	for at := 0; at < len(data); {
		n := r.blockAt(data[at:])
		if n < 0 {
			lost = true
			at++
			continue
		}
		h := handle{offset: uint64(at), size: uint64(n)}
		at += n + trailerBytes
		if !r.keep(h) {
			continue
		}
		if lost {
			r.blocks, lost = append(r.blocks, unreadable), false
		}
		r.blocks = append(r.blocks, h)
	}
	// The bytes after the last data block may have been data blocks.
	r.blocks = append(r.blocks, unreadable)
	return nil
}

// keep reports whether a block holds data. It uses a metadata block for the description
// of the table.
func (r *Reader) keep(h handle) bool {
	block, err := r.block(h)
	if err != nil {
		return false
	}
	if entries, ok := dataBlock(block); ok {
		if entries[0].Kind != RangeDelete {
			return true
		}
		r.ranges(block)
		return false
	}
	r.properties(block)
	return false
}

// blockAt returns the length, without trailer, of an intact block at the beginning of p,
// or -1.
func (r *Reader) blockAt(p []byte) int {
	for _, size := range []func([]byte) int{plainBlock, lz4Block, zstdBlock} {
		n := size(p)
		if n > 0 && n+trailerBytes <= len(p) && r.sound(p[:n+trailerBytes]) {
			return n
		}
	}
	return -1
}

// plainBlock returns the length of an uncompressed block: it parses the entries up to the
// restart array, whose first element is 0 and whose last gives its length.
func plainBlock(p []byte) int {
	rest := p
	var key []byte
	for len(rest) > 4 && binary.LittleEndian.Uint32(rest) != 0 {
		e, next, ok := entry(rest, key)
		if !ok || len(e.key) == 0 {
			return -1
		}
		key, rest = e.key, next
	}
	if len(rest) < 8 || len(rest) == len(p) {
		return -1
	}
	for n := 1; 4*n+4 <= len(rest); n++ {
		v := binary.LittleEndian.Uint32(rest[4*n:])
		if int(v&^(1<<31)) == n {
			return len(p) - len(rest) + 4*n + 4
		}
		if int(v) > len(p) {
			return -1
		}
	}
	return -1
}

// lz4Block returns the length of a block compressed with LZ4, or -1.
func lz4Block(p []byte) int {
	n, used := binary.Uvarint(p)
	const leastBytes, mostBytes = 8, 64 << 20
	if used <= 0 || n < leastBytes || n > mostBytes {
		return -1
	}
	taken, ok := lz4(p[used:], int(n), nil)
	if !ok {
		return -1
	}
	return used + taken
}

// zstdBlock returns the length of a block compressed with Zstandard, or -1.
func zstdBlock(p []byte) int {
	_, used := binary.Uvarint(p)
	if used <= 0 {
		return -1
	}
	n, ok := zstdFrame(p[used:])
	if !ok {
		return -1
	}
	return used + n
}

// blockEntry is an entry of any kind of block.
type blockEntry struct{ key, value []byte }

// parseBlock returns the entries of a block. Values of an index block are handles without
// a length: the first of a restart interval is complete, the others are deltas.
func parseBlock(b []byte, index bool) ([]blockEntry, bool) {
	if len(b) < 4 {
		return nil, false
	}
	restarts := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]) &^ (1 << 31))
	tail := 4 + 4*restarts
	if tail > uint64(len(b)) {
		return nil, false
	}
	rest := b[:uint64(len(b))-tail]
	var all []blockEntry
	var key []byte
	var last handle
	for len(rest) > 0 {
		var e blockEntry
		var ok bool
		if index {
			e, rest, ok = indexEntry(rest, key, &last)
		} else {
			e, rest, ok = entry(rest, key)
		}
		if !ok {
			return all, false
		}
		key = e.key
		all = append(all, e)
	}
	return all, true
}

// entry parses the first entry of p. before is the previous key, whose prefix entries
// share.
func entry(p, before []byte) (e blockEntry, rest []byte, ok bool) {
	var n [3]uint64 // lengths: shared prefix of the key, rest of the key, value
	for i := range n {
		v, used := binary.Uvarint(p)
		if used <= 0 {
			return e, nil, false
		}
		n[i], p = v, p[used:]
	}
	if n[0] > uint64(len(before)) || n[1] > uint64(len(p)) || n[2] > uint64(len(p))-n[1] {
		return e, nil, false
	}
	e.key = slices.Concat(before[:n[0]], p[:n[1]])
	e.value = p[n[1] : n[1]+n[2]]
	return e, p[n[1]+n[2]:], true
}

// indexEntry parses an entry of an index block. last is the handle of the entry before,
// which deltas refer to.
func indexEntry(p, before []byte, last *handle) (e blockEntry, rest []byte, ok bool) {
	shared, used := binary.Uvarint(p)
	if used <= 0 || shared > uint64(len(before)) {
		return e, nil, false
	}
	p = p[used:]
	own, used := binary.Uvarint(p)
	if used <= 0 || own > uint64(len(p)-used) {
		return e, nil, false
	}
	p = p[used:]
	e.key = slices.Concat(before[:shared], p[:own])
	p = p[own:]
	h := handle{}
	if shared == 0 {
		if h, rest, ok = parseHandle(p); !ok {
			return e, nil, false
		}
	} else {
		delta, used := binary.Varint(p)
		if used <= 0 {
			return e, nil, false
		}
		h.offset = last.offset + last.size + trailerBytes
		h.size, rest = last.size+uint64(delta), p[used:]
	}
	*last = h
	e.value = binary.AppendUvarint(binary.AppendUvarint(nil, h.offset), h.size)
	return e, rest, true
}

// parseHandle parses a handle of two varints and bounds it.
func parseHandle(p []byte) (h handle, rest []byte, ok bool) {
	var used int
	if h.offset, used = binary.Uvarint(p); used <= 0 {
		return h, nil, false
	}
	p = p[used:]
	if h.size, used = binary.Uvarint(p); used <= 0 {
		return h, nil, false
	}
	return h, p[used:], h.size < blockBytesMax && h.offset < 1<<48
}

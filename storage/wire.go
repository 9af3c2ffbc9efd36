package storage

import "google.golang.org/protobuf/encoding/protowire"

// This file and codec.go implement the subset of protobuf that the records need: fields
// are written in the order of their numbers, zero values are omitted, unknown fields are
// skipped. Anything else is ErrCorrupt, never a panic.

func appendUint(dst []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, num, protowire.VarintType)
	return protowire.AppendVarint(dst, v)
}

func appendInt(dst []byte, num protowire.Number, v int64) []byte {
	return appendUint(dst, num, uint64(v))
}

// appendItem appends one value of a repeated field, which counts even when empty.
func appendItem[T string | []byte](dst []byte, num protowire.Number, v T) []byte {
	dst = appendLen(dst, num, len(v))
	return append(dst, v...)
}

func appendLen(dst []byte, num protowire.Number, n int) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendVarint(dst, uint64(n))
}

func sizeUint(num protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeVarint(v)
}

func sizeInt(num protowire.Number, v int64) int {
	return sizeUint(num, uint64(v))
}

func sizeBytes[T string | []byte](num protowire.Number, v T) int {
	if len(v) == 0 {
		return 0
	}
	return protowire.SizeTag(num) + protowire.SizeBytes(len(v))
}

// field is one field during decoding. Reading it as a wrong type sets bad, so that a
// decoder can check once at the end.
type field struct {
	num   protowire.Number
	typ   protowire.Type
	value uint64
	bytes []byte // aliases the record
	bad   bool
}

func (f *field) uint64() uint64 {
	f.bad = f.bad || f.typ != protowire.VarintType
	return f.value
}

func (f *field) bool() bool {
	v := f.uint64()
	f.bad = f.bad || v > 1
	return v == 1
}

func (f *field) slice() []byte {
	f.bad = f.bad || f.typ != protowire.BytesType
	return f.bytes
}

func (f *field) string() string { return string(f.slice()) }

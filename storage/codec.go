package storage

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// codec passes over the fields of a record, in the order of their numbers, and encodes or
// decodes each. A record therefore lists its fields once, in a method fields(*codec), and
// Append and Decode follow from the list.
//
// Decoding keeps the next field of the input in next. A row of the list takes it if the
// numbers are equal, and so all fields of a record that Append made are read in one pass.
// A field that comes out of order waits for the next pass; one that a whole pass leaves
// untouched is unknown, and is skipped.
//
// Messages and leases are encoded and decoded at every step of their lives, so the method
// of each kind of field is only a check that the compiler inlines: a field whose value is
// zero is not encoded, and one whose number is not the next one's is not decoded. The two
// are one condition because next.num is 0 while encoding, and values are zero when decoding
// begins.
type codec struct {
	decoding bool
	buf      []byte // the record so far, or when decoding, the input behind next

	next field // decoding: the next field; its number is 0 at the end and after an error
	read int   // fields that were read
	seen int   // the value of read when the pass began
	err  error // of the first field that is corrupt

	throttles, budgets []string // see Message.DecodeLike
}

// record is a kind of records: its fields are the only thing that it has of its own.
type record interface{ fields(c *codec) }

// encode appends a record. It is inlined, so the codec takes no memory of its own.
func encode(dst []byte, r record) []byte {
	c := codec{buf: dst}
	r.fields(&c)
	return c.buf
}

// decode reads a record that encode made into r, which is as fresh in what b does not have. A
// record that is not valid is corrupt; nil: all are valid. After an error r is empty. It allocates the
// codec: messages and attempts, of which many are read, have the same lines of their own.
func decode[R any, P interface {
	*R
	record
}](b []byte, r P, fresh R, kind string, valid func(P) bool) error {
	*r = fresh
	var c codec
	for c.decode(b); c.pass(); {
		r.fields(&c)
	}
	if c.err == nil && valid != nil && !valid(r) {
		c.err = ErrCorrupt
	}
	if c.err != nil {
		*r = *new(R)
		return fmt.Errorf("%s record: %w", kind, c.err)
	}
	return nil
}

// decode begins decoding. It is followed by a loop in which each pass goes over the list.
func (c *codec) decode(b []byte) {
	c.decoding, c.buf, c.seen = true, b, -1
	c.advance()
}

// pass begins a pass of decoding and reports whether there is anything left to decode.
func (c *codec) pass() bool {
	if c.read == c.seen { // nothing of the record has this number
		c.taken()
	}
	c.seen = c.read
	return c.next.num != 0
}

// taken goes on to the next field, unless the one that was read has an impossible value.
func (c *codec) taken() {
	c.read++
	if c.next.bad {
		c.fail(fmt.Errorf("field %d has an impossible value: %w", c.next.num, ErrCorrupt))
		return
	}
	c.advance()
}

func (c *codec) fail(err error) { c.err, c.next, c.buf = err, field{}, nil }

// advance reads the next field. Of value and bytes it sets the one that the wire type
// calls for; the other is stale, and reading it is refused.
func (c *codec) advance() {
	b := c.buf
	if len(b) == 0 {
		c.next.num = 0
		return
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		c.fail(fmt.Errorf("%w: %w", ErrCorrupt, protowire.ParseError(n)))
		return
	}
	b = b[n:]
	c.next.num, c.next.typ = num, typ
	switch typ {
	case protowire.VarintType:
		c.next.value, n = protowire.ConsumeVarint(b)
	case protowire.BytesType:
		c.next.bytes, n = protowire.ConsumeBytes(b)
		c.next.bytes = slices.Clip(c.next.bytes)
	default:
		n = protowire.ConsumeFieldValue(num, typ, b)
	}
	if n < 0 {
		c.fail(fmt.Errorf("field %d: %w: %w", num, ErrCorrupt, protowire.ParseError(n)))
		return
	}
	c.buf = b[n:]
}

func (c *codec) uint64(num protowire.Number, v *uint64) {
	if *v != 0 || c.next.num == num {
		passNumber(c, num, v)
	}
}

func (c *codec) uint32(num protowire.Number, v *uint32) {
	if *v != 0 || c.next.num == num {
		passNumber(c, num, v)
	}
}

func (c *codec) int64(num protowire.Number, v *int64) {
	if *v != 0 || c.next.num == num {
		passNumber(c, num, v)
	}
}

func passNumber[N uint64 | uint32 | int64](c *codec, num protowire.Number, v *N) {
	if !c.decoding {
		c.buf = appendUint(c.buf, num, uint64(*v))
		return
	}
	for ; c.next.num == num; c.taken() {
		n := c.next.uint64()
		*v = N(n)
		c.next.bad = c.next.bad || uint64(*v) != n // it is above 32 bits
	}
}

func (c *codec) bool(num protowire.Number, v *bool) {
	if *v || c.next.num == num {
		c.passBool(num, v)
	}
}

func (c *codec) passBool(num protowire.Number, v *bool) {
	if !c.decoding {
		c.buf = appendUint(c.buf, num, 1)
		return
	}
	for ; c.next.num == num; c.taken() {
		*v = c.next.bool()
	}
}

// float64 is a number by its bits.
func (c *codec) float64(num protowire.Number, v *float64) {
	bits := math.Float64bits(*v)
	c.uint64(num, &bits)
	*v = math.Float64frombits(bits)
}

func (c *codec) string(num protowire.Number, v *string) {
	if *v != "" || c.next.num == num {
		passText(c, num, v)
	}
}

// bytes is string for a value that aliases the record.
func (c *codec) bytes(num protowire.Number, v *[]byte) {
	if len(*v) != 0 || c.next.num == num {
		passText(c, num, v)
	}
}

func passText[T string | []byte](c *codec, num protowire.Number, v *T) {
	if !c.decoding {
		c.buf = appendItem(c.buf, num, *v)
		return
	}
	for ; c.next.num == num; c.taken() {
		*v = T(c.next.slice())
	}
}

func (c *codec) id(num protowire.Number, v *ID) {
	if !c.decoding {
		c.buf = appendItem(c.buf, num, v[:])
		return
	}
	for ; c.next.num == num; c.taken() {
		b := c.next.slice()
		copy(v[:], b)
		c.next.bad = c.next.bad || len(b) != len(v)
	}
}

// someID is id, of which the zero one is not encoded.
func (c *codec) someID(num protowire.Number, v *ID) {
	if *v != (ID{}) || c.next.num == num {
		c.id(num, v)
	}
}

// strings is a repeated field; an empty item counts. Decoding takes the items, and the
// slice itself, from like as long as they are equal.
func (c *codec) strings(num protowire.Number, v *[]string, like []string) {
	if len(*v) != 0 || c.next.num == num {
		c.passStrings(num, v, like)
	}
}

func (c *codec) passStrings(num protowire.Number, v *[]string, like []string) {
	if !c.decoding {
		for _, item := range *v {
			c.buf = appendItem(c.buf, num, item)
		}
		return
	}
	for ; c.next.num == num; c.taken() {
		if n := len(*v); n < len(like) && (n == 0 || &(*v)[0] == &like[0]) && like[n] == string(c.next.slice()) {
			*v = like[: n+1 : n+1] // an append to it copies
		} else {
			*v = append(*v, c.next.string())
		}
	}
}

// headers is a repeated field of records.
func (c *codec) headers(num protowire.Number, v *[]Header) {
	if len(*v) != 0 || c.next.num == num {
		c.passHeaders(num, v)
	}
}

func (c *codec) passHeaders(num protowire.Number, v *[]Header) {
	if !c.decoding {
		for i := range *v {
			h := &(*v)[i]
			c.buf = appendLen(c.buf, num, sizeBytes(1, h.Name)+sizeBytes(2, h.Value))
			h.fields(c)
		}
		return
	}
	for ; c.next.num == num; c.taken() {
		var h Header
		var in codec
		for in.decode(c.next.slice()); in.pass(); {
			h.fields(&in)
		}
		c.next.bad = c.next.bad || in.err != nil
		*v = append(*v, h)
	}
}

// dead is a record within the record that need not be there.
func (c *codec) dead(num protowire.Number, v **Dead) {
	if *v != nil || c.next.num == num {
		c.passDead(num, v)
	}
}

func (c *codec) passDead(num protowire.Number, v **Dead) {
	if !c.decoding {
		start := len(c.buf)
		(*v).fields(c)
		c.enclose(num, start)
		return
	}
	for ; c.next.num == num; c.taken() {
		*v = &Dead{}
		var in codec
		for in.decode(c.next.slice()); in.pass(); {
			(*v).fields(&in)
		}
		c.next.bad = c.next.bad || in.err != nil
	}
}

// failures are records within the record.
func (c *codec) failures(num protowire.Number, v *[]Failure) {
	if len(*v) != 0 || c.next.num == num {
		c.passFailures(num, v)
	}
}

func (c *codec) passFailures(num protowire.Number, v *[]Failure) {
	if !c.decoding {
		for i := range *v {
			start := len(c.buf)
			(*v)[i].fields(c)
			c.enclose(num, start)
		}
		return
	}
	for ; c.next.num == num; c.taken() {
		var f Failure
		var in codec
		for in.decode(c.next.slice()); in.pass(); {
			f.fields(&in)
		}
		c.next.bad = c.next.bad || in.err != nil
		*v = append(*v, f)
	}
}

// enclose makes what was encoded from start on a record within the record.
func (c *codec) enclose(num protowire.Number, start int) {
	var head [16]byte // its length is known only now
	c.buf = slices.Insert(c.buf, start, appendLen(head[:0], num, len(c.buf)-start)...)
}

package storage

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// History is what the numbers of a queue, of a fairness key or of a throttle were in the last hour and in the last day. Its
// key is AppendHistoryKey or AppendKeyHistoryKey.
//
// Minutes and Tens are rows of Width numbers each, of which the first is the time: minutes, or ten minutes, since 1970.
// What a time has no row for is as in the row before. On disk a number is its difference to the one a row before.
type History struct {
	Width   uint32
	Begun   uint32 // time from which on the numbers are known, in steps of ten seconds since 1970
	Minutes []uint32
	Tens    []uint32
}

// historyWidthMax bounds the numbers of a row.
const historyWidthMax = 16

// Append appends the encoded record.
func (h *History) Append(dst []byte) []byte {
	written := *h
	written.Minutes, written.Tens = h.differences(h.Minutes), h.differences(h.Tens)
	return encode(dst, &written)
}

// Decode reads a record that Append made. One whose rows are not in the order of their times is corrupt.
func (h *History) Decode(b []byte) error {
	return decode(b, h, History{}, "history", func(h *History) bool {
		return h.Width > 1 && h.Width <= historyWidthMax && h.sum(h.Minutes) && h.sum(h.Tens)
	})
}

// differences returns each number less the one a row before, modulo 2^32.
func (h *History) differences(rows []uint32) []uint32 {
	out := slices.Clone(rows)
	for i := len(out) - 1; i >= int(h.Width); i-- {
		out[i] -= out[i-int(h.Width)]
	}
	return out
}

// sum undoes differences, in place, and reports whether the rows are whole and in the order of their times.
func (h *History) sum(rows []uint32) bool {
	width := int(h.Width)
	for i := width; i < len(rows); i++ {
		rows[i] += rows[i-width]
		if i%width == 0 && rows[i] <= rows[i-width] {
			return false
		}
	}
	return len(rows)%width == 0
}

func (h *History) fields(c *codec) {
	c.uint32(1, &h.Width)
	c.uint32(2, &h.Begun)
	c.packed(3, &h.Minutes)
	c.packed(4, &h.Tens)
}

// packed is a packed field of numbers of 32 bits, read as signed ones, of which small ones are short.
func (c *codec) packed(num protowire.Number, v *[]uint32) {
	if len(*v) != 0 || c.next.num == num {
		c.passPacked(num, v)
	}
}

func (c *codec) passPacked(num protowire.Number, v *[]uint32) {
	if !c.decoding {
		start := len(c.buf)
		for _, n := range *v {
			c.buf = binary.AppendVarint(c.buf, int64(int32(n)))
		}
		c.enclose(num, start)
		return
	}
	for ; c.next.num == num; c.taken() {
		for b := c.next.slice(); len(b) > 0; {
			d, n := binary.Varint(b)
			if n <= 0 || int64(int32(d)) != d {
				c.next.bad = true
				break
			}
			*v, b = append(*v, uint32(d)), b[n:]
		}
	}
}

// AppendHistoryKey appends the key of the history of a queue; with an empty name that of all queues together.
func AppendHistoryKey(dst []byte, queue string) []byte {
	return AppendStateKey(dst, StateHistory, queue)
}

// AppendKeyHistoryKey appends the key of the history of a fairness key.
func AppendKeyHistoryKey(dst []byte, queue, key string) []byte {
	return AppendStateKey(dst, StateKeyHistory, queue, key)
}

package resp

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/redcon"
)

// flushBytes is how much a Writer gathers before it writes. Bulks of more than
// directBytes are not copied but written from where they are.
const (
	flushBytes  = 64 << 10
	directBytes = 32 << 10
)

// Writer renders replies. The Writer passed to Reply.Append writes to the client as it
// fills up, so a large reply is never buffered as a whole. The zero value buffers
// everything, for replies that are rendered early (see Take).
//
// Methods do not fail: after a failed write further output is discarded and the reply is
// dropped.
type Writer struct {
	// Proto is the protocol version to render, 2 or 3. It is 2 whenever Append is called:
	// a reply whose shape depends on it sets the version under which its command was
	// handled, because HELLO may occur within a pipeline.
	Proto int

	buf  []byte
	sink func(w *Writer, tail []byte) // writes buf and tail, empties buf; nil: keep
	// pushes renders what Conn.PushAsync has queued; nil: nothing can be.
	pushes func()
}

// Take returns the rendered bytes of a buffering Writer and resets it. The caller owns
// the bytes.
func (w *Writer) Take() []byte {
	b := w.buf
	w.buf = nil
	return b
}

// Pushes renders the PushAsync bytes queued so far before a reply that confirms the end
// of a subscription. To be called before the first byte of a reply.
func (w *Writer) Pushes() {
	if w.pushes != nil {
		w.pushes()
	}
}

// OK appends the reply of success without a value.
func (w *Writer) OK() { w.put(redcon.AppendOK(w.buf)) }

// Status appends a simple string. CR and LF in it become spaces.
func (w *Writer) Status(s string) { w.put(redcon.AppendString(w.buf, s)) }

// Error appends an error: its code, upper case without punctuation, and one
// line of text. CR and LF become spaces.
func (w *Writer) Error(code, text string) { w.put(redcon.AppendError(w.buf, code+" "+text)) }

// Int appends an integer.
func (w *Writer) Int(n int64) { w.put(redcon.AppendInt(w.buf, n)) }

// Bulk appends a binary string. A long one is not copied: b must not change
// before Append returns.
func (w *Writer) Bulk(b []byte) {
	if len(b) < directBytes || w.sink == nil {
		w.put(redcon.AppendBulk(w.buf, b))
		return
	}
	w.buf = appendHead(w.buf, '$', len(b))
	w.sink(w, b)
	w.put(append(w.buf, '\r', '\n'))
}

// BulkString appends a binary string.
func (w *Writer) BulkString(s string) { w.put(redcon.AppendBulkString(w.buf, s)) }

// Null appends the absence of a value.
func (w *Writer) Null() {
	if w.Proto == 3 {
		w.put(append(w.buf, '_', '\r', '\n'))
		return
	}
	w.put(redcon.AppendNull(w.buf))
}

// NullArray appends the absence of an array, which RESP2 tells from other
// absences.
func (w *Writer) NullArray() {
	if w.Proto == 3 {
		w.Null()
		return
	}
	w.put(append(w.buf, '*', '-', '1', '\r', '\n'))
}

// Array begins an array: n values follow.
func (w *Writer) Array(n int) { w.put(redcon.AppendArray(w.buf, n)) }

// Map begins a map: n times a field and a value follow. RESP2 sees an array of
// twice the length.
func (w *Writer) Map(n int) { w.aggregate('%', n, 2*n) }

// Set begins a set: n values follow. RESP2 sees an array.
func (w *Writer) Set(n int) { w.aggregate('~', n, n) }

// Push begins a message that answers no command: n values follow. RESP2 sees an
// array. Only for connections that asked for it, as some clients take it for
// the answer they wait for.
func (w *Writer) Push(n int) { w.aggregate('>', n, n) }

func (w *Writer) aggregate(kind byte, n, n2 int) {
	if w.Proto == 3 {
		w.put(appendHead(w.buf, kind, n))
		return
	}
	w.Array(n2)
}

// Bool appends a truth value; RESP2 sees 1 or 0.
func (w *Writer) Bool(v bool) {
	switch {
	case w.Proto == 3 && v:
		w.put(append(w.buf, '#', 't', '\r', '\n'))
	case w.Proto == 3:
		w.put(append(w.buf, '#', 'f', '\r', '\n'))
	case v:
		w.Int(1)
	default:
		w.Int(0)
	}
}

// Double appends a number; RESP2 sees a string. Not-a-number becomes null,
// because no client agrees with another on it.
func (w *Writer) Double(f float64) {
	if math.IsNaN(f) {
		w.Null()
		return
	}
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if math.IsInf(f, 0) {
		text = strings.ToLower(strings.TrimPrefix(text, "+"))
	}
	if w.Proto != 3 {
		w.BulkString(text)
		return
	}
	w.put(append(append(append(w.buf, ','), text...), '\r', '\n'))
}

// Verbatim appends text for people to read; RESP2 sees a string.
func (w *Writer) Verbatim(text string) {
	if w.Proto != 3 {
		w.BulkString(text)
		return
	}
	w.buf = appendHead(w.buf, '=', len(text)+4)
	w.put(append(append(append(w.buf, "txt:"...), text...), '\r', '\n'))
}

// Raw appends bytes that are in wire format already.
func (w *Writer) Raw(b []byte) {
	if len(b) < directBytes || w.sink == nil {
		w.put(append(w.buf, b...))
		return
	}
	w.sink(w, b)
}

// put takes the grown buffer and writes it when it is long enough.
func (w *Writer) put(b []byte) {
	w.buf = b
	if len(b) >= flushBytes && w.sink != nil {
		w.sink(w, nil)
	}
}

// appendHead appends what begins a value with a length.
func appendHead(b []byte, kind byte, n int) []byte {
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}

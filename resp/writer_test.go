package resp

import (
	"math"
	"testing"
)

func TestWriterShapes(t *testing.T) {
	for _, c := range []struct {
		name         string
		put          func(w *Writer)
		resp2, resp3 string
	}{
		{"ok", (*Writer).OK, "+OK\r\n", "+OK\r\n"},
		{"status", func(w *Writer) { w.Status("a\r\nb") }, "+a  b\r\n", "+a  b\r\n"},
		{"error", func(w *Writer) { w.Error("ERR", "no\r\n+OK") }, "-ERR no  +OK\r\n", "-ERR no  +OK\r\n"},
		{"int", func(w *Writer) { w.Int(math.MinInt64) }, ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"},
		{"bulk", func(w *Writer) { w.Bulk([]byte("a\r\n")) }, "$3\r\na\r\n\r\n", "$3\r\na\r\n\r\n"},
		{"bulk string", func(w *Writer) { w.BulkString("") }, "$0\r\n\r\n", "$0\r\n\r\n"},
		{"null", (*Writer).Null, "$-1\r\n", "_\r\n"},
		{"null array", (*Writer).NullArray, "*-1\r\n", "_\r\n"},
		{"array", func(w *Writer) { w.Array(12) }, "*12\r\n", "*12\r\n"},
		{"map", func(w *Writer) { w.Map(6) }, "*12\r\n", "%6\r\n"},
		{"set", func(w *Writer) { w.Set(6) }, "*6\r\n", "~6\r\n"},
		{"push", func(w *Writer) { w.Push(3) }, "*3\r\n", ">3\r\n"},
		{"true", func(w *Writer) { w.Bool(true) }, ":1\r\n", "#t\r\n"},
		{"false", func(w *Writer) { w.Bool(false) }, ":0\r\n", "#f\r\n"},
		{"double", func(w *Writer) { w.Double(0.1) }, "$3\r\n0.1\r\n", ",0.1\r\n"},
		{"infinite", func(w *Writer) { w.Double(math.Inf(1)) }, "$3\r\ninf\r\n", ",inf\r\n"},
		{"minus infinite", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4\r\n-inf\r\n", ",-inf\r\n"},
		{"not a number", func(w *Writer) { w.Double(math.NaN()) }, "$-1\r\n", "_\r\n"},
		{"verbatim", func(w *Writer) { w.Verbatim("a b") }, "$3\r\na b\r\n", "=7\r\ntxt:a b\r\n"},
		{"raw", func(w *Writer) { w.Raw([]byte("+x\r\n")) }, "+x\r\n", "+x\r\n"},
	} {
		for proto, want := range map[int]string{0: c.resp2, 2: c.resp2, 3: c.resp3} {
			w := Writer{Proto: proto}
			c.put(&w)
			if got := string(w.Take()); got != want {
				t.Errorf("%s in protocol %d: %q, want %q", c.name, proto, got, want)
			}
			if w.Take() != nil {
				t.Errorf("%s: taken twice", c.name)
			}
		}
	}
}

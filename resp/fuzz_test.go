package resp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/tidwall/redcon"
)

// FuzzReader holds the reader to two things: how bytes are cut into reads
// changes nothing, and what it reads, written again, is read the same by it and
// by redcon.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"*2\r\n$4\r\nECHO\r\n$3\r\nabc\r\nPING\r\n",
		"*1\r\n$-99\r\n",
		"*1\r\n$9223372036854775807\r\n",
		"*9000000000000000000\r\n",
		"ECHO \"a\\x41\" 'b'\r\n*0\r\n*-1\r\n",
		"PING\r\n*2\r\n$1\r\na\r\n$20\r\n01234567890123456789\r\n*1\r\n:1\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
		"a\x00\"\"\n\n",
	} {
		f.Add([]byte(s), uint16(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint16) {
		whole, err := commandsOf(bytes.NewReader(in), handleMax)
		for _, from := range []io.Reader{
			iotest.OneByteReader(bytes.NewReader(in)),
			&cutReader{in: in, at: int(cut)},
		} {
			cuts, cutErr := commandsOf(from, 1+int(cut)%3)
			if !equalCommands(whole, cuts) || err.Error() != cutErr.Error() {
				t.Fatalf("cutting changes the result: %q %v, %q %v", whole, err, cuts, cutErr)
			}
		}
		var again []byte
		for _, args := range whole {
			again = redcon.AppendArray(again, len(args))
			for _, a := range args {
				again = redcon.AppendBulk(again, a)
			}
		}
		back, err := commandsOf(bytes.NewReader(again), handleMax)
		if !errors.Is(err, io.EOF) || !equalCommands(whole, back) {
			t.Fatalf("%q: written again: %q %v", whole, back, err)
		}
		rest := again
		for i := 0; len(rest) > 0; i++ {
			kind, args, left := nextRedcon(t, rest)
			if kind && (i >= len(whole) || !slices.EqualFunc(args, whole[i], bytes.Equal)) {
				t.Fatalf("redcon reads %q", args)
			}
			rest = left
		}
	})
}

func nextRedcon(t *testing.T, b []byte) (complete bool, args [][]byte, left []byte) {
	t.Helper()
	complete, args, _, left, err := redcon.ReadNextCommand(b, nil)
	if err != nil || !complete {
		t.Fatalf("redcon: %q: %v", b, err)
	}
	return complete, args, left
}

func commandsOf(from io.Reader, limit int) (out [][][]byte, err error) {
	return commandsOfReader(known(from), limit)
}

func commandsOfReader(r *reader, limit int) (out [][][]byte, err error) {
	for {
		cmds, err := r.next(limit)
		if err != nil {
			return out, err
		}
		for _, c := range cmds {
			out = append(out, c.Args)
		}
	}
}

func equalCommands(a, b [][][]byte) bool {
	return slices.EqualFunc(a, b, func(x, y [][]byte) bool { return slices.EqualFunc(x, y, bytes.Equal) })
}

// cutReader gives two pieces, then ends.
type cutReader struct {
	in []byte
	at int
}

func (c *cutReader) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.in[:min(max(1, c.at), len(c.in))])
	c.in, c.at = c.in[n:], len(c.in)
	return n, nil
}

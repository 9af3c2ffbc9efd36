package resp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// known returns a reader of a client that has authenticated.
func known(from io.Reader) *reader {
	r := newReader(newStreamSource(from), &pools{}, DefaultLimits())
	r.authenticated = true
	return r
}

// readAll returns every command as its arguments joined by bars.
func readAll(r *reader) (out []string, err error) {
	for {
		cmds, err := r.next(handleMax)
		if err != nil {
			return out, err
		}
		for _, c := range cmds {
			out = append(out, string(bytes.Join(c.Args, []byte("|"))))
		}
	}
}

func TestReaderFrames(t *testing.T) {
	for _, c := range []struct{ name, in, out, err string }{
		{"one", "*1\r\n$4\r\nPING\r\n", "PING", "EOF"},
		{"empty commands are skipped", "*0\r\n*-1\r\n\r\n*1\r\n$4\r\nPING\r\n", "PING", "EOF"},
		{"empty commands between", "PING\r\n*0\r\n\r\nPING\r\n*0\r\n", "PING;PING", "EOF"},
		{"inline", "PING\r\nECHO \"a b\" 'c d'\n", "PING;ECHO|a b|c d", "EOF"},
		{"inline escapes", `ECHO "\x41\n\"" '' 'it\'s' a"b" "\q\x4"` + "\r\n", "ECHO|A\n\"||it's|ab|qx4", "EOF"},
		{"inline backslash outside quotes", `ECHO a\nb 'a\n'` + "\r\n", `ECHO|a\nb|a\n`, "EOF"},
		{"inline nul", "a\x00b\r\n", "a|b", "EOF"},
		{"inline open quote", "ECHO \"a\r\n", "", "Protocol error: unbalanced quotes in request"},
		{"inline text behind quote", "ECHO \"a\"b\r\n", "", "Protocol error: unbalanced quotes in request"},
		{"inline escaped end", `ECHO "a\` + "\r\n", "", "Protocol error: unbalanced quotes in request"},
		{"good before bad", "*1\r\n$4\r\nPING\r\n*1\r\n$x\r\n", "PING", "Protocol error: invalid bulk length"},
		{"good args before bad", "PING\r\n*2\r\n$4\r\nECHO\r\n$x\r\n", "PING", "Protocol error: invalid bulk length"},
		{"bulk overflow", "*1\r\n$9223372036854775807\r\n", "", "Protocol error: invalid bulk length"},
		{"bulk negative", "*1\r\n$-1\r\n", "", "Protocol error: invalid bulk length"},
		{"bulk over limit", "*1\r\n$33554433\r\n", "", "Protocol error: invalid bulk length"},
		{"bulk without length", "*1\r\n$\r\n", "", "Protocol error: invalid bulk length"},
		{"bulk length too long", "*1\r\n$" + strings.Repeat("1", 100), "", "Protocol error: too big bulk count string"},
		{"command over limit", "*3\r\n$33554432\r\n" + strings.Repeat("x", 32<<20) + "\r\n$1048576\r\n" + strings.Repeat("y", 1<<20) + "\r\n$1\r\n", "", "Protocol error: too big command"},
		{"multibulk overflow", "*9000000000000000000\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk over limit", "*1048577\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk int32", "*2147483647\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk junk", "*x\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk minus", "*-\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk lone line feed", "*1\n$4\r\nPING\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk lone return", "*1\r$4\r\nPING\r\n", "", "Protocol error: invalid multibulk length"},
		{"multibulk length too long", "*" + strings.Repeat("1", 100) + "\r\n", "", "Protocol error: too big mbulk count string"},
		{"not a bulk", "*1\r\n:4\r\n", "", "Protocol error: expected '$', got ':'"},
		{"empty bulk", "*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", "ECHO|", "EOF"},
		{"cut off", "*1\r\n$4\r\nPI", "", "EOF"},
		{"no line end behind bulk", "*1\r\n$4\r\nPINGxx", "", "Protocol error: expected CRLF behind the argument"},
		{"inline at the limit", strings.Repeat("a", 65536) + "\n", strings.Repeat("a", 65536), "EOF"},
		{"inline over the limit", strings.Repeat("a", 65537) + "\n", "", "Protocol error: too big inline request"},
		{"inline over the limit, no end", "PING\n" + strings.Repeat("a", 70000), "PING", "Protocol error: too big inline request"},
		{"http post", "POST / HTTP/1.1\r\nHost: x\r\n\r\n", "", errHTTP.Error()},
		{"http host", "GET / HTTP/1.1\r\nhOST: x\r\n\r\n", "GET|/|HTTP/1.1", errHTTP.Error()},
		{"http framed", "PING\r\n*1\r\n$4\r\npost\r\n", "PING", errHTTP.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, from := range map[string]io.Reader{
				"whole": strings.NewReader(c.in),
				"bytes": iotest.OneByteReader(strings.NewReader(c.in)),
				"half":  iotest.HalfReader(strings.NewReader(c.in)),
				"error": iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				if name == "bytes" && len(c.in) > 16<<10 { // covered with small limits below
					continue
				}
				out, err := readAll(known(from))
				if got := strings.Join(out, ";"); got != c.out || err.Error() != c.err {
					t.Errorf("%s: got %.80q %v, want %.80q %v", name, got, err, c.out, c.err)
				}
			}
		})
	}
}

func TestReaderBeforeAuthentication(t *testing.T) {
	eleven := "*11\r\n" + strings.Repeat("$1\r\na\r\n", 11)
	long := "*1\r\n$16385\r\n" + strings.Repeat("a", 16385) + "\r\n"
	for _, c := range []struct{ name, in, err string }{
		{"arguments", eleven, "Protocol error: unauthenticated multibulk length"},
		{"bulk", long, "Protocol error: unauthenticated bulk length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := known(strings.NewReader("PING\r\n" + c.in + c.in))
			r.authenticated = false
			if cmds, err := r.next(handleMax); err != nil || len(cmds) != 1 {
				t.Fatal("the first command alone", cmds, err)
			}
			if _, err := r.next(handleMax); err == nil || err.Error() != c.err {
				t.Fatal(err)
			}

			// The limits are lifted for what follows the command that lifts them,
			// even in the same packet.
			r = known(strings.NewReader("AUTH x\r\n" + c.in + c.in))
			r.authenticated = false
			if cmds, err := r.next(handleMax); err != nil || len(cmds) != 1 {
				t.Fatal("the first command alone", cmds, err)
			}
			r.authenticated = true
			if out, err := readAll(r); !errors.Is(err, io.EOF) || len(out) != 2 {
				t.Fatal(len(out), err)
			}
		})
	}
	at := "*10\r\n" + strings.Repeat("$1\r\na\r\n", 9) + "$16384\r\n" + strings.Repeat("a", 16384) + "\r\n"
	r := known(strings.NewReader(at))
	r.authenticated = false
	if out, err := readAll(r); len(out) != 1 || !errors.Is(err, io.EOF) {
		t.Fatal("at the limit", len(out), err)
	}
}

func TestReaderLimitsHoldOnBothSides(t *testing.T) {
	limits := Limits{ArgsMax: 3, BulkBytesMax: 4, CommandBytesMax: 6, InlineBytesMax: 8}
	for _, c := range []struct {
		in string
		ok bool
	}{
		{"*3\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n", true},
		{"*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n", false},
		{"*1\r\n$4\r\naaaa\r\n", true},
		{"*1\r\n$5\r\naaaaa\r\n", false},
		{"*2\r\n$4\r\naaaa\r\n$2\r\naa\r\n", true},
		{"*2\r\n$4\r\naaaa\r\n$3\r\naaa\r\n", false},
		{"a b cccc\n", true},
		{"a b ccccc\n", false},
		{"a b c d\n", false},
	} {
		for _, from := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in))} {
			r := known(from)
			r.limits = limits
			out, err := readAll(r)
			if c.ok != (len(out) == 1) || c.ok != errors.Is(err, io.EOF) {
				t.Errorf("%q: %q %v", c.in, out, err)
			}
		}
	}
}

func TestReaderHandsOutNoMoreThanAskedFor(t *testing.T) {
	r := known(strings.NewReader(strings.Repeat("PING\r\n", 10)))
	var sizes []int
	for {
		cmds, err := r.next(4)
		if err != nil {
			break
		}
		sizes = append(sizes, len(cmds))
	}
	if fmt.Sprint(sizes) != "[4 4 2]" {
		t.Fatal(sizes)
	}
}

func TestReaderKeepsWhatItHandedOut(t *testing.T) {
	const n = 3000
	var in bytes.Buffer
	for i := range n {
		s := fmt.Sprintf("%05d%s", i, strings.Repeat("x", i%700))
		fmt.Fprintf(&in, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(s), s)
	}
	r := known(&in)
	var kept []Command
	for {
		cmds, err := r.next(handleMax)
		if err != nil {
			break
		}
		kept = append(kept, cmds...)
	}
	if len(kept) != n {
		t.Fatal(len(kept))
	}
	for i, c := range kept {
		if want := fmt.Sprintf("%05d%s", i, strings.Repeat("x", i%700)); string(c.Args[1]) != want {
			t.Fatalf("command %d changed: %.20q", i, c.Args[1])
		}
		if cap(c.Args[1]) != len(c.Args[1]) || cap(c.Args) != 2 {
			t.Fatal("appending to an argument would overwrite its neighbour")
		}
	}
}

func TestReaderTakesLongArguments(t *testing.T) {
	const n = 2 << 20
	body := bytes.Repeat([]byte("0123456789abcdef"), n/16)
	in := fmt.Appendf(nil, "*4\r\n$1\r\na\r\n$%d\r\n%s\r\n$20000\r\n%s\r\n$3\r\nend\r\nPING\r\n", n, body, body[:20000])
	for name, from := range map[string]io.Reader{
		"whole": bytes.NewReader(in),
		"bytes": iotest.OneByteReader(bytes.NewReader(in)), // a recursive reader dies here
	} {
		r := known(from)
		cmds, err := r.next(handleMax)
		if err != nil || len(cmds) != 1 {
			t.Fatal(name, len(cmds), err)
		}
		args := cmds[0].Args
		if string(args[0]) != "a" || !bytes.Equal(args[1], body) || !bytes.Equal(args[2], body[:20000]) || string(args[3]) != "end" {
			t.Fatal(name, "wrong arguments")
		}
		if cmds, err = r.next(handleMax); err != nil || string(cmds[0].Args[0]) != "PING" {
			t.Fatal(name, cmds, err)
		}
	}
}

func TestReaderTakesManyArguments(t *testing.T) {
	const n = 1 << 20
	in := append(fmt.Appendf(nil, "*%d\r\n", n), bytes.Repeat([]byte("$1\r\na\r\n"), n)...)
	cmds, err := known(bytes.NewReader(in)).next(handleMax)
	if err != nil || len(cmds) != 1 || len(cmds[0].Args) != n || string(cmds[0].Args[n-1]) != "a" {
		t.Fatal(len(cmds), err)
	}
}

func TestReaderHoldsOnlyWhatArrived(t *testing.T) {
	for _, c := range []struct {
		in  string
		max uint64
	}{
		{"*3\r\n$33554432\r\n0123456789", 200 << 10},
		{"*1048576\r\n$1\r\na\r\n", 100 << 10},
		{"*1\r\n$33554432\r\n" + strings.Repeat("x", 1<<20), 6 << 20},
	} {
		r := known(strings.NewReader(c.in))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := r.next(1)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > c.max {
			t.Errorf("%.30q: %d bytes allocated, at most %d expected", c.in, got, c.max)
		}
	}
}

// A source that waits must not make the reader hold a buffer.
func TestParkedReaderHoldsNoBuffer(t *testing.T) {
	r := known(strings.NewReader("*2\r\n$4\r\nECHO\r\n$100\r\nabc"))
	if _, err := r.next(1); !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	r.park()
	if r.s != nil || r.big == nil || len(r.rest) != 0 || cap(r.big.cur)+len(r.big.chunk) > 2*chunkBytesMin {
		t.Fatalf("%+v", r)
	}
}

// scriptSource gives reads of the lengths that it was told, straight into the
// reader's buffer.
type scriptSource struct {
	in   []byte
	cuts []int // then as much as there is space for
}

func (s *scriptSource) fill(r *reader) (int, error) {
	if len(s.in) == 0 {
		return 0, io.EOF
	}
	space := r.room(r.pools.getScratch)
	if len(s.cuts) > 0 {
		space, s.cuts = space[:s.cuts[0]], s.cuts[1:]
	}
	n := copy(space, s.in)
	s.in = s.in[n:]
	return n, nil
}

// A buffer may be full of one command at every byte of it.
func TestReaderGoesOnWithAFullBuffer(t *testing.T) {
	const args = 40_000
	for ahead := range 16 {
		in := []byte("ECHO " + strings.Repeat("x", ahead) + "\r\n")
		in = append(append(in, fmt.Sprintf("*%d\r\n", args)...), bytes.Repeat([]byte("$3\r\nabc\r\n"), args)...)
		r := known(nil)
		r.src = &scriptSource{in: append(in, "PING\r\n"...), cuts: []int{len("ECHO \r\n") + ahead}}
		out, err := commandsOfReader(r, handleMax)
		if len(out) != 3 || len(out[1]) != args || !errors.Is(err, io.EOF) {
			t.Fatal(ahead, len(out), err)
		}
		for _, a := range out[1] {
			if string(a) != "abc" {
				t.Fatalf("%d: %q", ahead, a)
			}
		}
	}
}

// cutsReader gives reads of the lengths that it was told.
type cutsReader struct {
	in   []byte
	cuts []int
}

func (c *cutsReader) Read(b []byte) (int, error) {
	if len(c.cuts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.in[:c.cuts[0]])
	c.in = c.in[n:]
	if c.cuts[0] -= n; c.cuts[0] == 0 {
		c.cuts = c.cuts[1:]
	}
	return n, nil
}

// What is left of a line may fill the small buffer to the last byte.
func TestReaderGoesOnWithAFullSmallBuffer(t *testing.T) {
	for more := range 30 {
		line := strings.Repeat("x", 1100)
		in := "PING\r\n" + line + "\r\n"
		out, err := readAll(known(&cutsReader{[]byte(in), []int{1024, more, len(in) - 1024 - more}}))
		if len(out) != 2 || out[1] != line || !errors.Is(err, io.EOF) {
			t.Fatal(more, len(out), err)
		}
	}
}

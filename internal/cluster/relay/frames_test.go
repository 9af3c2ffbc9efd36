package relay

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// replies are one of each kind, and the same within each other.
func replies() []string {
	return []string{
		"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "$-1\r\n", "*-1\r\n", "$0\r\n\r\n", "$2\r\n\r\n\r\n",
		"=7\r\ntxt:abc\r\n", "!5\r\nERR x\r\n", "*0\r\n", "%0\r\n", "~0\r\n", ">1\r\n:1\r\n", "*2\r\n$1\r\na\r\n*1\r\n$-1\r\n",
		"%2\r\n+a\r\n:1\r\n+b\r\n*2\r\n*0\r\n%1\r\n+x\r\n#f\r\n", "~1\r\n*1\r\n*1\r\n*0\r\n",
	}
}

func TestTheEndOfAReplyIsFoundHoweverItIsCut(t *testing.T) {
	all := strings.Join(replies(), "")
	for cut := 1; cut <= len(all); cut++ {
		var s Scanner
		var got []string
		begun := ""
		for rest := all; rest != ""; {
			piece := rest[:min(cut, len(rest))]
			rest = rest[len(piece):]
			for piece != "" {
				n, done, err := s.Next([]byte(piece))
				if err != nil {
					t.Fatalf("in pieces of %d: %v behind %q", cut, err, begun)
				}
				begun, piece = begun+piece[:n], piece[n:]
				if done {
					got, begun = append(got, begun), ""
				} else if piece != "" {
					t.Fatalf("in pieces of %d: %q is left of an incomplete reply", cut, piece)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(replies()) || begun != "" {
			t.Fatalf("in pieces of %d: %q and %q", cut, got, begun)
		}
	}
}

func TestWhatIsNoReplyIsRefused(t *testing.T) {
	for _, wrong := range []string{
		"x\r\n", "$-2\r\n", "$1x\r\n", "$\r\n", "%-1\r\n", "$1\rx", "*99999999999\r\n", "*1\r\nx", "|1\r\n", "$?\r\n",
		"*" + strconv.Itoa(valuesMax+1) + "\r\n", "$" + strconv.Itoa(bulkMax+1) + "\r\n", strings.Repeat("*1\r\n", depthMax+1),
	} {
		var s Scanner
		if _, done, err := s.Next([]byte(wrong)); !errors.Is(err, errFrame) || done {
			t.Errorf("%q: done %v, %v", wrong, done, err)
		}
	}
	for _, right := range []string{strings.Repeat("*1\r\n", depthMax) + ":1\r\n", "$" + strconv.Itoa(bulkMax) + "\r\n"} {
		var s Scanner
		if _, _, err := s.Next([]byte(right)); err != nil {
			t.Errorf("%.20q: %v", right, err)
		}
	}
}

func TestTheStringsOfAReplyAreNotedWithTheirPlaces(t *testing.T) {
	var got []string
	s := Scanner{Note: func(path []int, text []byte) { got = append(got, fmt.Sprintf("%v%.10s", path, text)) }}
	reply := "*3\r\n$1\r\na\r\n*2\r\n:1\r\n$0\r\n\r\n%1\r\n$1\r\nk\r\n$" + strconv.Itoa(noteMax+1) + "\r\n" + strings.Repeat("v", noteMax+1) + "\r\n"
	for _, b := range []byte(reply) {
		if _, _, err := s.Next([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[[0]a [1 1] [2 0]k]"; fmt.Sprint(got) != want {
		t.Errorf("noted %v, want %s", got, want)
	}
}

// FuzzScanner cuts a stream in two ways: the replies must be the same, and those of a reader that knows
// them only as a whole.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(strings.Join(replies(), "")), uint8(3))
	for _, r := range replies() {
		f.Add([]byte(r), uint8(1))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		ends := func(size int) (ends []int, failed bool) {
			s := Scanner{Note: func(path []int, text []byte) {
				if len(path) == 0 || len(text) > noteMax {
					t.Fatalf("noted %d bytes at %v", len(text), path)
				}
			}}
			for at := 0; at < len(stream); {
				piece := stream[at:min(at+size, len(stream))]
				n, done, err := s.Next(piece)
				if err != nil {
					return ends, true
				}
				if n == 0 || n > len(piece) || !done && n < len(piece) {
					t.Fatalf("%d of %d bytes, done: %v", n, len(piece), done)
				}
				if at += n; done {
					ends = append(ends, at)
				}
			}
			return ends, false
		}
		one, failed := ends(len(stream) + 1)
		other, failedToo := ends(int(cut) + 1)
		if fmt.Sprint(one) != fmt.Sprint(other) || failed != failedToo {
			t.Fatalf("ends at %v (%v), in pieces at %v (%v)", one, failed, other, failedToo)
		}
		from := 0
		for _, to := range one {
			if rest, ok := skip(stream[from:to], 0); !ok || len(rest) > 0 {
				t.Fatalf("%q is not one reply", stream[from:to])
			}
			from = to
		}
	})
}

// skip reads one value and returns what follows it.
func skip(b []byte, depth int) (rest []byte, ok bool) {
	line, rest, found := bytes.Cut(b, []byte("\n"))
	if !found || len(line) == 0 || depth > depthMax {
		return nil, false
	}
	n, _ := strconv.Atoi(string(bytes.TrimSuffix(line[1:], []byte("\r"))))
	switch line[0] {
	case '$', '=', '!':
		if n < 0 {
			return rest, true
		}
		if len(rest) < n+2 {
			return nil, false
		}
		return rest[n+2:], true
	case '%':
		n *= 2
	case '*', '~', '>':
	default:
		return rest, true
	}
	for range max(n, 0) {
		if rest, ok = skip(rest, depth+1); !ok {
			return nil, false
		}
	}
	return rest, true
}

func FuzzPreface(f *testing.F) {
	f.Add([]byte("10.0.0.1:4711"), preface("[::1]:1"))
	f.Add([]byte(strings.Repeat("x", addressMax+1)), []byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, client, raw []byte) {
		want := string(client[:min(len(client), addressMax)])
		from := bytes.NewReader(append(preface(string(client)), "rest"...))
		if got, err := parsePreface(from); err != nil || got != want || from.Len() != len("rest") {
			t.Fatalf("got %q, %v, and %d bytes are left", got, err, from.Len())
		}
		from.Reset(raw)
		if got, err := parsePreface(from); err == nil && (len(got) > addressMax || !bytes.Equal(preface(got), raw[:len(raw)-from.Len()])) {
			t.Fatalf("%q is read as %q", raw, got)
		}
	})
}

package bench

import (
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// reading is a connection that reads a text byte by byte.
func reading(text string) *Conn {
	return &Conn{nc: &script{r: iotest.OneByteReader(strings.NewReader(text))}, in: make([]byte, 1)}
}

type script struct {
	net.Conn
	r io.Reader
}

func (s *script) Read(b []byte) (int, error) { return s.r.Read(b) }

func TestRepliesAreReadHoweverTheyArrive(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                       "OK",
		":-42\r\n":                      int64(-42),
		"$0\r\n\r\n":                    "",
		"$4\r\na\r\nb\r\n":              "a\r\nb",
		"$-1\r\n":                       nil,
		"*-1\r\n":                       nil,
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n": []any{[]any{int64(1)}, "x"},
	} {
		if got, err := reading(text).Reply(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, %v", text, got, err)
		}
		c := reading(text + ":7\r\n")
		if err := c.skip(); err != nil {
			t.Errorf("%q: skip: %v", text, err)
		}
		if n, err := c.integer(); n != 7 || err != nil {
			t.Errorf("%q: behind it are %d, %v", text, n, err)
		}
	}
}

func TestWhatIsNoReplyIsAnError(t *testing.T) {
	for _, text := range []string{"", "\r\n", "$x\r\n", ":\r\n", "*99999999999999999999\r\n", "%1\r\n", "$5\r\nabc", "*2\r\n:1\r\n"} {
		if got, err := reading(text).Reply(); err == nil {
			t.Errorf("%q was read as %#v", text, got)
		}
		if err := reading(text).skip(); err == nil {
			t.Errorf("%q was skipped", text)
		}
	}
	_, err := reading("-NOQUEUE there is none\r\n").text()
	if r, ok := errors.AsType[RefusalError](err); !ok || r != "NOQUEUE there is none" {
		t.Errorf("an error reply is %v", err)
	}
}

func TestDeliveriesAreReadWhateverIsAddedAtTheirEnd(t *testing.T) {
	text := "*2\r\n*2\r\n$2\r\nr1\r\n$2\r\np1\r\n*4\r\n$2\r\nr2\r\n$2\r\np2\r\n*1\r\n:1\r\n:5\r\n"
	var got []string
	err := new(filaWords).deliveries(reading(text), func(receipt, payload []byte) { got = append(got, string(receipt)+string(payload)) })
	if s := strings.Join(got, " "); err != nil || s != "r1p1 r2p2" {
		t.Errorf("got %s, %v", s, err)
	}
	text = "*1\r\n*2\r\n$1\r\nq\r\n*2\r\n*2\r\n$2\r\ni1\r\n*2\r\n$1\r\np\r\n$2\r\np1\r\n*2\r\n$2\r\ni2\r\n*2\r\n$1\r\np\r\n$2\r\np2\r\n"
	got = nil
	err = new(streamWords).deliveries(reading(text), func(id, payload []byte) { got = append(got, string(id)+string(payload)) })
	if s := strings.Join(got, " "); err != nil || s != "i1p1 i2p2" {
		t.Errorf("of streams got %s, %v", s, err)
	}
}

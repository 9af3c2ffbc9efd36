package delivery

import (
	"strings"
	"testing"

	"github.com/faisca/fila/storage"
)

// live says that all leases of a test are live.
func live(string) bool { return true }

func TestTextsOfLeasesAreBounded(t *testing.T) {
	l := NewNoteTable[string]()
	l.texts.Max = 1500
	text := strings.Repeat("x", ProgressBytes)
	l.SetProgress("a", text)
	l.SetProgress("b", text)
	if l.Progress("a") != "" || l.Progress("b") != text || l.Progress("c") != "" {
		t.Errorf("of two texts without room for both, %d and %d bytes are left", len(l.Progress("a")), len(l.Progress("b")))
	}
	if err := l.Check(live); err != nil {
		t.Error(err)
	}
	if l.Check(func(lease string) bool { return lease != "a" }) == nil {
		t.Error("notes of a lease that is over are not found")
	}
	if l.End("a") || !l.End("b") || l.End("b") || l.Len() != 0 {
		t.Errorf("%d leases have notes, or an end says wrongly that there was a text", l.Len())
	}
}

func headers(bytes ...int) (list []storage.Header) {
	for _, n := range bytes {
		list = append(list, storage.Header{Name: []byte("n"), Value: make([]byte, n-1)})
	}
	return list
}

func TestALeaseKeepsTheFirstHeadersThatFit(t *testing.T) {
	l := NewNoteTable[string]()
	for _, c := range []struct {
		of   []storage.Header
		kept int
	}{{nil, 0}, {headers(headerBytes), 1}, {headers(headerBytes + 1), 0}, {headers(100, headerBytes-100, 1), 2}, {headers(headerBytes, 1), 1}} {
		n := l.KeepHeaders("a")
		n.keep(c.of)
		n.keep(headers(7)) // a second load gives them again
		want := c.kept
		if len(c.of) == 0 {
			want = 1 // of the second load
		}
		if got := l.Headers("a"); len(got) != want {
			t.Errorf("%d headers are kept, want %d", len(got), want)
		}
		if err := l.Check(live); err != nil {
			t.Error(err)
		}
		l.End("a")
		n.keep(headers(7)) // the connection is late
		if l.HeaderBytes() != 0 || l.Headers("a") != nil {
			t.Errorf("%d bytes are counted of a lease that is over", l.HeaderBytes())
		}
	}
}

func TestHeadersOfAllLeasesAreBounded(t *testing.T) {
	l := NewNoteTable[string]()
	l.KeepHeaders("a").keep(headers(10))
	l.used.Store(headersBytesMax - headerOverhead - 10)
	l.KeepHeaders("b").keep(headers(10))
	l.KeepHeaders("c").keep(headers(10))
	if len(l.Headers("b")) != 1 || l.Headers("c") != nil || l.HeaderBytes() != headersBytesMax {
		t.Errorf("%d and %d headers are kept, %d bytes are counted", len(l.Headers("b")), len(l.Headers("c")), l.HeaderBytes())
	}
}

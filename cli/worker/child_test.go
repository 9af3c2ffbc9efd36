package worker

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faisca/fila/internal/client"
)

func TestTheLastLineOfStandardErrorIsTheFailure(t *testing.T) {
	long := strings.Repeat("x", failureMax)
	for _, x := range []struct {
		parts []string
		want  string
	}{
		{nil, ""},
		{[]string{"\n \n"}, ""},
		{[]string{"a\nb\n"}, "b"},
		{[]string{"a\nb"}, "b"},
		{[]string{"first\nla", "st\n", "\n\n"}, "last"},
		{[]string{"  indented \r\n"}, "indented"},
		{[]string{long, "more\n"}, long},
	} {
		var seen bytes.Buffer
		l := lastLine{to: &seen}
		for _, p := range x.parts {
			if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
				t.Errorf("%q: wrote %d, %v", p, n, err)
			}
		}
		if l.String() != x.want || seen.String() != strings.Join(x.parts, "") {
			t.Errorf("%q: the last line is %q, handed on was %q", x.parts, l.String(), seen.String())
		}
	}
}

func TestTheEnvironmentOfAProgram(t *testing.T) {
	m := Message{Queue: "q", ID: "i", Key: "k\x00", Attempt: 2, Deliveries: 3, EnqueuedAt: 4, Headers: []string{"X-Trace.id", "a", "é", "b", "bad", "\x00"}}
	got := environment([]string{"PATH=/bin", "FILA_URL=fila://a:b@c", "FILA_AUTH__PASSWORD=b", "FILA_MESSAGE_ID=old"}, &m)
	want := []string{"PATH=/bin", "FILA_MESSAGE_ID=i", "FILA_MESSAGE_QUEUE=q", "FILA_MESSAGE_ATTEMPT=2", "FILA_MESSAGE_DELIVERIES=3", "FILA_MESSAGE_ENQUEUED_AT=4",
		"FILA_MESSAGE_HEADER_X_TRACE_ID=a", "FILA_MESSAGE_HEADER__=b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestPausesGrowToTheirBound(t *testing.T) {
	b := newBackoff()
	for _, most := range []time.Duration{retryMin, 2 * retryMin, 4 * retryMin} {
		if d := b.next(); d < most/2 || d >= most {
			t.Errorf("%s, want below %s", d, most)
		}
	}
	for range 100 {
		if d := b.next(); d >= retryMax {
			t.Errorf("a pause of %s", d)
		}
	}
	if b.reset(); b.next() >= retryMin {
		t.Error("it does not begin again")
	}
}

func TestOnlyAStateThatPassesIsTriedAgain(t *testing.T) {
	for text, want := range map[string]bool{"LOADING x": true, "MISCONF x": true, "OOM x": true, "ERR max number of clients reached": true, "ERR syntax": false, "NOPERM x": false, "NOQUEUE x": false} {
		code, rest, _ := strings.Cut(text, " ")
		if got := passing(client.RefusalError{Code: code, Text: rest}); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

func TestWhatIsNoMessageIsAnError(t *testing.T) {
	w := Worker{Queue: "q"}
	if _, err := w.parse([]any{"OK"}); err == nil {
		t.Error("it was taken")
	}
	if m, err := w.parse(nil); err != nil || len(m) != 0 {
		t.Errorf("%v, %v", m, err)
	}
	m, err := w.parse([]any{[]any{"id:3", "payload", []any{"a", "b"}, "key", int64(1), int64(2), int64(3), int64(4), "q", "new"}})
	if err != nil || len(m) != 1 || m[0].Queue != "q" || m[0].ID != "id" || m[0].receipt != "id:3" || !slices.Equal(m[0].Headers, []string{"a", "b"}) {
		t.Errorf("%+v, %v", m, err)
	}
}

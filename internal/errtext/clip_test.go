package errtext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestATextIsNotCutWithinACharacter(t *testing.T) {
	for _, x := range []struct {
		text, want string
		bytes      int
	}{
		{"abc", "abc", 3},
		{"abcd", "abc", 3},
		{"aé", "aé", 3},
		{"aéé", "aé", 4},
		{"a€", "a", 3},
		{"a€", "a", 2},
		{"🦊🦊", "🦊", 7},
		{"🦊", "", 3},
		{"abc", "", 0},
		{"\x80\x80\x80\x80\x80\x80\x80", "\x80\x80\x80\x80\x80", 5},
	} {
		if got := Clip(x.text, x.bytes); got != x.want {
			t.Errorf("%q to %d bytes is %q, want %q", x.text, x.bytes, got, x.want)
		}
	}
	long := strings.Repeat("añ€🦊", 100)
	for n := range len(long) {
		if got := Clip(long, n); !utf8.ValidString(got) || len(got) > n || len(got) < n-3 {
			t.Fatalf("%d bytes: %q", n, got)
		}
	}
}

func TestANounIsInThePluralUnlessThereIsOne(t *testing.T) {
	if zero, one, two := Amount(0, "message"), Amount(int64(1), "message"), Amount(2, "message"); zero != "0 messages" || one != "1 message" || two != "2 messages" {
		t.Error(zero, one, two)
	}
}

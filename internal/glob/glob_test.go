package glob

import (
	"strings"
	"testing"
	"time"
)

func TestGlobMatchesAsRedisDoes(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"a*c", "abbbc", true},
		{"a*c", "abbb", false}, {"?", "a", true}, {"?", "", false}, {"?", "ab", false}, {"h?llo", "hello", true}, {"h[ae]llo", "hallo", true},
		{"h[ae]llo", "hillo", false}, {"h[^e]llo", "hallo", true}, {"h[^e]llo", "hello", false}, {"h[a-c]llo", "hbllo", true},
		{"h[c-a]llo", "hbllo", true}, {"h[a-c]llo", "hdllo", false}, {`h\*llo`, "h*llo", true}, {`h\*llo`, "hxllo", false},
		{`[\]]`, "]", true}, {"[", "[", false}, {"[a", "a", true}, {`a\`, `a\`, true}, {"**a**", "bab", true}, {"a**", "a", true},
		{"\xff?", "\xff\x00", true}, {"a*b*c", "aXbYbZc", true}, {"a*b*c", "aXbYbZ", false},
	} {
		if got := Match(c.pattern, c.s); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.pattern, c.s, got)
		}
	}
}

// A pattern of stars must not occupy a processor.
func TestGlobIsBounded(t *testing.T) {
	start := time.Now()
	Match(strings.Repeat("a*", 200)+"b", strings.Repeat("a", 5000))
	if took := time.Since(start); took > time.Second {
		t.Errorf("took %v", took)
	}
}

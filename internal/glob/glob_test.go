package glob

import (
	"fmt"
	"strings"
	"testing"
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
func TestTheWorkOfAPatternIsTheProductOfTheLengths(t *testing.T) {
	for _, pattern := range []string{strings.Repeat("a*", 200) + "b", strings.Repeat("*a", 200) + "b", "*" + strings.Repeat("a", 400) + "b", strings.Repeat("*", 400) + "b", strings.Repeat("*?[a]", 80) + "b"} {
		s := strings.Repeat("a", 5000)
		if matches, steps := Count(pattern, s); matches || steps > len(pattern)*len(s) {
			t.Errorf("%.20q...: %t after %d steps, want false after at most %d", pattern, matches, steps, len(pattern)*len(s))
		}
	}
}

func TestAPatternWithAMistakeIsNamed(t *testing.T) {
	for pattern, want := range map[string]string{
		"": "", "*": "", "a[b-c]d": "", `a\[`: "", `[\]]`: "", `\\`: "", "]": "", "[]": "", "[^]x]": "",
		"[": "has a [ without its ]", "a[b": "has a [ without its ]", `[a\]`: "has a [ without its ]", `[a\`: "has a [ without its ]",
		`\`: "ends with a single \\", `a\\\`: "ends with a single \\",
	} {
		err := Check(pattern)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.HasPrefix(got, want) {
			t.Errorf("Check(%q) = %v, want %q", pattern, err, want)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a*b", "axb")
	f.Add(`[a]\?`, "a")
	f.Fuzz(func(t *testing.T, s, other string) {
		p := Quote(s)
		if err := Check(p); err != nil || !Match(p, s) {
			t.Errorf("%q as the pattern %q: %v, it matches: %v", s, p, err, Match(p, s))
		}
		if Match(p, other) != (s == other) {
			t.Errorf("%q matches %q: %v", p, other, Match(p, other))
		}
	})
}

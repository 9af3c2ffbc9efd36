package metrics

import (
	"strings"
	"unicode/utf8"
)

// escape returns the text of a name in a label. Names are binary safe and labels are not: one
// byte that is not UTF-8 would fail the whole scrape. Such bytes are written \xNN, and so is
// the backslash of a name that contains \x itself: different names stay different.
func escape(name string) string {
	if utf8.ValidString(name) && !strings.Contains(name, `\x`) {
		return name
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		switch c := name[i]; {
		case r == utf8.RuneError && size <= 1, c == '\\' && strings.HasPrefix(name[i+1:], "x"):
			b.WriteString(`\x`)
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		default:
			b.WriteString(name[i : i+size])
		}
		i += size
	}
	return b.String()
}

package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape makes text safe for a terminal and for columns: control characters and bytes that are
// not UTF-8 become \n, \t, \xNN or \u{N}, and a backslash becomes two.
func Escape(s string) string {
	if !strings.ContainsFunc(s, escaped) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\\':
			b.WriteString(`\\`)
		case escaped(r) && r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case escaped(r) && r != utf8.RuneError:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// Line makes one line of a text for people, such as an error: what Escape would escape is, but for
// backslashes.
func Line(s string) string {
	return strings.ReplaceAll(Escape(strings.Join(strings.Fields(s), " ")), `\\`, `\`)
}

// escaped are control characters, and those that change the direction or the order of what is
// shown, with which a name could pretend to be another.
func escaped(r rune) bool {
	return r == '\\' || r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

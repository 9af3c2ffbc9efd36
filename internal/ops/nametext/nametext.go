// Package nametext writes names as text. Names of queues, fairness keys and throttles are binary
// safe, and the labels of metrics and the attributes of spans are UTF-8: one byte that is not
// would fail a whole scrape or export.
package nametext

import (
	"strings"
	"unicode/utf8"
)

// Of returns the text of a name, cut to most bytes. A byte that is not UTF-8 is written
// \xNN, and so is the backslash of a name that contains \x itself: different names stay different
// up to the bound. What is longer is cut, between characters.
func Of(name string, most int) string {
	if len(name) <= most && utf8.ValidString(name) && !strings.Contains(name, `\x`) {
		return name
	}
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		out := name[i : i+size]
		if c := name[i]; r == utf8.RuneError && size == 1 || c == '\\' && strings.HasPrefix(name[i+1:], "x") {
			out = `\x` + digits[c>>4:c>>4+1] + digits[c&15:c&15+1]
		}
		if b.Len()+len(out) > most {
			break
		}
		b.WriteString(out)
		i += size
	}
	return b.String()
}

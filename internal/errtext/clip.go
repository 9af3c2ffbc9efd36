package errtext

import (
	"fmt"
	"unicode/utf8"
)

// Clip returns the beginning of a text: at most that number of bytes, and no part of a character of UTF-8.
// Text that is not UTF-8 is cut where the bytes end.
func Clip(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for at := bytes; at >= 0 && at > bytes-utf8.UTFMax; at-- {
		if utf8.RuneStart(text[at]) {
			return text[:at]
		}
	}
	return text[:bytes]
}

// Amount formats a number with the noun that it counts: 1 message, 2 messages.
func Amount[N ~int | ~int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

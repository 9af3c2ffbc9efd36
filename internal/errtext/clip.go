package errtext

import "unicode/utf8"

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

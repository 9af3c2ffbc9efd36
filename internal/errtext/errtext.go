// Package errtext groups texts of errors by cause: those that differ only in numbers, ids, quoted
// strings, hosts, addresses and paths are of one group.
package errtext

import "strings"

// Group returns the text of the group that an error belongs to: the error with what
// differs from one occurrence to the next taken out. It is never longer than the
// error, takes time in proportion to its length, and the group of a group's text is
// that text.
//
//	a number                      #    digits, with points and commas between them
//	a UUID                        #    8-4-4-4-12 hexadecimal digits
//	a hexadecimal id              #    8 or more hexadecimal digits, or 0x and one or more
//	another id                    #    16 or more letters and digits, with digits in two places
//	a quoted string               ""   or between apostrophes or backquotes, which stay
//	a path                        #    an absolute one, and what follows the scheme of a URL
//	an address                    #    of IPv6, of hardware, of mail
//	a host                        #    whose last part is a domain such as com or local, or that has a port
//	                                   and a word such as tcp or to before it
//
// An id has a digit: without one it may be a word. Digits within another word are
// numbers, as in "worker12", which becomes "worker#". An apostrophe within a word is no
// quote, a quote behind a backslash ends no string, and one that nothing ends is an
// ordinary character.
func Group(text string) string {
	s := scanner{text: text}
	s.out.Grow(len(text))
	for s.at < len(text) {
		switch b := text[s.at]; {
		case isQuote(b):
			s.quoted(b)
		case (isWord(b) || b == '/') && s.placed():
		case isWord(b):
			s.word()
		default:
			s.out.WriteByte(b)
			s.at++
		}
	}
	return s.out.String()
}

// placed writes the mark of a path, an address or a host, if one begins at s.at.
func (s *scanner) placed() bool {
	n := s.placeLen()
	if n == 0 {
		return false
	}
	s.out.WriteByte(mark)
	s.at += n
	return true
}

// scanner is the state of Group: what is before at is in out.
type scanner struct {
	text string
	at   int
	out  strings.Builder
	// unended are the quotes that have no end from at on: what has none once has none
	// later, as the ends that are left are the same.
	unended [3]bool
}

const quotes = "\"'`"

func isQuote(b byte) bool { return strings.IndexByte(quotes, b) >= 0 }

// quoted takes a quoted string out, or writes a quote that begins none.
func (s *scanner) quoted(q byte) {
	begin, kind := s.at, strings.IndexByte(quotes, q)
	s.out.WriteByte(q)
	s.at++
	if s.unended[kind] || q == '\'' && begin > 0 && joins(s.text[begin-1]) {
		return
	}
	for i := s.at; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\\':
			i++
		case s.text[i] == q && (q != '\'' || i+1 == len(s.text) || !joins(s.text[i+1])):
			s.out.WriteByte(q)
			s.at = i + 1
			return
		}
	}
	s.unended[kind] = true
}

// joins reports whether an apostrophe beside the byte is within a word. The mark of a
// number counts, as the number does.
func joins(b byte) bool { return isWord(b) || b == mark }

// mark stands for a number or an id.
const mark = '#'

// word writes the word at s.at, or the mark of it, or that of each number in it.
func (s *scanner) word() {
	if n := uuidLen(s.text[s.at:]); n > 0 {
		s.out.WriteByte(mark)
		s.at += n
		return
	}
	end := s.at + 1
	for end < len(s.text) && isWord(s.text[end]) {
		end++
	}
	word := s.text[s.at:end]
	if isID(word) {
		s.out.WriteByte(mark)
		s.at = end
		if n := suffixLen(s.text[end:]); n > 0 {
			s.out.WriteString("-#")
			s.at += n
		}
		return
	}
	for i := s.at; i < end; i++ {
		if !isDigit(s.text[i]) {
			s.out.WriteByte(s.text[i])
			continue
		}
		s.out.WriteByte(mark)
		i += numberLen(s.text[i:]) - 1
		end = max(end, i+1)
	}
	s.at = end
}

// numberLen returns the length of the number that s begins with: digits, and points
// and commas that have digits on both sides, as in 10.0.0.1 and 1,000.
func numberLen(s string) int {
	n := 1
	for n < len(s) && (isDigit(s[n]) || (s[n] == '.' || s[n] == ',') && n+1 < len(s) && isDigit(s[n+1])) {
		n++
	}
	return n
}

// isID reports whether a word is an id and no word of a language.
func isID(word string) bool {
	const hexMin, mixedMin = 8, 16
	if len(word) > 2 && word[0] == '0' && (word[1] == 'x' || word[1] == 'X') && allHex(word[2:]) {
		return true
	}
	places, last := 0, false // runs of digits
	for i := range len(word) {
		if isDigit(word[i]) && !last {
			places++
		}
		last = isDigit(word[i])
	}
	return places > 0 && len(word) >= hexMin && allHex(word) || places > 1 && len(word) >= mixedMin
}

// uuidLen returns the length of the UUID that s begins with, 0 if it begins with none.
func uuidLen(s string) int {
	const length = 36
	if len(s) < length || len(s) > length && isWord(s[length]) {
		return 0
	}
	digits := false
	for i := range length {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash && s[i] != '-' || !dash && !isHex(s[i]) {
			return 0
		}
		digits = digits || isDigit(s[i])
	}
	if !digits {
		return 0
	}
	return length
}

func allHex(s string) bool {
	for i := range len(s) {
		if !isHex(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isHex(b byte) bool { return isDigit(b) || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F' }

// isWord reports whether a byte is one of a word: a letter or a digit. Bytes beyond
// ASCII are letters.
func isWord(b byte) bool {
	return isDigit(b) || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || b >= 0x80
}

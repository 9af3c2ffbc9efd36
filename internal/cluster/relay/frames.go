package relay

import (
	"bytes"
	"errors"
	"strconv"
)

// Bounds of what a scanner accepts. No reply of Fila comes near them.
const (
	depthMax  = 32       // aggregates within each other
	valuesMax = 1 << 30  // values of an aggregate
	bulkMax   = 1 << 30  // bytes of a string
	noteMax   = 64 << 10 // bytes of a string for Note
)

// errFrame is what is wrong with a stream that does not consist of replies.
var errFrame = errors.New("not a reply of RESP")

// Scanner finds the ends of replies, of RESP2 and RESP3, in a stream that arrives in pieces. It takes
// time linear in the bytes and memory in the depth. The zero value is before the first reply.
type Scanner struct {
	// Note is called with each string in an aggregate: its path, which is the position in each
	// aggregate around it, and its bytes. Both are valid during the call. Strings above noteMax are
	// left out. Nil: nothing is called.
	Note func(path []int, text []byte)

	open   []aggregate // around the value being read
	head   byte        // kind of the line being read; 0: a value begins
	sign   bool        // its number is negative
	n      int         // its number so far
	size   int         // digits of it
	cr     bool        // its CR was read
	bulk   int         // bytes of a string that are missing, with its CRLF; 0: none is being read
	noting bool        // the string is kept for Note
	text   []byte      // of it so far
	path   []int
}

// aggregate is an array, map, set or push that is not complete.
type aggregate struct{ size, left int }

// Next reads the reply under way, or the next one, from b. It returns how many bytes of b belong to it
// and whether it is complete with them; if not, these are all.
func (s *Scanner) Next(b []byte) (n int, done bool, err error) {
	for n < len(b) {
		switch {
		case s.bulk > 0:
			take := min(s.bulk, len(b)-n)
			s.keep(b[n : n+take])
			s.bulk -= take
			n += take
			if s.bulk == 0 {
				s.noted()
				done = s.value()
			}
		case s.head == 0:
			s.head, s.n, s.size, s.sign, s.cr = b[n], 0, 0, false, false
			n++
			if !known(s.head) {
				return n, false, errFrame
			}
		case line(s.head):
			end := bytes.IndexByte(b[n:], '\n')
			if end < 0 {
				return len(b), false, nil
			}
			n += end + 1
			done = s.value()
		default:
			if done, err = s.number(b[n]); err != nil {
				return n, false, err
			}
			n++
		}
		if done {
			return n, true, nil
		}
	}
	return n, false, nil
}

// known reports whether a value may begin with the byte.
func known(kind byte) bool { return bytes.IndexByte([]byte("+-:_#,($=!*%~>"), kind) >= 0 }

// line reports whether a value is its line and no more.
func line(kind byte) bool { return bytes.IndexByte([]byte("+-:_#,("), kind) >= 0 }

// number reads a byte of the line with the length of a string or an aggregate. done: the reply ends
// with it.
func (s *Scanner) number(c byte) (done bool, err error) {
	switch {
	case s.cr:
		if c != '\n' || s.size == 0 {
			return false, errFrame
		}
		return s.begin()
	case c == '\r':
		s.cr = true
	case c == '-' && s.size == 0 && !s.sign:
		s.sign = true
	case c >= '0' && c <= '9' && s.size < 10:
		s.n = s.n*10 + int(c-'0')
		s.size++
	default:
		return false, errFrame
	}
	return false, nil
}

// begin begins the string or aggregate whose length was read.
func (s *Scanner) begin() (done bool, err error) {
	kind := s.head
	if s.sign {
		if s.n != 1 || kind != '$' && kind != '*' { // the nulls of RESP2
			return false, errFrame
		}
		return s.value(), nil
	}
	if bytes.IndexByte([]byte("$=!"), kind) >= 0 {
		if s.n > bulkMax {
			return false, errFrame
		}
		s.bulk = s.n + len("\r\n")
		s.noting = s.Note != nil && len(s.open) > 0 && s.n <= noteMax
		return false, nil
	}
	if kind == '%' {
		s.n *= 2
	}
	if s.n > valuesMax || len(s.open) == depthMax {
		return false, errFrame
	}
	if s.n == 0 {
		return s.value(), nil
	}
	s.open = append(s.open, aggregate{s.n, s.n})
	s.head = 0
	return false, nil
}

// value takes note that a value is complete, and reports whether the reply is.
func (s *Scanner) value() bool {
	s.head = 0
	for len(s.open) > 0 {
		last := &s.open[len(s.open)-1]
		if last.left--; last.left > 0 {
			return false
		}
		s.open = s.open[:len(s.open)-1]
	}
	return true
}

// keep keeps bytes of a string for Note.
func (s *Scanner) keep(b []byte) {
	if s.noting {
		s.text = append(s.text, b...)
	}
}

// noted passes the string that is complete to Note.
func (s *Scanner) noted() {
	if !s.noting {
		return
	}
	s.path = s.path[:0]
	for _, a := range s.open {
		s.path = append(s.path, a.size-a.left)
	}
	s.Note(s.path, s.text[:len(s.text)-len("\r\n")])
	s.text = s.text[:0]
}

// AppendCommand appends a command in the form in which clients send it.
func AppendCommand(b []byte, words ...[]byte) []byte {
	b = append(strconv.AppendInt(append(b, '*'), int64(len(words)), 10), "\r\n"...)
	for _, w := range words {
		b = append(strconv.AppendInt(append(b, '$'), int64(len(w)), 10), "\r\n"...)
		b = append(append(b, w...), "\r\n"...)
	}
	return b
}

package resp

import "bytes"

// inline reads a command sent as a plain line, for use with telnet. Quotes and escapes
// follow Redis: "double" with \n \r \t \b \a \xHH, 'single' with \' only. Decoding never
// lengthens, so it is done in place.
func (r *reader) inline() error {
	nl := bytes.IndexByte(r.s.buf[r.pos+r.scanned:r.end], '\n')
	if nl < 0 {
		r.scanned = r.end - r.pos
		if r.scanned > r.limits.InlineBytesMax {
			r.scanned = 0
			return errInlineTooLong
		}
		return errMore
	}
	nl += r.pos + r.scanned
	r.scanned = 0
	if nl-r.pos > r.limits.InlineBytesMax {
		return errInlineTooLong
	}
	line := splitter{line: r.s.buf[r.pos:nl]}
	for line.more() {
		if len(r.s.spans)-r.first == r.limits.ArgsMax {
			return errMultibulk
		}
		at, n, ok := line.word()
		if !ok {
			return errInlineQuotes
		}
		r.s.spans = append(r.s.spans, span{int32(r.pos + at), int32(n)})
	}
	r.pos = nl + 1
	if len(r.s.spans) == r.first {
		r.skip()
		return nil
	}
	return r.finish()
}

// splitter splits a line into words and decodes them in place.
type splitter struct {
	line []byte
	i    int
}

// more skips to the next word and reports whether there is one.
func (s *splitter) more() bool {
	for s.i < len(s.line) && isBlank(s.line[s.i]) {
		s.i++
	}
	return s.i < len(s.line)
}

// word decodes one word. ok is false for an unbalanced quote.
func (s *splitter) word() (at, n int, ok bool) {
	at = s.i
	to := at // where the next decoded byte goes; never past s.i
	var quote byte
	for ; s.i < len(s.line); s.i++ {
		c := s.line[s.i]
		switch {
		case quote == 0 && isBlank(c):
			return at, to - at, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
			continue
		case quote != 0 && c == quote:
			s.i++
			return at, to - at, s.i == len(s.line) || isBlank(s.line[s.i])
		case quote != 0 && c == '\\':
			c = s.escape(quote)
		}
		s.line[to] = c
		to++
	}
	return at, to - at, quote == 0
}

// escape decodes a backslash sequence and leaves i at its last byte. An unknown sequence
// stands for itself.
func (s *splitter) escape(quote byte) byte {
	rest := s.line[s.i+1:]
	if len(rest) == 0 || quote == '\'' && rest[0] != '\'' {
		return '\\'
	}
	s.i++
	if quote == '\'' {
		return '\''
	}
	switch c := rest[0]; c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	case 'x':
		if len(rest) > 2 && hexDigit(rest[1]) >= 0 && hexDigit(rest[2]) >= 0 {
			s.i += 2
			return byte(hexDigit(rest[1])<<4 | hexDigit(rest[2]))
		}
		return c
	default:
		return c
	}
}

// isBlank reports whether c separates words, which includes NUL as in Redis.
func isBlank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' || c == 0 }

// hexDigit returns the value of a hexadecimal digit, or -1.
func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

package scripting

import (
	lua "github.com/yuin/gopher-lua"
)

// matcher implements Lua patterns by backtracking, as the reference implementation does.
// Some patterns take exponential time, so each step is charged to the budget of the call.
//
// A pattern is a sequence of items, of which match consumes one at a time:
//
//	item      consumed by         matches
//	x         single              a character of a class: x . %a [set]
//	x* x+     longest             as many as possible, then fewer
//	x-        shortest            as few as possible, then more
//	x?        match               one, else none
//	( )       open, close         the beginning and the end of a capture
//	%1        back                the text of an earlier capture
//	%bxy      balance             balanced x and y
//	%f[set]   frontier            a transition into a set
//	^ $       try, match          the beginning, only at first; the end, only at last
//
// Three bounds hold for any pattern and subject:
//
//   - time: each item, each character compared and each eighth of a set is a step of the call;
//   - the stack of Go: match recurses for groups, captures and repetitions, patternDepthMax deep;
//   - memory: captures are in the matcher, capturesMax of them; their text shares the subject.
//
// Positions are offsets in bytes; -1 stands for no match. A method that fails leaves captures
// and depth as they were, so that its caller can try the next alternative.
type matcher struct {
	l       *lua.LState
	m       *machine
	subject string
	pattern string
	depth   int
	level   int // captures so far

	captures [capturesMax]capture
}

// capture is a substring of the subject. size is one of the marks while the capture is
// open, or for a position capture.
type capture struct{ from, size int }

const (
	capturesMax = 32
	captureOpen = -1
	captureHere = -2

	patternBytesMax = 1 << 10
	patternDepthMax = 250 // backtracking depth; it recurses in Go
)

// pattern initialises a matcher.
func (m *machine) pattern(l *lua.LState, p *matcher, subject, pattern string) {
	if len(pattern) > patternBytesMax {
		l.RaiseError("a pattern of %d bytes, at most %d", len(pattern), patternBytesMax)
	}
	p.l, p.m, p.subject, p.pattern = l, m, subject, pattern
}

// fail raises the error of a pattern that has no meaning.
func (p *matcher) fail(text string) { p.l.RaiseError("malformed pattern (%s)", text) }

// try matches the pattern at position s and discards earlier captures. It returns the end
// of the match or -1.
func (p *matcher) try(s int) int {
	p.level, p.depth = 0, 0
	at := 0
	if p.anchored() {
		at = 1
	}
	return p.match(s, at)
}

// anchored reports whether the pattern matches at the beginning of the search only.
func (p *matcher) anchored() bool { return p.pattern != "" && p.pattern[0] == '^' }

// match matches the pattern from index i at index s of the subject and returns the end or
// -1.
func (p *matcher) match(s, i int) int {
	if p.depth++; p.depth > patternDepthMax {
		p.l.RaiseError("pattern too complex")
	}
	defer func() { p.depth-- }()
	for i < len(p.pattern) {
		p.m.steps(p.l, 1)
		switch c := p.pattern[i]; {
		case c == '(':
			if i+1 < len(p.pattern) && p.pattern[i+1] == ')' {
				return p.open(s, i+2, captureHere)
			}
			return p.open(s, i+1, captureOpen)
		case c == ')':
			return p.close(s, i+1)
		case c == '$' && i+1 == len(p.pattern):
			if s == len(p.subject) {
				return s
			}
			return -1
		case c == '%':
			next, after, ok := p.escape(s, i)
			if ok && next < 0 {
				return -1
			}
			if ok {
				s, i = next, after
				continue
			}
		}
		end := p.classEnd(i)
		var suffix byte
		if end < len(p.pattern) {
			suffix = p.pattern[end]
		}
		switch suffix {
		case '?':
			if s < len(p.subject) && p.single(s, i, end) {
				if r := p.match(s+1, end+1); r >= 0 {
					return r
				}
			}
			i = end + 1
		case '+':
			if s >= len(p.subject) || !p.single(s, i, end) {
				return -1
			}
			return p.longest(s+1, i, end)
		case '*':
			return p.longest(s, i, end)
		case '-':
			return p.shortest(s, i, end)
		default:
			if s >= len(p.subject) || !p.single(s, i, end) {
				return -1
			}
			s, i = s+1, end
		}
	}
	return s
}

// escape matches %b, %f and back references. It returns the positions behind it in
// subject and pattern; next is -1 for no match. ok is false for other escapes, which are
// single classes.
func (p *matcher) escape(s, i int) (next, after int, ok bool) {
	if i+1 >= len(p.pattern) {
		return 0, 0, false
	}
	switch c := p.pattern[i+1]; {
	case c == 'b':
		return p.balance(s, i+2), i + 4, true
	case c == 'f':
		end := p.classEnd(i + 2)
		if p.pattern[i+2] != '[' {
			p.fail("missing '[' after '%f'")
		}
		if !p.frontier(s, i+2, end) {
			return -1, end, true
		}
		return s, end, true
	case c >= '0' && c <= '9':
		return p.back(s, c), i + 2, true
	}
	return 0, 0, false
}

// longest implements * and +: as many repetitions as possible, then fewer.
func (p *matcher) longest(s, i, end int) int {
	n := 0
	for s+n < len(p.subject) && p.single(s+n, i, end) {
		n++
	}
	for ; n >= 0; n-- {
		if r := p.match(s+n, end+1); r >= 0 {
			return r
		}
	}
	return -1
}

// shortest implements -: as few repetitions as possible, then more.
func (p *matcher) shortest(s, i, end int) int {
	for {
		if r := p.match(s, end+1); r >= 0 {
			return r
		}
		if s >= len(p.subject) || !p.single(s, i, end) {
			return -1
		}
		s++
	}
}

// open begins a capture at s and matches the rest of the pattern from i, without the capture if
// that fails.
func (p *matcher) open(s, i, size int) int {
	if p.level >= capturesMax {
		p.l.RaiseError("too many captures")
	}
	p.captures[p.level] = capture{s, size}
	p.level++
	r := p.match(s, i)
	if r < 0 {
		p.level--
	}
	return r
}

// close ends the innermost open capture at s and matches the rest of the pattern from i. If that
// fails the capture is open again.
func (p *matcher) close(s, i int) int {
	k := p.level - 1
	for k >= 0 && p.captures[k].size != captureOpen {
		k--
	}
	if k < 0 {
		p.l.RaiseError("invalid pattern capture")
	}
	p.captures[k].size = s - p.captures[k].from
	r := p.match(s, i)
	if r < 0 {
		p.captures[k].size = captureOpen
	}
	return r
}

// balance implements %bxy.
func (p *matcher) balance(s, i int) int {
	if i+1 >= len(p.pattern) {
		p.fail("missing arguments to '%b'")
	}
	begin, end := p.pattern[i], p.pattern[i+1]
	if s >= len(p.subject) || p.subject[s] != begin {
		return -1
	}
	for depth := 1; ; {
		if s++; s >= len(p.subject) {
			return -1
		}
		p.m.steps(p.l, 1)
		switch p.subject[s] {
		case end:
			if depth--; depth == 0 {
				return s + 1
			}
		case begin:
			depth++
		}
	}
}

// frontier implements %f[set]: a transition from outside the set to inside.
func (p *matcher) frontier(s, i, end int) bool {
	var before, after byte
	if s > 0 {
		before = p.subject[s-1]
	}
	if s < len(p.subject) {
		after = p.subject[s]
	}
	return !p.set(before, i, end-1) && p.set(after, i, end-1)
}

// back implements %1 to %9: the text of an earlier capture.
func (p *matcher) back(s int, digit byte) int {
	k := int(digit) - '1'
	if k < 0 || k >= p.level || p.captures[k].size == captureOpen {
		p.l.RaiseError("invalid capture index")
	}
	c := p.captures[k]
	n := max(c.size, 0)
	p.m.steps(p.l, int64(n>>4))
	if len(p.subject)-s >= n && p.subject[c.from:c.from+n] == p.subject[s:s+n] {
		return s + n
	}
	return -1
}

// classEnd returns the end of the single class that begins at i.
func (p *matcher) classEnd(i int) int {
	if i >= len(p.pattern) {
		p.fail("ends too early")
	}
	c := p.pattern[i]
	i++
	switch c {
	case '%':
		if i >= len(p.pattern) {
			p.fail("ends with '%'")
		}
		return i + 1
	case '[':
		if i < len(p.pattern) && p.pattern[i] == '^' {
			i++
		}
		for first := true; ; first = false {
			if i >= len(p.pattern) {
				p.fail("missing ']'")
			}
			c := p.pattern[i]
			if c == ']' && !first {
				return i + 1
			}
			i++
			if c == '%' {
				i++
			}
		}
	}
	return i
}

// single reports whether the character at s matches the class from i to end.
func (p *matcher) single(s, i, end int) bool {
	p.m.steps(p.l, 1)
	c := p.subject[s]
	switch p.pattern[i] {
	case '.':
		return true
	case '%':
		return inClass(c, p.pattern[i+1])
	case '[':
		return p.set(c, i, end-1)
	default:
		return c == p.pattern[i]
	}
}

// set reports whether c is in the set with brackets at i and end.
func (p *matcher) set(c byte, i, end int) bool {
	p.m.steps(p.l, int64(end-i)>>3)
	in := true
	i++
	if p.pattern[i] == '^' {
		in = false
		i++
	}
	for ; i < end; i++ {
		switch {
		case p.pattern[i] == '%':
			i++
			if inClass(c, p.pattern[i]) {
				return in
			}
		case i+2 < end && p.pattern[i+1] == '-':
			if p.pattern[i] <= c && c <= p.pattern[i+2] {
				return in
			}
			i += 2
		case p.pattern[i] == c:
			return in
		}
	}
	return !in
}

// inClass reports whether c is in the class of a letter; an upper-case letter negates it.
// Other characters match themselves.
func inClass(c, letter byte) bool {
	lower := c >= 'a' && c <= 'z'
	upper := c >= 'A' && c <= 'Z'
	digit := c >= '0' && c <= '9'
	var in bool
	switch letter | 0x20 {
	case 'a':
		in = lower || upper
	case 'c':
		in = c < ' ' || c == 0x7f
	case 'd':
		in = digit
	case 'l':
		in = lower
	case 'p':
		in = c > ' ' && c < 0x7f && !lower && !upper && !digit
	case 's':
		in = c == ' ' || c >= '\t' && c <= '\r'
	case 'u':
		in = upper
	case 'w':
		in = lower || upper || digit
	case 'x':
		in = digit || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return c == letter
	}
	if letter >= 'A' && letter <= 'Z' {
		return !in
	}
	if letter < 'a' || letter > 'z' {
		return c == letter
	}
	return in
}

// results returns the number of values of a match: its captures, or the whole match.
func (p *matcher) results() int { return max(p.level, 1) }

// push pushes the captures of a match from s to e.
func (p *matcher) push(s, e int) int {
	n := p.results()
	for i := range n {
		p.l.Push(p.value(i, s, e))
	}
	return n
}

// value returns capture i, or the whole match if there are no captures.
func (p *matcher) value(i, s, e int) lua.LValue {
	if i >= p.level {
		if i > 0 {
			p.l.RaiseError("invalid capture index")
		}
		p.m.charge(p.l, costString)
		return lua.LString(p.subject[s:e])
	}
	c := p.captures[i]
	switch c.size {
	case captureHere:
		return lua.LNumber(c.from + 1)
	case captureOpen:
		p.l.RaiseError("unfinished capture")
	}
	p.m.charge(p.l, costString)
	return lua.LString(p.subject[c.from : c.from+c.size])
}

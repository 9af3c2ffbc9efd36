package scripting

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// The functions of `string` as Lua 5.1 specifies them, without dump. Each charges the string
// that it creates before it allocates it, and steps for the work that grows with its arguments.
// Strings are bytes; letters are those of ASCII, on every machine. Numbers are accepted as
// strings, as in Lua.
//
//	function               memory charged                    steps charged
//	len                    none                              none
//	byte                   none                              one for each result
//	sub                    a header; the bytes are shared    none
//	char, rep              the result                        those of a string
//	lower, upper, reverse  twice the result: it is copied    those of a string
//	find, match            a header for each capture         one for each start, and the matcher's
//	gmatch                 a matcher, and as match           as match
//	gsub                   a matcher, and the builder's      as match, one for each call of a function
//	format                 the builder's                     those of its strings

// stringLibrary is the table `string`.
func stringLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"byte": stringByte, "char": stringChar, "find": stringFind, "format": stringFormat, "gmatch": stringGmatch,
		"gsub": stringGsub, "len": stringLen, "lower": stringLower, "match": stringMatch, "rep": stringRep,
		"reverse": stringReverse, "sub": stringSub, "upper": stringUpper,
	}
}

// checkText returns an argument that is a string, or a number as a string.
func checkText(l *lua.LState, n int) string {
	switch v := l.Get(n).(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return string(of(l).text(l, v))
	}
	return l.CheckString(n) // raises
}

// bounds converts positions that count from 1, or from the end if negative, into a range
// of the string.
func bounds(from, to, size int) (int, int) {
	if from < 0 {
		from = max(size+from+1, 1)
	} else if from == 0 {
		from = 1
	}
	if to < 0 {
		to = size + to + 1
	} else if to > size {
		to = size
	}
	if from > to {
		return 0, 0
	}
	return from - 1, to
}

// stringLen is string.len, in bytes.
func stringLen(l *lua.LState) int {
	l.Push(lua.LNumber(len(checkText(l, 1))))
	return 1
}

// stringSub is string.sub. The result shares the bytes of the subject, so it costs a header
// only.
func stringSub(l *lua.LState) int {
	s := checkText(l, 1)
	from, to := bounds(l.CheckInt(2), l.OptInt(3, -1), len(s))
	of(l).charge(l, costString)
	l.Push(lua.LString(s[from:to]))
	return 1
}

// stringByte is string.byte. The number of results is bounded by the stack.
func stringByte(l *lua.LState) int {
	s := checkText(l, 1)
	first := l.OptInt(2, 1)
	from, to := bounds(first, l.OptInt(3, first), len(s))
	if to-from > registryMax {
		l.RaiseError("string slice too long")
	}
	of(l).steps(l, int64(to-from))
	for _, c := range []byte(s[from:to]) {
		l.Push(lua.LNumber(c))
	}
	return to - from
}

// stringChar is string.char. A number outside of a byte is an error.
func stringChar(l *lua.LState) int {
	n := l.GetTop()
	of(l).chargeString(l, n)
	var b strings.Builder
	b.Grow(n)
	for i := 1; i <= n; i++ {
		c := l.CheckInt(i)
		if c < 0 || c > 255 {
			l.RaiseError("bad argument #%d to 'char' (invalid value)", i)
		}
		b.WriteByte(byte(c))
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// stringRep is string.rep. A result above the memory limit is refused before it exists.
func stringRep(l *lua.LState) int {
	s, n := checkText(l, 1), l.CheckInt(2)
	if n <= 0 || s == "" {
		l.Push(lua.LString(""))
		return 1
	}
	m := of(l)
	if int64(n) > m.memoryMax { // also keeps the product from overflowing
		n = int(m.memoryMax) + 1
	}
	m.chargeString(l, len(s)*n)
	l.Push(lua.LString(strings.Repeat(s, n)))
	return 1
}

// stringReverse is string.reverse, of bytes: text in UTF-8 does not survive it, as in Lua.
func stringReverse(l *lua.LState) int {
	s := checkText(l, 1)
	of(l).chargeString(l, 2*len(s))
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	l.Push(lua.LString(b))
	return 1
}

// stringLower is string.lower, of ASCII.
func stringLower(l *lua.LState) int { return mapped(l, 'A', 'Z') }

// stringUpper is string.upper, of ASCII.
func stringUpper(l *lua.LState) int { return mapped(l, 'a', 'z') }

// mapped maps letters between cases, ASCII only as in Lua's C locale, so length and other
// bytes do not change.
func mapped(l *lua.LState, from, to byte) int {
	s := checkText(l, 1)
	of(l).chargeString(l, 2*len(s))
	b := []byte(s)
	for i, c := range b {
		if c >= from && c <= to {
			b[i] = c ^ 0x20
		}
	}
	l.Push(lua.LString(b))
	return 1
}

// stringFind is string.find: the positions of the first match, and its captures. A pattern without
// special characters, or the argument plain, is searched for as text.
func stringFind(l *lua.LState) int { return search(l, true) }

// stringMatch is string.match: the captures of the first match, or the match.
func stringMatch(l *lua.LState) int { return search(l, false) }

// search implements find and match: the first position where the pattern matches. Each position
// that it tries takes a step, so a pattern that nowhere matches is charged for the whole subject.
func search(l *lua.LState, find bool) int {
	m, s, pattern := of(l), checkText(l, 1), checkText(l, 2)
	from := l.OptInt(3, 1)
	if from < 0 {
		from = max(len(s)+from+1, 1)
	}
	from = min(max(from, 1)-1, len(s))
	if find && (lua.LVAsBool(l.Get(4)) || !strings.ContainsAny(pattern, "^$*+?.([%-")) {
		m.steps(l, int64(len(s)-from)>>3)
		i := strings.Index(s[from:], pattern)
		if i < 0 {
			l.Push(lua.LNil)
			return 1
		}
		l.Push(lua.LNumber(from + i + 1))
		l.Push(lua.LNumber(from + i + len(pattern)))
		return 2
	}
	p := &m.finder // shared: a search calls no Lua function
	m.pattern(l, p, s, pattern)
	for ; from <= len(s); from++ {
		m.steps(l, 1)
		if end := p.try(from); end >= 0 {
			if !find {
				return p.push(from, end)
			}
			l.Push(lua.LNumber(from + 1))
			l.Push(lua.LNumber(end))
			if p.level == 0 {
				return 2
			}
			return 2 + p.push(from, end)
		}
		if p.anchored() {
			break
		}
	}
	l.Push(lua.LNil)
	return 1
}

// stringGmatch is string.gmatch. The iterator has a matcher of its own, as the loop's body may
// search. An empty match advances by one byte.
func stringGmatch(l *lua.LState) int {
	m := of(l)
	m.charge(l, costMatcher)
	p := &matcher{}
	m.pattern(l, p, checkText(l, 1), checkText(l, 2))
	at := 0
	l.Push(goFunction(func(l *lua.LState) int {
		for at <= len(p.subject) {
			m.steps(l, 1)
			s := at
			end := p.try(s)
			if end < 0 {
				at++
				continue
			}
			at = max(end, s+1)
			return p.push(s, end)
		}
		l.Push(lua.LNil)
		return 1
	}))
	return 1
}

// costMatcher is the memory of a matcher in bytes.
const costMatcher = 900

// stringGsub is string.gsub. The replacement may be a function that searches as well, so the
// matcher is not the shared one.
func stringGsub(l *lua.LState) int {
	m, s, pattern := of(l), checkText(l, 1), checkText(l, 2)
	replacement := l.Get(3)
	switch replacement.(type) {
	case lua.LString, lua.LNumber, *lua.LTable, *lua.LFunction:
	default:
		l.RaiseError("bad argument #3 to 'gsub' (string, function or table expected)")
	}
	most := l.OptInt(4, len(s)+1)
	m.charge(l, costMatcher)
	p := &matcher{}
	m.pattern(l, p, s, pattern)
	b := m.builder(l)
	at, count := 0, 0
	for count < most {
		m.steps(l, 1)
		end := p.try(at)
		if end >= 0 {
			count++
			p.replace(b, replacement, at, end)
		}
		switch {
		case end > at:
			at = end
		case at < len(s):
			b.addByte(s[at])
			at++
		default:
			at = len(s) + 1
		}
		if at > len(s) || p.anchored() {
			break
		}
	}
	if at < len(s) {
		b.add(s[at:])
	}
	l.Push(b.done())
	l.Push(lua.LNumber(count))
	return 2
}

// replace appends the replacement of a match from s to e.
func (p *matcher) replace(b *builder, replacement lua.LValue, s, e int) {
	var v lua.LValue
	switch r := replacement.(type) {
	case *lua.LFunction:
		p.l.Push(r)
		n := p.push(s, e)
		p.m.steps(p.l, 1)
		p.l.Call(n, 1)
		v = p.l.Get(-1)
		p.l.Pop(1)
	case *lua.LTable:
		v = p.l.GetTable(r, p.value(0, s, e))
	default:
		p.template(b, lua.LVAsString(r), s, e)
		return
	}
	switch v := v.(type) {
	case lua.LString:
		b.add(string(v))
	case lua.LNumber:
		b.addNumber(v)
	default:
		if lua.LVAsBool(v) {
			p.l.RaiseError("invalid replacement value (a %s)", kindOf(v))
		}
		b.add(p.subject[s:e])
	}
}

// template appends a replacement text, in which %1 to %9 are captures and %0 is the
// match.
func (p *matcher) template(b *builder, text string, s, e int) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' {
			b.addByte(c)
			continue
		}
		i++
		switch {
		case i >= len(text):
			p.l.RaiseError("invalid replacement (ends with '%%')")
		case text[i] == '0':
			b.add(p.subject[s:e])
		case text[i] >= '1' && text[i] <= '9':
			v := p.value(int(text[i]-'1'), s, e)
			if n, ok := v.(lua.LNumber); ok {
				b.addNumber(n)
			} else {
				b.add(lua.LVAsString(v))
			}
		default:
			b.addByte(text[i])
		}
	}
}

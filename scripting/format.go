package scripting

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringFormat implements string.format with C's conversions; width and precision have at
// most two digits, as in Lua.
//
//	letter       argument                 flags          precision
//	d i          whole part, signed       - + space 0    least number of digits
//	u o x X      whole part, unsigned     - 0 #          least number of digits
//	c            a byte                   -              ignored
//	e E f g G    a number                 - + space 0 #  digits, 6 if missing
//	s            any value, by tostring   -              most bytes
//	q            a string, as a literal   ignored        ignored
//
// Width and precision bound what a conversion adds to its argument to 99 bytes and 99 digits, so
// the result is charged by the builder alone.
func stringFormat(l *lua.LState) int {
	m, format := of(l), checkText(l, 1)
	b := m.builder(l)
	argument := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.addByte(format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			b.addByte('%')
			continue
		}
		start := i
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i >= len(format) {
			l.RaiseError("invalid format (ends with '%%')")
		}
		spec, ok := parseSpec(format[start:i])
		if !ok {
			l.RaiseError("invalid format (width or precision too long)")
		}
		argument++
		b.conversion(spec, format[i], argument)
	}
	l.Push(b.done())
	return 1
}

// spec is a parsed conversion specification: %[flags][width][.precision]letter. The flags are
// those of C: `-` left-aligned, `+` and space a sign of positive numbers, `0` zeros instead of
// spaces, `#` the alternative form.
type spec struct {
	flags     string
	width     int
	precision int // -1: none
}

// parseSpec parses what is between % and the letter. ok is false if a number has more than two
// digits.
func parseSpec(s string) (spec, bool) {
	rest := strings.TrimLeft(s, "-+ #0")
	sp := spec{flags: s[:len(s)-len(rest)], precision: -1}
	width, precision, point := strings.Cut(rest, ".")
	if len(width) > 2 || len(precision) > 2 || len(sp.flags) > 5 {
		return sp, false
	}
	var err error
	if width != "" {
		if sp.width, err = strconv.Atoi(width); err != nil {
			return sp, false
		}
	}
	if point {
		sp.precision = 0
	}
	if precision != "" {
		if sp.precision, err = strconv.Atoi(precision); err != nil {
			return sp, false
		}
	}
	return sp, true
}

func (sp spec) has(flag byte) bool { return strings.IndexByte(sp.flags, flag) >= 0 }

// conversion formats argument n by a conversion letter. Whole numbers are truncated as in C. A number
// that no int64 holds is an error: C leaves its result undefined, and it would differ between
// processors. Numbers that are not finite are written as text, without zeros before them.
func (b *builder) conversion(sp spec, letter byte, n int) {
	l := b.l
	switch letter {
	case 'd', 'i', 'u', 'c', 'o', 'x', 'X':
		v := float64(l.CheckNumber(n))
		if math.IsNaN(v) || math.Abs(v) > 1<<63-1024 {
			l.RaiseError("bad argument #%d to 'format' (not an integer in range)", n)
		}
		if letter == 'c' {
			b.pad(sp, string([]byte{byte(int64(v))}))
			return
		}
		text := sp.integer(int64(v), letter)
		if sp.precision >= 0 { // it has its own zeros
			sp.flags = strings.ReplaceAll(sp.flags, "0", "")
		}
		b.pad(sp, text)
	case 'e', 'E', 'f', 'g', 'G':
		v := float64(l.CheckNumber(n))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			b.pad(spec{flags: strings.ReplaceAll(sp.flags, "0", ""), width: sp.width}, string(appendNumber(nil, lua.LNumber(v))))
			return
		}
		b.pad(sp, sp.float(v, letter))
	case 'q':
		b.quote(checkText(l, n))
	case 's':
		b.text(sp, n)
	default:
		l.RaiseError("invalid conversion '%%%s' to 'format'", string(rune(letter)))
	}
}

// text appends an argument of %s, at most precision bytes of it.
func (b *builder) text(sp spec, n int) {
	l := b.l
	v := l.CheckAny(n)
	var s string
	if f := metamethod(v, "__tostring"); f.Type() == lua.LTFunction {
		r, ok := b.m.callOne(l, f, v).(lua.LString)
		if !ok {
			l.RaiseError("'__tostring' must return a string")
		}
		s = string(r)
	} else {
		s = string(b.m.text(l, v))
	}
	if sp.precision >= 0 && sp.precision < len(s) {
		s = s[:sp.precision]
	}
	b.pad(spec{flags: strings.ReplaceAll(sp.flags, "0", ""), width: sp.width}, s)
}

// integer formats an argument of d, i, u, o, x or X with its sign. Precision is the least number
// of digits. Negative numbers are shown in two's complement where C does.
func (sp spec) integer(v int64, letter byte) string {
	base := 10
	switch letter {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
	}
	negative := v < 0 && base == 10 && letter != 'u'
	magnitude := uint64(v)
	if negative {
		magnitude = -magnitude
	}
	digits := strconv.FormatUint(magnitude, base)
	if sp.precision > len(digits) {
		digits = strings.Repeat("0", sp.precision-len(digits)) + digits
	}
	if sp.has('#') && v != 0 {
		switch base {
		case 8:
			digits = "0" + digits
		case 16:
			digits = "0x" + digits
		}
	}
	if letter == 'X' {
		digits = strings.ToUpper(digits)
	}
	return sp.sign(negative, base == 10 && letter != 'u') + digits
}

// sign returns the sign of a number, which positive ones have only if a flag asks for it.
func (sp spec) sign(negative, signed bool) string {
	switch {
	case negative:
		return "-"
	case signed && sp.has('+'):
		return "+"
	case signed && sp.has(' '):
		return " "
	}
	return ""
}

// float formats a finite argument of e, E, f, g or G with its sign. Without a precision it is 6.
func (sp spec) float(v float64, letter byte) string {
	precision := sp.precision
	if precision < 0 {
		precision = 6
	}
	negative := math.Signbit(v)
	v = math.Abs(v)
	var s string
	switch letter {
	case 'f':
		s = strconv.FormatFloat(v, 'f', precision, 64)
	case 'e', 'E':
		s = strconv.FormatFloat(v, 'e', precision, 64)
	default:
		if sp.has('#') {
			s = fmt.Sprintf("%#.*g", max(precision, 1), v)
		} else {
			s = string(appendGeneral(nil, v, precision))
		}
	}
	if letter == 'E' || letter == 'G' {
		s = strings.ToUpper(s)
	}
	return sp.sign(negative, true) + s
}

// pad appends s padded to the width.
func (b *builder) pad(sp spec, s string) {
	fill := sp.width - len(s)
	switch {
	case fill <= 0:
		b.add(s)
	case sp.has('-'):
		b.add(s)
		b.add(strings.Repeat(" ", fill))
	case sp.has('0'):
		signs := len(s) - len(strings.TrimLeft(s, "+- "))
		b.add(s[:signs])
		b.add(strings.Repeat("0", fill))
		b.add(s[signs:])
	default:
		b.add(strings.Repeat(" ", fill))
		b.add(s)
	}
}

// quote appends a string as a Lua literal, which Lua reads back as the same bytes. Only what would
// end or change the literal is escaped.
func (b *builder) quote(s string) {
	b.addByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.addByte('\\')
			b.addByte(c)
		case '\r':
			b.add(`\r`)
		case 0:
			b.add(`\000`)
		default:
			b.addByte(c)
		}
	}
	b.addByte('"')
}

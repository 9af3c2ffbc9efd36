package scripting

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Numbers as text. Go's formats and parsers differ from C's in ways that a script could see, so
// that the same script would decide otherwise than in another Lua: the exponent of %g, the
// precision of %.14g, underscores and "inf" in literals. What is written here is read back as the
// same number, up to 14 digits, or 16 for whole numbers.

// numberBytesMax is the length of the longest number as text.
const numberBytesMax = 24

// appendNumber formats a number as Lua 5.1 does ("%.14g"), except that whole numbers are
// written in full: an order number must survive tonumber.
func appendNumber(dst []byte, n lua.LNumber) []byte {
	f := float64(n)
	switch {
	case f == math.Trunc(f) && math.Abs(f) <= 1<<53:
		if f == 0 {
			return append(dst, '0')
		}
		return strconv.AppendInt(dst, int64(f), 10)
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	return appendGeneral(dst, f, 14)
}

// appendGeneral formats as C's %g: the shorter of %e and %f without trailing zeros.
func appendGeneral(dst []byte, f float64, precision int) []byte {
	if precision == 0 {
		precision = 1
	}
	var room [40]byte
	e := strconv.AppendFloat(room[:0], f, 'e', precision-1, 64)
	text := string(e)
	mantissa, exponent, _ := strings.Cut(text, "e")
	x, err := strconv.Atoi(exponent)
	if err != nil { // not a number, or an infinite one
		return append(dst, text...)
	}
	if x < -4 || x >= precision {
		return append(append(append(dst, trimZeros(mantissa)...), 'e'), exponent...)
	}
	return append(dst, trimZeros(strconv.FormatFloat(f, 'f', precision-1-x, 64))...)
}

// trimZeros removes zeros behind the point, and the point if nothing follows it.
func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// parseNumber parses a Lua number with surrounding white space: decimal with an exponent, or
// hexadecimal without a fraction. Go's extensions (underscores, "inf", binary) are rejected. ok is
// false for any other text, which tonumber turns into nil.
func parseNumber(s string) (lua.LNumber, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return 0, false
	}
	if hex, ok := strings.CutPrefix(strings.ToLower(prefix(digits, 2)), "0x"); ok && hex == "" {
		n, err := strconv.ParseUint(digits[2:], 16, 64)
		if err != nil {
			return 0, false
		}
		if strings.HasPrefix(s, "-") {
			return -lua.LNumber(n), true
		}
		return lua.LNumber(n), true
	}
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && strings.IndexByte(".eE+-", c) < 0 {
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) { // overflow is infinite, as in C
		return 0, false
	}
	return lua.LNumber(f), true
}

// prefix returns the first n bytes of s, or all of them.
func prefix(s string, n int) string { return s[:min(n, len(s))] }

// whole converts a number without a fraction and of at most 53 bits.
func whole(n lua.LNumber) (int, bool) {
	f := float64(n)
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 { // false for NaN as well
		return 0, false
	}
	return int(f), true
}

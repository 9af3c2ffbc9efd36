package scripting

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is how a script failed.
type Error struct {
	Text  string // one line of at most 256 bytes, with hook and line where they are known
	Line  int    // of the script, 0 if it is not known
	Limit bool   // the time or memory limit was hit
}

func (e *Error) Error() string { return e.Text }

const errorBytesMax = 256

// located makes an error of a text that does not name its place yet.
func located(name string, line int, text string) *Error {
	if line > 0 {
		text = name + ":" + strconv.Itoa(line) + ": " + text
	} else {
		text = name + ": " + text
	}
	return &Error{Text: oneLine(text), Line: line}
}

// placed makes an error of a text that may begin with its place, as the machine
// writes it: "on_enqueue:3: ...".
func placed(name, text string) *Error {
	rest, ok := strings.CutPrefix(text, name+":")
	if !ok {
		return located(name, 0, text)
	}
	number, rest, ok := strings.Cut(rest, ":")
	line, err := strconv.Atoi(number)
	if !ok || err != nil || line < 1 {
		return located(name, 0, text)
	}
	return located(name, line, strings.TrimPrefix(rest, " "))
}

// withoutAddress takes the address out of the one message of gopher-lua that has one:
// of indexing what is no table by something that is no text either. A script that
// catches it would see another text in each run, and a piece of the process' memory map.
func withoutAddress(text string) string {
	const message, with, address = "attempt to index a non-table object(", ") with key '", ": 0x"
	before, what, ok := strings.Cut(text, message)
	if !ok {
		return text
	}
	what, key, _ := strings.Cut(what, with)
	kind, digits, ok := strings.Cut(key, address)
	if !ok || strings.Trim(digits, "0123456789abcdef") != "'" {
		return text
	}
	switch kind {
	case "channel", "function", "table", "thread", "userdata":
		return before + message + what + with + kind + "'"
	}
	return text
}

// oneLine makes text that a script may have written fit for a log, a reply and a
// terminal.
func oneLine(s string) string {
	cut := len(s) > errorBytesMax
	if cut {
		s = s[:errorBytesMax-3]
		for s != "" && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1]
		}
	}
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if cut {
		s += "..."
	}
	return strings.Clone(s) // it may be a part of a long one
}

package scripting

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// The text of an error reaches operators (FILA.SCRIPT STATS, the log, the reply of a load) and the
// script itself, by pcall. So it has a bounded size, no control characters, and nothing that differs
// between runs or tells of the process. It begins with the hook and, if known, the line: a source
// has one hook only, whose name stands for the file.

// Error is a failure of a script.
type Error struct {
	Text  string // one line of at most 256 bytes, with hook and line if known
	Line  int    // line of the script; 0: unknown
	Limit bool   // an instruction, time or memory limit was exceeded
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

const errorBytesMax = 256

// located returns an error for a text without a position.
func located(name string, line int, text string) *Error {
	if line > 0 {
		text = name + ":" + strconv.Itoa(line) + ": " + text
	} else {
		text = name + ": " + text
	}
	return &Error{Text: oneLine(text), Line: line}
}

// placed returns an error for a text that may begin with a position as the machine writes
// it: "on_enqueue:3: ...".
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

// withoutAddress removes the address from the one error text of gopher-lua that has one.
// A script that catches the error would otherwise see a different text in each run, and a
// part of the process's memory map.
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

// oneLine makes a text, possibly written by a script, safe for logs, replies and
// terminals: valid UTF-8 without control characters, at most errorBytesMax bytes.
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
	return strings.Clone(s) // a substring would keep the whole string alive
}

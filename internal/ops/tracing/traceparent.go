package tracing

import (
	"encoding/hex"

	"github.com/faisca/fila/engine"
)

// Header is the name of the header that says in which context a message was created.
const Header = "traceparent"

// Context names the span that created a message.
type Context struct {
	Trace [16]byte
	Span  [8]byte
}

// contextOf returns the context in the headers of a message. It returns false unless there
// is exactly one header of the name, and that is valid and says sampled.
func contextOf(headers []engine.Header) (c Context, sampled bool) {
	var value []byte
	found := false
	for i := range headers {
		if string(headers[i].Name) != Header {
			continue
		}
		if found {
			return Context{}, false
		}
		value, found = headers[i].Value, true
	}
	if len(value) == contextBytes && value[contextBytes-1] == '0' { // most are not sampled, and need no more
		return Context{}, false
	}
	c, sampled, valid := parse(value)
	return c, sampled && valid
}

// contextBytes is the length of a traceparent header of version 00.
const contextBytes = 2 + 1 + 32 + 1 + 16 + 1 + 2

// parse reads a traceparent header, as the W3C recommendation Trace Context describes it:
//
//	00-<32 digits: trace>-<16 digits: span>-<2 digits: flags>
//
// Digits are hexadecimal and lower case; trace and span are not zero. A version above 00 may
// have more behind another dash; ff is none.
func parse(value []byte) (c Context, sampled, valid bool) {
	if len(value) < contextBytes || value[2] != '-' || value[35] != '-' || value[52] != '-' {
		return Context{}, false, false
	}
	var version, flags [1]byte
	for _, part := range []struct{ to, from []byte }{
		{version[:], value[:2]}, {c.Trace[:], value[3:35]}, {c.Span[:], value[36:52]}, {flags[:], value[53:contextBytes]},
	} {
		if !lowerHex(part.from) {
			return Context{}, false, false
		}
		if _, err := hex.Decode(part.to, part.from); err != nil {
			return Context{}, false, false
		}
	}
	switch more := value[contextBytes:]; {
	case version[0] == 0xff, version[0] == 0 && len(more) > 0, len(more) > 0 && more[0] != '-':
		return Context{}, false, false
	case c.Trace == [16]byte{}, c.Span == [8]byte{}:
		return Context{}, false, false
	}
	const flagSampled = 1
	return c, flags[0]&flagSampled != 0, true
}

// lowerHex reports whether there are only hexadecimal digits, in lower case.
func lowerHex(digits []byte) bool {
	for _, d := range digits {
		if (d < '0' || d > '9') && (d < 'a' || d > 'f') {
			return false
		}
	}
	return true
}

package scripting

import (
	"math"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
	"github.com/faisca/fila/storage"
)

// The message is no table but two values of type userdata whose fields are computed on access
// (library.message, library.headers), the same in every run. So passing it to a hook allocates
// nothing, a script cannot change it, and each access is recorded as a query for the memo. What
// a script reads in a way that the memo does not model, such as all headers, ends the recording
// (trace.off).

// infinity is math.huge.
func infinity() float64 { return math.Inf(1) }

// messageIndex is msg.<field>. Values are created on access, since most scripts read two
// or three fields. Missing fields are nil.
func messageIndex(l *lua.LState) int {
	m := of(l)
	field, ok := l.Get(2).(lua.LString)
	if !ok || m.msg == nil {
		l.Push(lua.LNil)
		return 1
	}
	msg := m.msg
	v := lua.LNil
	switch field {
	case "headers":
		v = m.headers
	case "queue":
		m.trace.ask(askQueue, "")
		v = m.string(l, msg.Queue)
	case "payload_size":
		m.trace.ask(askSize, "")
		v = lua.LNumber(msg.PayloadSize)
	case "fairness_key":
		m.trace.ask(askKey, "")
		v = m.string(l, msg.Key)
	case "id":
		if msg.ID != "" {
			v = m.string(l, msg.ID)
		}
	case "attempts":
		if msg.ID != "" {
			v = lua.LNumber(msg.Attempts)
		}
	case "error":
		if msg.ID != "" {
			v = m.string(l, msg.Error)
		}
	default:
		v = m.attribute(l, string(field))
	}
	l.Push(v)
	return 1
}

// list returns a new list of texts, which the memo does not model.
func (m *machine) list(l *lua.LState, texts []string) *lua.LTable {
	m.trace.off = true
	list := m.newList(l, len(texts))
	for i, text := range texts {
		list.RawSetInt(i+1, m.string(l, text))
	}
	return list
}

// string converts an existing text to a Lua value, truncated to the length that a
// script's own strings may have. The bytes are shared, so only the header is charged.
func (m *machine) string(l *lua.LState, s string) lua.LString {
	if int64(len(s)) > m.stringMax() {
		s = s[:m.stringMax()]
	}
	m.charge(l, costString)
	if len(s) >= stringLong {
		m.noteLongString()
	}
	return lua.LString(s)
}

// headersIndex is msg.headers[name]. Of repeated headers the last one counts.
func headersIndex(l *lua.LState) int {
	m := of(l)
	if name, ok := l.Get(2).(lua.LString); ok && m.msg != nil {
		m.trace.ask(askHeader, string(name))
		if h := header(m.msg, string(name)); h != nil {
			m.chargeString(l, len(h.Value))
			l.Push(lua.LString(h.Value))
			return 1
		}
	}
	l.Push(lua.LNil)
	return 1
}

// header returns the last header with a name, or nil.
func header(msg *hook.Message, name string) *storage.Header {
	for i := len(msg.Headers) - 1; i >= 0; i-- {
		if h := &msg.Headers[i]; string(h.Name) == name {
			return h
		}
	}
	return nil
}

// headersLen is #msg.headers.
func headersLen(l *lua.LState) int {
	n := 0
	if m := of(l); m.msg != nil {
		m.trace.ask(askHeaders, "")
		n = len(m.msg.Headers)
	}
	l.Push(lua.LNumber(n))
	return 1
}

// headerPairs is pairs(msg.headers): all headers in order, repeated ones included.
func (m *machine) headerPairs(l *lua.LState) int {
	m.charge(l, costClosure)
	m.trace.off = true
	i := 0
	l.Push(goFunction(func(l *lua.LState) int {
		if m.msg == nil || i >= len(m.msg.Headers) {
			l.Push(lua.LNil)
			return 1
		}
		h := m.msg.Headers[i]
		i++
		m.chargeString(l, len(h.Name))
		m.chargeString(l, len(h.Value))
		l.Push(lua.LString(h.Name))
		l.Push(lua.LString(h.Value))
		return 2
	}))
	return 1
}

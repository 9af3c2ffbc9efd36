package scripting

import (
	lua "github.com/yuin/gopher-lua"
)

// builder builds a string of unknown length and charges it to the budget.
type builder struct {
	l   *lua.LState
	m   *machine
	buf []byte
}

func (m *machine) builder(l *lua.LState) *builder { return &builder{l: l, m: m} }

// add appends a string. The buffer grows here instead of in append, so that memory is
// charged before it is allocated; old buffers stay charged because the collector may free
// them late.
func (b *builder) add(s string) {
	b.room(len(s))
	b.buf = append(b.buf, s...)
}

func (b *builder) addByte(c byte) {
	b.room(1)
	b.buf = append(b.buf, c)
}

func (b *builder) addNumber(n lua.LNumber) {
	b.room(numberBytesMax)
	b.buf = appendNumber(b.buf, n)
}

// room makes space for n more bytes.
func (b *builder) room(n int) {
	if len(b.buf)+n <= cap(b.buf) {
		return
	}
	size := max(2*cap(b.buf), len(b.buf)+n, 64)
	b.m.chargeString(b.l, size)
	grown := make([]byte, len(b.buf), size)
	copy(grown, b.buf)
	b.buf = grown
}

// done returns the string, which it charges as a copy.
func (b *builder) done() lua.LString {
	b.m.chargeString(b.l, len(b.buf))
	return lua.LString(b.buf)
}

package scripting

import (
	lua "github.com/yuin/gopher-lua"
)

// builder builds a string of unknown length and charges it to the budget. Its buffer doubles, so
// a string of n bytes, if not a short one, is charged for some 5n at most: less than 4n for all
// buffers together, and n for the copy that done makes. A buffer that would exceed the memory of
// the call is refused before it is allocated.
type builder struct {
	l   *lua.LState
	m   *machine
	buf []byte
}

// builder returns a builder for the current call, which is not to be used after it.
func (m *machine) builder(l *lua.LState) *builder { return &builder{l: l, m: m} }

// add appends a string. The buffer grows here instead of in append, so that memory is
// charged before it is allocated; old buffers stay charged because the collector may free
// them late.
func (b *builder) add(s string) {
	b.room(len(s))
	b.buf = append(b.buf, s...)
}

// addByte appends a byte.
func (b *builder) addByte(c byte) {
	b.room(1)
	b.buf = append(b.buf, c)
}

// addNumber appends a number as tostring writes it.
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

package scripting

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// A guard is a function that the rewriter has put in place of an operation whose allocation depends
// on values, or before a block. It charges, then does what the operation would have done:
//
//	guard          arguments               result
//	chargeGuard    bytes                   none
//	concatGuard    operands, two or more   the concatenation
//	setGuard       table, key, value       none
//	fillGuard      table, key, value, ...  the table
//	valuesGuard    values                  the same values
//
// A guard must behave as the operation does in all else: metamethods, the text of errors, and the
// line, which the rewriter gives to the call.

// guards returns the guard functions by the names in the constants of rewritten programs.
// A script may obtain one, for example in a traceback, but calling it has no useful
// effect.
func guards() map[string]*lua.LFunction {
	g := map[string]lua.LGFunction{
		guardCharge: chargeGuard, guardConcat: concatGuard, guardSet: setGuard, guardFill: fillGuard, guardValues: valuesGuard,
		guardFields: func(*lua.LState) int { return 0 },
	}
	functions := make(map[string]*lua.LFunction, len(g))
	for name, f := range g {
		functions[name] = goFunction(f)
	}
	return functions
}

// goFunction returns a library function. It has no environment because all machines share
// it.
func goFunction(f lua.LGFunction) *lua.LFunction { return &lua.LFunction{IsG: true, GFunction: f} }

// chargeGuard charges what a block allocates, at its head.
func chargeGuard(l *lua.LState) int {
	n, ok := l.Get(1).(lua.LNumber)
	if ok && n > 0 && n < math.MaxInt32 {
		of(l).charge(l, int(n))
	}
	return 0
}

// valuesGuard charges the values of the last element of a constructor and returns them.
func valuesGuard(l *lua.LState) int {
	n := l.GetTop()
	of(l).charge(l, n*(costItem+costNumbers))
	return n
}

// setGuard implements `t[k] = v`.
func setGuard(l *lua.LState) int {
	of(l).assign(l, l.Get(1), l.Get(2), l.Get(3))
	return 0
}

// fillGuard sets the fields with computed keys of a new table.
func fillGuard(l *lua.LState) int {
	t, ok := l.Get(1).(*lua.LTable)
	if !ok || isFrozen(t) {
		return 0
	}
	m, n := of(l), l.GetTop()
	for i := 2; i < n; i += 2 {
		m.rawSet(l, t, l.Get(i), l.Get(i+1))
	}
	l.SetTop(1)
	return 1
}

// concatGuard implements `a .. b .. c`. Strings and numbers are joined at once; otherwise
// the __concat metamethods apply, pairwise from the right.
func concatGuard(l *lua.LState) int {
	m, n := of(l), l.GetTop()
	if s, ok := m.join(l, 1, n); ok {
		l.Push(s)
		return 1
	}
	acc := l.Get(n)
	for i := n - 1; i >= 1; i-- {
		lhs := l.Get(i)
		if textual(lhs) && textual(acc) {
			l.Push(lhs)
			l.Push(acc)
			acc, _ = m.join(l, l.GetTop()-1, l.GetTop())
			l.Pop(2)
			continue
		}
		f := metamethod(lhs, "__concat")
		if f == lua.LNil {
			f = metamethod(acc, "__concat")
		}
		if f.Type() != lua.LTFunction {
			if textual(lhs) {
				lhs = acc
			}
			l.RaiseError("attempt to concatenate a %s value", kindOf(lhs))
		}
		acc = m.callOne(l, f, lhs, acc)
	}
	l.Push(acc)
	return 1
}

// join concatenates the arguments first to last; ok is false unless all are strings or
// numbers.
func (m *machine) join(l *lua.LState, first, last int) (lua.LValue, bool) {
	size := 0
	for i := first; i <= last; i++ {
		switch v := l.Get(i).(type) {
		case lua.LString:
			size += len(v)
		case lua.LNumber:
			size += numberBytesMax
		default:
			return lua.LNil, false
		}
	}
	m.chargeString(l, size)
	var b strings.Builder
	b.Grow(size)
	for i := first; i <= last; i++ {
		switch v := l.Get(i).(type) {
		case lua.LString:
			b.WriteString(string(v))
		case lua.LNumber:
			var room [numberBytesMax]byte
			b.Write(appendNumber(room[:0], v))
		}
	}
	return lua.LString(b.String()), true
}

// textual reports whether `..` joins a value without a metamethod.
func textual(v lua.LValue) bool { return lua.LVCanConvToString(v) }

// callOne calls a Lua value and returns its first result.
func (m *machine) callOne(l *lua.LState, f lua.LValue, args ...lua.LValue) lua.LValue {
	m.steps(l, 1)
	l.Push(f)
	for _, a := range args {
		l.Push(a)
	}
	l.Call(len(args), 1)
	v := l.Get(-1)
	l.Pop(1)
	return v
}

// metamethod returns a field of a table's metatable, or nil. Metatables of other types
// contain nothing that a script has set.
func metamethod(v lua.LValue, name string) lua.LValue {
	t, ok := v.(*lua.LTable)
	if !ok {
		return lua.LNil
	}
	meta, ok := t.Metatable.(*lua.LTable)
	if !ok {
		return lua.LNil
	}
	return meta.RawGetString(name)
}

package scripting

import (
	"math"

	lua "github.com/yuin/gopher-lua"
)

// The global functions as Lua 5.1 specifies them, with these differences:
//
//   - There is no collectgarbage, dofile, getfenv, load, loadfile, loadstring, module, newproxy,
//     print, require or setfenv, and no coroutine, debug, io, os or package: a script could
//     otherwise learn of its process, or run code that was not rewritten.
//   - tostring writes no addresses.
//   - pcall and xpcall do not catch an exceeded limit, and are nested four levels deep at most.
//   - pairs also iterates over msg.headers.
//
// Iteration visits the list part of a table, then the other fields in the order of insertion, so
// equal runs see equal orders.

// baseLibrary is the global functions.
func baseLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"assert": baseAssert, "error": baseError, "getmetatable": baseGetmetatable, "ipairs": baseIpairs,
		"next": baseNext, "pairs": basePairs, "pcall": basePcall, "rawequal": baseRawequal, "rawget": baseRawget,
		"rawset": baseRawset, "select": baseSelect, "setmetatable": baseSetmetatable, "tonumber": baseTonumber,
		"tostring": baseTostring, "type": baseType, "unpack": baseUnpack, "xpcall": baseXpcall,
	}
}

// baseAssert is assert. Its message may be any value, as that of error.
func baseAssert(l *lua.LState) int {
	if !lua.LVAsBool(l.CheckAny(1)) {
		if l.GetTop() < 2 {
			l.RaiseError("assertion failed!")
		}
		l.Error(l.Get(2), 0)
	}
	return l.GetTop()
}

// baseError is error. gopher-lua copies a string several times on its way, which is charged.
func baseError(l *lua.LState) int {
	level := l.OptInt(2, 1)
	if level < 0 || level > callDepthMax {
		level = 0
	}
	if s, ok := l.Get(1).(lua.LString); ok {
		of(l).charge(l, 4*len(s))
	}
	l.Error(l.Get(1), level)
	return 0
}

// basePcall catches errors of a script, but not exceeded limits, which every enclosing
// pcall raises again.
func basePcall(l *lua.LState) int {
	l.CheckAny(1)
	return of(l).protect(l, nil)
}

// baseXpcall calls the handler after the stack is unwound, so no traceback is available.
// An error in the handler becomes the result.
func baseXpcall(l *lua.LState) int {
	l.CheckAny(1)
	handler := l.CheckAny(2)
	l.SetTop(1)
	return of(l).protect(l, handler)
}

// baseType is type. It returns userdata for the message, as its fields are computed.
func baseType(l *lua.LState) int {
	l.Push(lua.LString(kindOf(l.CheckAny(1))))
	return 1
}

// baseTostring is tostring. __tostring must return a string.
func baseTostring(l *lua.LState) int {
	v := l.CheckAny(1)
	if f := metamethod(v, "__tostring"); f.Type() == lua.LTFunction {
		s, ok := of(l).callOne(l, f, v).(lua.LString)
		if !ok {
			l.RaiseError("'__tostring' must return a string")
		}
		l.Push(s)
		return 1
	}
	l.Push(of(l).text(l, v))
	return 1
}

// text converts a value to text without its metatable. Addresses are omitted: they would
// make runs of a script differ.
func (m *machine) text(l *lua.LState, v lua.LValue) lua.LString {
	switch v := v.(type) {
	case lua.LString:
		return v
	case lua.LNumber:
		m.charge(l, numberBytesMax+costString)
		var room [numberBytesMax]byte
		return lua.LString(appendNumber(room[:0], v))
	case lua.LBool, *lua.LNilType:
		return lua.LString(v.String())
	default:
		return lua.LString(kindOf(v))
	}
}

// baseTonumber is tonumber. With a base it reads digits without a sign.
func baseTonumber(l *lua.LState) int {
	if l.GetTop() >= 2 && l.Get(2) != lua.LNil {
		if n, ok := parseBase(l.CheckString(1), l.CheckInt(2)); ok {
			l.Push(n)
			return 1
		}
		l.Push(lua.LNil)
		return 1
	}
	result := lua.LNil
	switch v := l.CheckAny(1).(type) {
	case lua.LNumber:
		result = v
	case lua.LString:
		if n, ok := parseNumber(string(v)); ok {
			result = n
		}
	}
	l.Push(result)
	return 1
}

// parseBase parses digits of a base, without a sign.
func parseBase(s string, base int) (lua.LNumber, bool) {
	if base < 2 || base > 36 || s == "" || len(s) > 64 {
		return 0, false
	}
	var n float64
	for _, c := range []byte(s) {
		d := -1
		switch {
		case c >= '0' && c <= '9':
			d = int(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'z':
			d = int(c|0x20-'a') + 10
		}
		if d < 0 || d >= base {
			return 0, false
		}
		n = n*float64(base) + float64(d)
	}
	return lua.LNumber(n), true
}

// baseSelect is select. It returns the arguments that are on the stack already.
func baseSelect(l *lua.LState) int {
	n := l.GetTop()
	if s, ok := l.Get(1).(lua.LString); ok && s == "#" {
		l.Push(lua.LNumber(n - 1))
		return 1
	}
	i := l.CheckInt(1)
	if i < 0 {
		i = n + i
	}
	if i < 1 {
		l.RaiseError("bad argument #1 to 'select' (index out of range)")
	}
	return max(n-i, 0)
}

// baseUnpack is unpack. The number of results is bounded by the stack.
func baseUnpack(l *lua.LState) int {
	m, t := of(l), l.CheckTable(1)
	from, to := l.OptInt(2, 1), l.OptInt(3, t.Len())
	if from > to {
		return 0
	}
	n := to - from + 1
	if n < 0 || n > registryMax { // negative: overflow
		l.RaiseError("too many results to unpack")
	}
	m.steps(l, int64(n))
	for i := range n {
		l.Push(t.RawGetInt(from + i))
	}
	return n
}

// basePairs also iterates over msg.headers, repeated ones included.
func basePairs(l *lua.LState) int {
	m := of(l)
	if l.Get(1) == lua.LValue(m.headers) {
		return m.headerPairs(l)
	}
	t := l.CheckTable(1)
	l.Push(m.lib.next)
	l.Push(t)
	l.Push(lua.LNil)
	return 3
}

// baseNext is next. It takes a step because gopher-lua looks for the key.
func baseNext(l *lua.LState) int {
	t, key := l.CheckTable(1), l.Get(2)
	of(l).steps(l, 1)
	k, v := t.Next(key)
	l.Push(k)
	if k == lua.LNil {
		return 1
	}
	l.Push(v)
	return 2
}

// baseIpairs is ipairs. The iterator is shared by all machines, so it allocates nothing.
func baseIpairs(l *lua.LState) int {
	t := l.CheckTable(1)
	l.Push(of(l).lib.step)
	l.Push(t)
	l.Push(lua.LNumber(0))
	return 3
}

// ipairsStep is the iterator of ipairs. It ends at the first nil.
func ipairsStep(l *lua.LState) int {
	i := l.CheckInt(2) + 1
	v := l.CheckTable(1).RawGetInt(i)
	if v == lua.LNil {
		l.Push(v)
		return 1
	}
	l.Push(lua.LNumber(i))
	l.Push(v)
	return 2
}

// baseRawequal is rawequal: it ignores __eq.
func baseRawequal(l *lua.LState) int {
	l.Push(lua.LBool(l.RawEqual(l.CheckAny(1), l.CheckAny(2))))
	return 1
}

// baseRawget is rawget: it ignores __index.
func baseRawget(l *lua.LState) int {
	l.Push(l.CheckTable(1).RawGet(l.CheckAny(2)))
	return 1
}

// baseRawset is rawset, which respects the limits of a write but no metatable.
func baseRawset(l *lua.LState) int {
	t := l.CheckTable(1)
	of(l).rawSet(l, t, l.Get(2), l.Get(3))
	l.SetTop(1)
	return 1
}

// baseGetmetatable returns the metatables of a script's own tables only.
func baseGetmetatable(l *lua.LState) int {
	t, ok := l.CheckAny(1).(*lua.LTable)
	if !ok || isFrozen(t) {
		l.Push(lua.LNil)
		return 1
	}
	if guard := metamethod(t, "__metatable"); guard != lua.LNil {
		l.Push(guard)
		return 1
	}
	l.Push(t.Metatable)
	return 1
}

// baseSetmetatable is setmetatable. The library and tables with __metatable are protected.
func baseSetmetatable(l *lua.LState) int {
	t, meta := l.CheckTable(1), l.Get(2)
	switch meta.(type) {
	case *lua.LTable, *lua.LNilType:
	default:
		l.RaiseError("bad argument #2 to 'setmetatable' (nil or table expected)")
	}
	if isFrozen(t) || metamethod(t, "__metatable") != lua.LNil {
		l.RaiseError("cannot change a protected metatable")
	}
	t.Metatable = meta
	l.SetTop(1)
	return 1
}

// mathLibrary is the table `math`, without random numbers.
func mathLibrary() map[string]lua.LGFunction {
	one := func(f func(float64) float64) lua.LGFunction {
		return func(l *lua.LState) int {
			l.Push(lua.LNumber(f(float64(l.CheckNumber(1)))))
			return 1
		}
	}
	return map[string]lua.LGFunction{
		"abs": one(math.Abs), "ceil": one(math.Ceil), "exp": one(math.Exp), "floor": one(math.Floor),
		"log": one(math.Log), "log10": one(math.Log10), "sqrt": one(math.Sqrt),
		"fmod": func(l *lua.LState) int {
			l.Push(lua.LNumber(math.Mod(float64(l.CheckNumber(1)), float64(l.CheckNumber(2)))))
			return 1
		},
		"pow": func(l *lua.LState) int {
			l.Push(lua.LNumber(math.Pow(float64(l.CheckNumber(1)), float64(l.CheckNumber(2)))))
			return 1
		},
		"max": extreme(func(a, b lua.LNumber) bool { return a > b }),
		"min": extreme(func(a, b lua.LNumber) bool { return a < b }),
		"modf": func(l *lua.LState) int {
			i, f := math.Modf(float64(l.CheckNumber(1)))
			l.Push(lua.LNumber(i))
			l.Push(lua.LNumber(f))
			return 2
		},
	}
}

func extreme(better func(a, b lua.LNumber) bool) lua.LGFunction {
	return func(l *lua.LState) int {
		best := l.CheckNumber(1)
		for i := 2; i <= l.GetTop(); i++ {
			if n := l.CheckNumber(i); better(n, best) {
				best = n
			}
		}
		l.Push(best)
		return 1
	}
}

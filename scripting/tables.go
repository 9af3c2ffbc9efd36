package scripting

import (
	"math"
	"sort"

	lua "github.com/yuin/gopher-lua"
)

// Writing to tables is what can take memory without bound and what could change the library
// that all machines share. Every write of a script therefore ends in rawSet: assignments by
// the guards (setGuard, fillGuard), rawset, and the functions of `table`. It refuses frozen
// tables, and charges an element before gopher-lua allocates for it:
//
//	key                        charged
//	an index below arrayMax    costItem for each new position up to it, and costArray for the first
//	any other                  costField, and costHash unless the table is among the last charged
//	one that exists            nothing
//
// What is charged is never returned: garbage counts like live memory.

// frozen is the metatable of read-only tables: those of the library, which all machines
// share. It is never modified.
var frozen = &lua.LTable{Metatable: lua.LNil} //nolint:gochecknoglobals // a mark, compared by address

func isFrozen(t *lua.LTable) bool { return t.Metatable == lua.LValue(frozen) }

// assign implements `object[key] = value` with metatables.
func (m *machine) assign(l *lua.LState, object, key, value lua.LValue) {
	for range lua.MaxTableGetLoop {
		t, ok := object.(*lua.LTable)
		if !ok {
			if object == m.message || object == m.headers {
				l.RaiseError("the message is read only")
			}
			l.RaiseError("attempt to index a %s value", kindOf(object))
		}
		if t.Metatable == lua.LNil {
			m.rawSet(l, t, key, value)
			return
		}
		if isFrozen(t) {
			l.RaiseError("the library is read only")
		}
		handler := metamethod(t, "__newindex")
		if handler == lua.LNil || t.RawGet(key) != lua.LNil {
			m.rawSet(l, t, key, value)
			return
		}
		if handler.Type() == lua.LTFunction {
			m.steps(l, 1)
			l.Push(handler)
			l.Push(t)
			l.Push(key)
			l.Push(value)
			l.Call(3, 0)
			return
		}
		object = handler
	}
	l.RaiseError("'__newindex' chain too long")
}

// rawSet writes to a table after charging what that may allocate. All writes of scripts
// go through it.
func (m *machine) rawSet(l *lua.LState, t *lua.LTable, key, value lua.LValue) {
	if isFrozen(t) {
		l.RaiseError("the library is read only")
	}
	switch k := key.(type) {
	case *lua.LNilType:
		l.RaiseError("table index is nil")
	case lua.LNumber:
		if math.IsNaN(float64(k)) {
			l.RaiseError("table index is NaN")
		}
	}
	if t.RawGet(key) == lua.LNil {
		if value == lua.LNil {
			return // gopher-lua would allocate for it
		}
		m.chargeField(l, t, key)
	}
	t.RawSet(unshared(key), unshared(value))
}

// unshared copies a number to its own allocation. Results of arithmetic lie in blocks of
// 32, and each would retain its block.
func unshared(v lua.LValue) lua.LValue {
	if n, ok := v.(lua.LNumber); ok {
		return lua.LNumber(float64(n))
	}
	return v
}

// tableLarge is the number of elements or fields from which traversing a table is slow.
const tableLarge = 512

// chargeField charges a new field.
func (m *machine) chargeField(l *lua.LState, t *lua.LTable, key lua.LValue) {
	if k, ok := key.(lua.LNumber); ok && k >= 1 && k < arrayMax && float64(k) == math.Trunc(float64(k)) {
		n := t.MaxN()
		m.charge(l, max(int(k)-n, 1)*costItem)
		if n == 0 {
			m.charge(l, costArray)
		}
		if k > tableLarge {
			m.shortenStride(strideLarge)
		}
		return
	}
	if k, ok := key.(lua.LNumber); ok && k == arrayMax && t.MaxN() == arrayMax-1 {
		l.RaiseError("a list of more than %d elements", arrayMax-1) // '#' would not count more
	}
	m.charge(l, costField)
	if m.fields++; m.fields > tableLarge {
		m.shortenStride(strideLarge)
	}
	for _, h := range m.hashed {
		if h == t {
			return
		}
	}
	m.charge(l, costHash)
	m.hashed[m.hashedNext] = t
	m.hashedNext = (m.hashedNext + 1) % len(m.hashed)
}

// newList returns a list with capacity for n elements.
func (m *machine) newList(l *lua.LState, n int) *lua.LTable {
	m.charge(l, costTable+n*costItem)
	return l.CreateTable(n, 0)
}

// tableLibrary is the table `table`.
func tableLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"concat": tableConcat, "insert": tableInsert, "maxn": tableMaxn, "remove": tableRemove, "sort": tableSort,
	}
}

// writable returns argument 1 as a table, or raises an error if it is read-only.
func writable(l *lua.LState) *lua.LTable {
	t := l.CheckTable(1)
	if isFrozen(t) {
		l.RaiseError("the library is read only")
	}
	return t
}

// tableInsert is table.insert(t, [position,] value). Elements behind the position move, each for
// a step.
func tableInsert(l *lua.LState) int {
	m, t := of(l), writable(l)
	n := t.Len()
	switch l.GetTop() {
	case 2:
		m.rawSet(l, t, lua.LNumber(n+1), l.Get(2))
	case 3:
		at := l.CheckInt(2)
		if at < 1 || at > n+1 {
			l.RaiseError("bad argument #2 to 'insert' (position out of bounds)")
		}
		m.steps(l, int64(n-at+1))
		for i := n; i >= at; i-- {
			m.rawSet(l, t, lua.LNumber(i+1), t.RawGetInt(i))
		}
		m.rawSet(l, t, lua.LNumber(at), l.Get(3))
	default:
		l.RaiseError("wrong number of arguments to 'insert'")
	}
	return 0
}

// tableRemove is table.remove(t [, position]). Outside of the list it returns nil and changes
// nothing.
func tableRemove(l *lua.LState) int {
	m, t := of(l), writable(l)
	n := t.Len()
	at := l.OptInt(2, n)
	if n == 0 || at < 1 || at > n {
		l.Push(lua.LNil)
		return 1
	}
	removed := t.RawGetInt(at)
	m.steps(l, int64(n-at))
	for i := at; i < n; i++ {
		m.rawSet(l, t, lua.LNumber(i), t.RawGetInt(i+1))
	}
	m.rawSet(l, t, lua.LNumber(n), lua.LNil)
	l.Push(removed)
	return 1
}

// tableConcat is table.concat(t [, separator [, from [, to]]]). The elements are strings and
// numbers.
func tableConcat(l *lua.LState) int {
	m, t, sep := of(l), l.CheckTable(1), l.OptString(2, "")
	from, to := l.OptInt(3, 1), l.OptInt(4, t.Len())
	b := m.builder(l)
	for i := from; i <= to; i++ {
		m.steps(l, 1)
		switch v := t.RawGetInt(i).(type) {
		case lua.LString:
			b.add(string(v))
		case lua.LNumber:
			b.addNumber(v)
		default:
			l.RaiseError("bad value of type %s at index %d in the table for 'concat'", kindOf(v), i)
		}
		if i < to {
			b.add(sep)
		}
		if i == math.MaxInt {
			break
		}
	}
	l.Push(b.done())
	return 1
}

// tableMaxn is table.maxn(t): the largest positive numeric key, for which it looks at all keys.
func tableMaxn(l *lua.LState) int {
	m, t := of(l), l.CheckTable(1)
	var most lua.LNumber
	t.ForEach(func(k, _ lua.LValue) {
		m.steps(l, 1)
		if n, ok := k.(lua.LNumber); ok && n > most {
			most = n
		}
	})
	l.Push(most)
	return 1
}

// tableSort sorts a copy, so that a comparison function may change the table safely.
func tableSort(l *lua.LState) int {
	m, t := of(l), writable(l)
	less := lua.LNil
	if l.GetTop() >= 2 && l.Get(2) != lua.LNil {
		less = l.CheckFunction(2)
	}
	n := t.Len()
	m.charge(l, n*costItem)
	values := make([]lua.LValue, n)
	for i := range values {
		values[i] = t.RawGetInt(i + 1)
	}
	sort.Slice(values, func(i, j int) bool {
		if less == lua.LNil {
			m.steps(l, 1)
			return l.LessThan(values[i], values[j])
		}
		return lua.LVAsBool(m.callOne(l, less, values[i], values[j]))
	})
	for i, v := range values {
		m.rawSet(l, t, lua.LNumber(i+1), v)
	}
	return 0
}

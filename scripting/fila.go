package scripting

import (
	"math"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// filaLibrary is the table `fila`.
func filaLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{"backoff": filaBackoff, "budget": filaBudget, "get": filaGet, "hash": filaHash, "signal": filaSignal, "split": filaSplit}
}

// filaGet is fila.get(key [, default]): a setting as text, or the default.
func filaGet(l *lua.LState) int {
	m, key := of(l), l.CheckString(1)
	m.trace.ask(askSetting, key)
	if m.view != nil {
		if v, ok := m.view.Get(key); ok {
			l.Push(m.string(l, v))
			return 1
		}
	}
	l.Push(l.Get(2))
	return 1
}

// signalSteps is what a look-up of a signal costs in instructions: some 16 comparisons, each of
// which may miss the processor's caches.
const signalSteps = 32

// filaSignal is fila.signal(subject, name [, window]): the sum of a signal in a window, the first
// one unless it is given; 0 where nothing is known, and while the script is loaded. The decision
// of the run is not remembered.
func filaSignal(l *lua.LState) int {
	m, subject, name, window := of(l), checkText(l, 1), checkText(l, 2), ""
	if l.Get(3) != lua.LNil {
		window = checkText(l, 3)
	}
	m.trace.off = true
	m.steps(l, signalSteps+int64(len(subject)+len(name))>>2)
	m.charge(l, 2*(costString+len(subject)+len(name))) // the key, and the buffer that it is made in
	v := 0.0
	if m.view != nil {
		var err error
		if v, err = m.view.Signal(subject, name, window); err != nil {
			l.RaiseError("bad argument #3 to 'signal' (%s)", err.Error())
		}
	}
	l.Push(lua.LNumber(v))
	return 1
}

// budgetSteps is what a look-up of a budget costs in instructions: a few reads that miss the
// processor's caches, or the ticks of its refill that nothing has looked at yet.
const budgetSteps = 32

// filaBudget is fila.budget(name): what is available, nil if there is no budget of that name, and
// while the script is loaded. The decision of the run is not remembered.
func filaBudget(l *lua.LState) int {
	m, name := of(l), checkText(l, 1)
	m.trace.off = true
	m.steps(l, budgetSteps+int64(len(name))>>3)
	v := lua.LNil
	if m.view != nil {
		if available, ok := m.view.Budget(name); ok {
			v = lua.LNumber(available)
		}
	}
	l.Push(v)
	return 1
}

// filaBackoff is fila.backoff(attempts, base_ms, max_ms): base_ms doubled for
// each failure after the first, at most max_ms, in whole milliseconds.
func filaBackoff(l *lua.LState) int {
	attempts, base, most := float64(l.CheckNumber(1)), float64(l.CheckNumber(2)), float64(l.CheckNumber(3))
	if !(attempts >= 0 && base >= 0 && most >= 0) || math.IsInf(attempts, 0) || math.IsInf(base, 0) {
		l.RaiseError("bad arguments to 'backoff' (numbers that are not negative expected)")
	}
	delay := math.Ldexp(base, int(min(max(attempts-1, 0), 1100)))
	l.Push(lua.LNumber(math.Floor(min(delay, most))))
	return 1
}

// splitMax bounds the parts to what a table's array part holds.
const splitMax = arrayMax - 1

// filaSplit is fila.split(s, sep): the parts of s between the separators, which
// are plain text. A string without a separator is one part.
func filaSplit(l *lua.LState) int {
	m, s, sep := of(l), checkText(l, 1), checkText(l, 2)
	if sep == "" {
		l.RaiseError("bad argument #2 to 'split' (empty separator)")
	}
	m.steps(l, int64(len(s))>>3)
	n := strings.Count(s, sep) + 1
	if n > splitMax {
		l.RaiseError("a split into %d parts, at most %d", n, splitMax)
	}
	t := m.newList(l, n)
	m.charge(l, n*costString)
	for i := range n {
		part, rest, _ := strings.Cut(s, sep)
		t.RawSetInt(i+1, lua.LString(part))
		s = rest
	}
	l.Push(t)
	return 1
}

// filaHash is fila.hash(s, n): a number from 0 to n-1 that depends on text and n only, on
// every machine and in every version.
func filaHash(l *lua.LState) int {
	s := checkText(l, 1)
	n, ok := whole(l.CheckNumber(2))
	if !ok || n < 1 || n > 1<<32 {
		l.RaiseError("bad argument #2 to 'hash' (a whole number from 1 to 2^32 expected)")
	}
	of(l).steps(l, int64(len(s))>>4)
	l.Push(lua.LNumber(hash(s) % uint64(n)))
	return 1
}

// hash is FNV-1a of 64 bits, followed by the finalizer of MurmurHash3, without
// which its low bits are too regular to be taken modulo a small number. It is
// part of the scripts' interface: it never changes.
func hash(s string) uint64 {
	const (
		offset = 14695981039346656037
		prime  = 1099511628211
	)
	h := uint64(offset)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

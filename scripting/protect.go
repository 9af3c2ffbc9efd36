package scripting

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
)

// A protected call runs on its own Lua thread. gopher-lua's pcall uses the same thread
// and, on an error, closes the upvalues of all frames, including those below the call: a
// local of a function that continues and the closure that shares it would silently
// diverge. On its own thread all frames belong to the call.
//
// A call on nesting level n uses thread n, which is created on first use and reused by later
// calls of the same level:
//
//	free ──protect──▶ in use ──return──▶ free
//	                     ├──error of the script──▶ free; the error is the result
//	                     ├──exceeded limit──▶ free; the error continues through all levels
//	                     └──a panic of gopher-lua──▶ discarded; it becomes an error of the script
//
// depth counts the threads in use. An error that ends a call may skip the returns of the calls
// inside of it, so attempt sets depth instead of decreasing it.

const (
	threadsMax      = 4 // nested protected calls
	threadDepthMax  = 60
	threadSlots     = 128
	threadSlotsStep = 128
	threadSlotsMax  = 640

	costThread = 32 << 10 // per level, once per call of the hook
	costError  = 1 << 10  // per caught error, without its text
	costTrace  = 24 << 10 // a traceback, which gopher-lua builds when the handler cannot run
)

// threads are a machine's threads, one for each nesting level.
type threads struct {
	made  [threadsMax]*lua.LState
	depth int // in use
	paid  int // levels charged for in this call
}

// protect calls the function in argument 1 with the other arguments. It replaces them by
// true and the results, or by false and the error, which handler may transform, and
// returns the number of values.
func (m *machine) protect(l *lua.LState, handler lua.LValue) int {
	n := l.GetTop()
	child := m.thread(l)
	for i := 1; i <= n; i++ {
		child.Push(l.Get(i))
	}
	m.threads.depth++
	err := m.attempt(child, n-1)
	m.threads.depth--
	l.SetTop(0)
	if err == nil {
		l.Push(lua.LTrue)
		for i := 1; i <= child.GetTop(); i++ {
			l.Push(child.Get(i))
		}
		child.SetTop(0)
		return l.GetTop()
	}
	m.caught(l, err)
	if handler != nil {
		l.Push(handler)
		l.Push(err.Object)
		m.protect(l, nil)
		l.Replace(1, lua.LFalse)
		return min(l.GetTop(), 2)
	}
	l.Push(lua.LFalse)
	l.Push(err.Object)
	return 2
}

// caught stops the propagation of an error unless a limit is exceeded, which it raises
// again.
func (m *machine) caught(l *lua.LState, err *lua.ApiError) {
	if m.spent == nil {
		m.charge(l, costError)
		m.steps(l, 10)
		if err.StackTrace != "" {
			m.charge(l, costTrace)
		}
		// gopher-lua has built the message in several buffers.
		if s, ok := err.Object.(lua.LString); ok {
			m.chargeString(l, len(s))
			m.charge(l, 4*len(s))
			err.Object = lua.LString(withoutAddress(string(s)))
		}
	}
	if m.spent != nil {
		l.RaiseError("%s", m.spent.Error())
	}
}

// thread returns the thread of the current nesting level, which a call has to pay for once,
// whether or not it exists from an earlier call: what a call is charged must not depend on
// others. It raises an error beyond threadsMax levels.
func (m *machine) thread(l *lua.LState) *lua.LState {
	t := &m.threads
	if t.depth == threadsMax {
		l.RaiseError("more than %d protected calls inside each other", threadsMax)
	}
	if t.paid == t.depth {
		m.charge(l, costThread)
		t.paid++
	}
	if t.made[t.depth] == nil {
		child := lua.NewState(lua.Options{
			CallStackSize: threadDepthMax, RegistrySize: threadSlots, RegistryGrowStep: threadSlotsStep,
			RegistryMaxSize: threadSlotsMax, SkipOpenLibs: true,
		})
		child.G, child.Env = m.l.G, m.l.Env
		child.SetContext(m)
		t.made[t.depth] = child
	}
	return t.made[t.depth]
}

// attempt makes the call. A thread that panicked with anything but an error of the script
// is discarded.
func (m *machine) attempt(child *lua.LState, args int) (raised *lua.ApiError) {
	level := m.threads.depth - 1
	defer func() {
		if r := recover(); r != nil {
			m.threads.made[level] = nil
			var ok bool
			if raised, ok = r.(*lua.ApiError); !ok {
				raised = &lua.ApiError{Type: lua.ApiErrorPanic, Object: lua.LString(fmt.Sprintf("the machine failed: %v", r))}
			}
			m.threads.depth = level + 1
		}
	}()
	err := child.PCall(args, lua.MultRet, m.lib.closer)
	if err == nil {
		return nil
	}
	m.threads.depth = level + 1 // aborted inner calls did not decrement it
	return err.(*lua.ApiError)  //nolint:errorlint // PCall returns no other, and wraps none
}

// closeUpvalues is the error handler: gopher-lua calls it with all frames in place. It
// raises an error of its own, because only that makes gopher-lua move captured locals
// into their closures. Having a handler also avoids a traceback per error.
func closeUpvalues(l *lua.LState) int {
	func() {
		defer func() { _ = recover() }() // raised below
		l.RaiseError("closing")
	}()
	l.SetTop(1)
	return 1
}

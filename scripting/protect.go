package scripting

import (
	"fmt"

	lua "github.com/yuin/gopher-lua"
)

// A protected call runs on a thread of its own. gopher-lua's own way has the
// call on the same one and, when an error is raised, closes the upvalues of all
// frames, those below the call included: a local of a function that goes on
// afterwards and the closure that shares it would part, silently. On a thread of
// its own all frames are the call's.

const (
	threadsMax      = 4 // protected calls inside each other
	threadDepthMax  = 60
	threadSlots     = 128
	threadSlotsStep = 128
	threadSlotsMax  = 640

	costThread = 32 << 10 // of each level, once a message
	costError  = 1 << 10  // of each caught error, beside its text
	costTrace  = 24 << 10 // gopher-lua writes one when there is no room to be told
)

// threads are the ones a machine has made so far, by how deep they are used.
type threads struct {
	made  [threadsMax]*lua.LState
	depth int // in use
	paid  int // charged for in this call
}

// protect calls the function that is the first argument with the others, and
// replaces them by true and the results, or false and the error, which the
// handler may change first. It returns how many these are.
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

// caught lets an error go no further, unless it is the end of the script.
func (m *machine) caught(l *lua.LState, err *lua.ApiError) {
	if m.spent == nil {
		m.charge(l, costError)
		m.steps(l, 10)
		if err.StackTrace != "" {
			m.charge(l, costTrace)
		}
		// gopher-lua has put the message together in several buffers.
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

// thread is an unused thread for the depth at hand.
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

// attempt makes the call. A thread on which more has gone wrong than an error of
// the script is not used again.
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
	m.threads.depth = level + 1 // calls inside did not come back to count themselves
	return err.(*lua.ApiError)  //nolint:errorlint // PCall returns no other, and wraps none
}

// closeUpvalues is called where an error is raised, with all frames of the
// thread still in place, and gives locals that closures have taken along their
// own place. Only raising does that, so it raises; a handler, moreover, keeps
// gopher-lua from writing a trace of the stack for every error.
func closeUpvalues(l *lua.LState) int {
	func() {
		defer func() { _ = recover() }() // it is the one raised below
		l.RaiseError("closing")
	}()
	l.SetTop(1)
	return 1
}

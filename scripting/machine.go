package scripting

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/internal/hook"
)

// machine is a Lua machine. One call uses it at a time, and it belongs to no script: each
// run gets a fresh environment, so scripts cannot see each other's state. Its states:
//
//	idle ──take──▶ taken ──run──▶ running ──the script has ended──▶ taken ──give──▶ idle
//	                                 └──an error, or a limit──▶ failed ──give──▶ discarded
//
// A failed machine may hold anything on its stacks, so it is left to the garbage collector
// (Sandbox.give). Between runs a machine refers to no message and no view; the last result
// remains on its stack until the next run.
type machine struct {
	budget

	lib    *library
	l      *lua.LState
	name   string // name of the running hook
	failed bool   // an error was raised: do not reuse the machine
	place  string // position of the last error, for values without one

	msg   *hook.Message
	view  hook.View // nil while the script is loaded
	trace trace     // queries of the script to both, for the memo

	// msg and msg.headers as the script sees them: constant values that read through to
	// the fields above.
	message, headers *lua.LUserData

	// hashed caches the tables whose hash part is already charged for, the newest ones.
	hashed     [4]*lua.LTable
	hashedNext int
	fields     int // fields charged for in this call, of all tables

	threads threads
	finder  matcher // shared by find and match
}

// newMachine creates a machine with an empty stack; the library is shared.
func newMachine(lib *library) *machine {
	m := &machine{budget: newBudget(), lib: lib}
	m.l = lua.NewState(lua.Options{
		CallStackSize: callDepthMax, RegistrySize: registryStart, RegistryGrowStep: registryStep,
		RegistryMaxSize: registryMax, SkipOpenLibs: true,
	})
	m.l.SetContext(m)
	m.l.SetMetatable(lua.LString(""), lib.strings)
	m.l.Panic = func(l *lua.LState) {
		m.locate(l)
		panic(&lua.ApiError{Type: lua.ApiErrorRun, Object: l.Get(-1)})
	}
	m.message = &lua.LUserData{Metatable: lib.message}
	m.headers = &lua.LUserData{Metatable: lib.headers}
	return m
}

// of returns the machine that is calling a library function. newMachine has set it
// as the context.
func of(l *lua.LState) *machine { return l.Context().(*machine) }

// locate records the position of an error that is being raised: error values other than
// strings do not carry one.
func (m *machine) locate(l *lua.LState) {
	for level := range 3 {
		if where := l.Where(level); strings.HasPrefix(where, m.name) {
			m.place = where
			return
		}
	}
}

// result is what a hook has returned. It refers to the machine's stack and is valid until
// the machine's next use.
type result struct {
	l      *lua.LState
	direct bool // returned as names and values behind the mark guardFields
}

// value returns the returned value, unless direct is set.
func (r result) value() lua.LValue { return r.l.Get(1) }

// run executes the script's top level and, if msg is not nil, its hook, within bounds none of
// which is 0. Any panic of gopher-lua becomes an *Error, and the machine is then marked as
// failed.
func (m *machine) run(s *script, within *hook.Bounds, msg *hook.Message, view hook.View) (res result, err error) {
	m.name, m.msg, m.view = s.kind.String(), msg, view
	m.reset(within)
	m.threads.paid, m.threads.depth = 0, 0
	defer func() {
		if r := recover(); r != nil {
			m.failed = true
			err = m.explain(r)
		}
		m.releaseSlot()
		m.msg, m.view, m.place = nil, nil, ""
		m.hashed, m.fields = [len(m.hashed)]*lua.LTable{}, 0
		m.finder.subject, m.finder.pattern = "", ""
	}()
	l := m.l
	l.SetTop(0)
	m.charge(l, s.cost)
	hook, ok := m.load(s).(*lua.LFunction)
	if !ok {
		return res, located(m.name, 0, "the script defines no function "+m.name)
	}
	if msg == nil {
		return res, nil
	}
	l.Push(hook)
	l.Push(m.message)
	l.Call(1, lua.MultRet)
	if m.spent != nil { // an exceeded limit is final even if an error was caught
		m.failed = true
		return res, placed(m.name, m.spent.Error())
	}
	return result{l, l.Get(1) == m.lib.fields}, nil
}

// load runs the script's top level and returns the value of the hook's name. Scripts
// without state skip the environment or the whole top level, see plan.
func (m *machine) load(s *script) lua.LValue {
	l := m.l
	if s.hook != nil {
		return s.hook
	}
	if s.bare {
		l.Push(&lua.LFunction{Env: m.lib.globals, Proto: s.proto})
		l.Call(0, 1)
		hook := l.Get(-1)
		l.Pop(1)
		return hook
	}
	env := l.CreateTable(0, s.globals)
	env.Metatable = m.lib.environment
	env.RawSetString("_G", env)
	l.Push(&lua.LFunction{Env: env, Proto: s.proto})
	l.Call(0, 0)
	return env.RawGetString(m.name)
}

// explain converts a value thrown by a script, or by gopher-lua, into an Error.
func (m *machine) explain(thrown any) *Error {
	var text string
	if raised, ok := thrown.(*lua.ApiError); ok {
		switch v := raised.Object.(type) {
		case lua.LString:
			text = withoutAddress(string(v))
		case lua.LNumber:
			text = v.String()
		default:
			text = fmt.Sprintf("the error is a %s, it has no text", kindOf(v))
		}
	} else {
		// A bug in gopher-lua or in this package: it counts as an error of the script
		// that triggered it.
		text = fmt.Sprintf("the machine failed: %v", thrown)
	}
	e := placed(m.name, text)
	if e.Line == 0 {
		e = placed(m.name, m.place+" "+text)
	}
	e.Limit = m.spent != nil
	return e
}

// kindOf names the type of a value for error texts.
func kindOf(v lua.LValue) string {
	if v == nil {
		return "nothing"
	}
	return v.Type().String()
}

package scripting

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/faisca/fila/engine"
)

// machine is a Lua machine. It belongs to one call at a time and to no script:
// a script brings its program and finds an empty environment, so what one has
// done cannot be seen by the next.
type machine struct {
	budget

	lib    *library
	l      *lua.LState
	name   string // of the hook that runs
	failed bool   // an error was raised since it was made: do not use it again
	place  string // where the last error was raised, for those that do not say

	msg      *engine.HookMessage
	settings engine.Settings
	trace    trace // of what the script asks them

	// What the script sees of the message. They are the same values for each
	// message and look through at the fields above.
	message, headers *lua.LUserData

	// hashed are tables whose hash part was charged for, the newest ones.
	hashed     [4]*lua.LTable
	hashedNext int
	fields     int // charged for in this call, of all tables

	threads threads
	finder  matcher // of find and match
}

func newMachine(c *Config, lib *library) *machine {
	m := &machine{budget: newBudget(c), lib: lib}
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

// of is the machine on which a function of the library was called; newMachine
// has made it the context.
func of(l *lua.LState) *machine { return l.Context().(*machine) }

// locate keeps where an error is raised: a value such as a table does not say.
func (m *machine) locate(l *lua.LState) {
	for level := range 3 {
		if where := l.Where(level); strings.HasPrefix(where, m.name) {
			m.place = where
			return
		}
	}
}

// result is what a hook has returned. It lies on the machine's stack, so it has
// to be read before the machine is used again.
type result struct {
	l      *lua.LState
	direct bool // field by field, behind a mark
}

// value is what was returned, unless it was field by field.
func (r result) value() lua.LValue { return r.l.Get(1) }

// run executes the script's top level and, if there is a message, its hook on
// it.
func (m *machine) run(s *script, instructions int64, msg *engine.HookMessage, get engine.Settings) (res result, err error) {
	m.name, m.msg, m.settings = s.kind.String(), msg, get
	m.reset(instructions)
	m.threads.paid, m.threads.depth = 0, 0
	defer func() {
		if r := recover(); r != nil {
			m.failed = true
			err = m.explain(r)
		}
		m.leaveLane()
		m.msg, m.settings, m.place = nil, nil, ""
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
	if m.spent != nil { // nothing can have caught it; if it has, it does not count
		m.failed = true
		return res, placed(m.name, m.spent.Error())
	}
	return result{l, l.Get(1) == m.lib.fields}, nil
}

// load runs the script's top level and returns what it has made the hook.
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

// explain makes an error of what a script, or the machine below it, has thrown.
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
		// A fault in the machine, or in us: the script has found it, so it pays.
		text = fmt.Sprintf("the machine failed: %v", thrown)
	}
	e := placed(m.name, text)
	if e.Line == 0 {
		e = placed(m.name, m.place+" "+text)
	}
	e.Limit = m.spent != nil
	return e
}

// kindOf is the type of a value for a message.
func kindOf(v lua.LValue) string {
	if v == nil {
		return "nothing"
	}
	return v.Type().String()
}

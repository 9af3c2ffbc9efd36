package scripting

import (
	"maps"
	"slices"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// library is what all scripts find in their environment. It is made once, shared
// by all machines and never written to afterwards: that is what makes it safe to
// read from several goroutines.
type library struct {
	globals     *lua.LTable // what scripts find, and the environment of those that add nothing
	environment *lua.LTable // metatable of the environments of the others
	strings     *lua.LTable // metatable of strings
	message     *lua.LTable // metatable of msg
	headers     *lua.LTable // metatable of msg.headers

	next, step *lua.LFunction // iterators of pairs and ipairs
	closer     *lua.LFunction // handler of errors in protected calls

	guards map[string]*lua.LFunction
	fields lua.LValue // the guard that marks a result given field by field
}

// boundArrays lowers how far a table's array part reaches. gopher-lua has it as
// a variable for the whole process, read by every machine at every access, so it
// has to be set before the first machine runs and never again: newLibrary is
// where there can be none yet, and its caller hands the library to them.
var boundArrays = sync.OnceFunc(func() { lua.MaxArrayIndex = arrayMax }) //nolint:gochecknoglobals // guards one of gopher-lua's

func newLibrary() *library {
	boundArrays()
	globals := functions(baseLibrary())
	lib := &library{step: goFunction(ipairsStep), closer: goFunction(closeUpvalues)}
	lib.next, _ = globals.RawGetString("next").(*lua.LFunction)
	stringTable := functions(stringLibrary())
	mathTable := functions(mathLibrary())
	mathTable.RawSetString("pi", lua.LNumber(3.141592653589793))
	mathTable.RawSetString("huge", lua.LNumber(infinity()))
	globals.RawSetString("string", stringTable)
	globals.RawSetString("table", functions(tableLibrary()))
	globals.RawSetString("math", mathTable)
	globals.RawSetString("fila", functions(filaLibrary()))
	globals.RawSetString("_VERSION", lua.LString("Lua 5.1"))

	lib.guards = guards()
	lib.fields = lib.guards[guardFields]
	lib.globals = globals
	lib.environment = metatable(globals)
	lib.strings = metatable(stringTable)
	lib.message = metatable(goFunction(messageIndex))
	lib.headers = metatable(goFunction(headersIndex))
	lib.headers.RawSetString("__len", goFunction(headersLen))
	return lib
}

// functions makes a table that no script may write to.
func functions(fs map[string]lua.LGFunction) *lua.LTable {
	t := &lua.LTable{Metatable: frozen}
	for _, name := range slices.Sorted(maps.Keys(fs)) { // pairs() shows the order
		t.RawSetString(name, goFunction(fs[name]))
	}
	return t
}

// metatable makes one that a script can neither see nor replace.
func metatable(index lua.LValue) *lua.LTable {
	t := &lua.LTable{Metatable: frozen}
	t.RawSetString("__index", index)
	t.RawSetString("__metatable", lua.LFalse)
	return t
}

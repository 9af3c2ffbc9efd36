package scripting

import (
	"maps"
	"slices"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// library holds the global functions and metatables of all scripts. It is immutable after
// creation and therefore shared by all machines without locks.
type library struct {
	globals     *lua.LTable // the globals, and the environment of scripts without state
	environment *lua.LTable // metatable of all other environments
	strings     *lua.LTable // metatable of strings
	message     *lua.LTable // metatable of msg
	headers     *lua.LTable // metatable of msg.headers

	next, step *lua.LFunction // iterators of pairs and ipairs
	closer     *lua.LFunction // error handler of protected calls

	guards map[string]*lua.LFunction
	fields lua.LValue // the mark of a direct result
}

// boundArrays lowers gopher-lua's limit of array parts. The limit is a process-wide
// variable that every machine reads, so it is set once, before the first machine exists.
var boundArrays = sync.OnceFunc(func() { lua.MaxArrayIndex = arrayMax }) //nolint:gochecknoglobals // guards one of gopher-lua's

// newLibrary creates the library.
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

// functions returns a read-only table of functions.
func functions(fs map[string]lua.LGFunction) *lua.LTable {
	t := &lua.LTable{Metatable: frozen}
	for _, name := range slices.Sorted(maps.Keys(fs)) { // pairs() shows the order
		t.RawSetString(name, goFunction(fs[name]))
	}
	return t
}

// metatable returns a metatable that scripts can neither read nor replace.
func metatable(index lua.LValue) *lua.LTable {
	t := &lua.LTable{Metatable: frozen}
	t.RawSetString("__index", index)
	t.RawSetString("__metatable", lua.LFalse)
	return t
}

package scripting

import (
	"crypto/sha1" //nolint:gosec // a version, as Redis makes them of scripts; nothing is secret or signed
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/faisca/fila/engine"
)

// script is a compiled source. It never changes, so any number of machines may
// run it at the same time.
type script struct {
	kind    engine.HookKind
	source  string
	version string // SHA-1 of the source, in hexadecimal

	proto   *lua.FunctionProto
	cost    int  // bytes that running its top level once allocates
	globals int  // names it assigns
	self    bool // it may mention _G
}

// compile turns a source into a script, without running it.
func compile(kind engine.HookKind, source string, sizeMax int) (*script, error) {
	if len(source) > sizeMax {
		return nil, &Error{Text: fmt.Sprintf("%s: a script of %d bytes, at most %d", kind, len(source), sizeMax)}
	}
	proto, tree, err := translate(kind.String(), source)
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	return &script{
		kind: kind, source: source, version: hex.EncodeToString(sum[:]),
		proto: proto, cost: tree.cost, globals: tree.globals, self: strings.Contains(source, "_G"),
	}, nil
}

// translate parses, rewrites and compiles. gopher-lua reports by panicking, and
// where it does not expect what it gets, panics in earnest: both are errors of
// the script here.
func translate(name, source string) (proto *lua.FunctionProto, tree rewritten, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refusal:
			err = located(name, r.line, r.text)
		default:
			err = located(name, 0, fmt.Sprintf("cannot be compiled: %v", r))
		}
	}()
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return nil, tree, syntax(name, source, err)
	}
	tree = rewrite(chunk)
	proto, err = lua.Compile(tree.chunk, name)
	if err != nil {
		return nil, tree, syntax(name, source, err)
	}
	if err := link(proto, guards(), true); err != nil {
		return nil, tree, located(name, 0, err.Error())
	}
	return proto, tree, nil
}

// syntax words the errors of parser and compiler the way Lua does.
func syntax(name, source string, err error) error {
	if p, ok := errors.AsType[*parse.Error](err); ok {
		text := strings.ToLower(strings.TrimSpace(p.Message))
		if p.Pos.Line < 0 { // the end of the source
			return located(name, strings.Count(source, "\n")+1, text+" at the end")
		}
		return located(name, p.Pos.Line, text+" near '"+p.Token+"'")
	}
	if c, ok := errors.AsType[*lua.CompileError](err); ok {
		return located(name, c.Line, c.Message)
	}
	return located(name, 0, err.Error())
}

// link puts the guards into a program and takes out what would escape a limit:
//
//   - A tail call becomes a call. gopher-lua notes each in its frame and writes
//     them all into the trace of an error, so a loop of tail calls would take
//     memory that nothing counts. As a call it ends at the depth that all end at.
//   - The table `arg` that functions with `...` had in Lua 5.0 is not made.
func link(proto *lua.FunctionProto, guards map[string]*lua.LFunction, top bool) error {
	if len(proto.DbgUpvalues) > upvaluesMax {
		return fmt.Errorf("a function uses %d locals from outside, at most %d", len(proto.DbgUpvalues), upvaluesMax)
	}
	for i, c := range proto.Constants {
		if s, ok := c.(lua.LString); ok && strings.HasPrefix(string(s), guardPrefix) {
			proto.Constants[i] = guards[string(s)]
		}
	}
	const opcodeShift = 26
	for i := 0; i < len(proto.Code); i++ {
		switch inst := proto.Code[i]; int(inst >> opcodeShift) {
		case lua.OP_TAILCALL:
			proto.Code[i] = inst&(1<<opcodeShift-1) | uint32(lua.OP_CALL)<<opcodeShift
		case lua.OP_CLOSURE:
			// What follows says where the upvalues come from and is not executed.
			const bx = 1<<18 - 1
			i += int(proto.FunctionPrototypes[inst&bx].NumUpvalues)
		}
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg
	if top {
		proto.IsVarArg = 0 // called without arguments
	}
	for _, p := range proto.FunctionPrototypes {
		if err := link(p, guards, false); err != nil {
			return err
		}
	}
	return nil
}

package scripting

import (
	"crypto/sha1" //nolint:gosec // a version, as Redis makes them of scripts; nothing is secret or signed
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
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
	cost    int            // bytes that running its top level once allocates
	bare    bool           // it needs no environment; its top level returns the hook's function
	hook    *lua.LFunction // the hook's function, if running the top level would only make it
	globals int            // names it assigns
}

// compile turns a source into a script, without running it.
func compile(lib *library, kind engine.HookKind, source string, sizeMax int, pace *pacer) (*script, error) {
	if len(source) > sizeMax {
		return nil, &Error{Text: fmt.Sprintf("%s: a script of %d bytes, at most %d", kind, len(source), sizeMax)}
	}
	proto, tree, bare, err := translate(lib, kind.String(), source, pace)
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	s := &script{
		kind: kind, source: source, version: hex.EncodeToString(sum[:]),
		proto: proto, cost: tree.cost, bare: bare, globals: len(tree.survey.globals),
	}
	if bare && tree.sole && proto.FunctionPrototypes[0].NumUpvalues == 0 {
		// A function without upvalues has no state, so all machines may share it.
		s.hook = &lua.LFunction{Env: lib.globals, Proto: proto.FunctionPrototypes[0]}
	}
	return s, nil
}

// translate parses, rewrites and compiles. gopher-lua reports by panicking, and
// where it does not expect what it gets, panics in earnest: both are errors of
// the script here.
func translate(lib *library, name, source string, pace *pacer) (proto *lua.FunctionProto, tree rewritten, bare bool, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refusal:
			err = located(name, r.line, r.text)
		default:
			err = located(name, 0, fmt.Sprintf("cannot be compiled: %v", r))
		}
	}()
	shallow(source, pace)
	tree, err = prepare(name, source, plan{hook: name}, pace)
	if err != nil {
		return nil, tree, false, err
	}
	if p := planned(name, &tree.survey); len(p.locals) > 0 {
		fast, err := prepare(name, source, p, pace)
		if err != nil {
			return nil, tree, false, err
		}
		// It may take more locals than there are; the plain way is as good then.
		if proto, err := build(lib, name, source, fast, true, pace); err == nil {
			return proto, fast, true, nil
		}
	}
	proto, err = build(lib, name, source, tree, false, pace)
	return proto, tree, false, err
}

// prepare goes from source to tree with a plan. It does not recover from refusals.
func prepare(name, source string, p plan, pace *pacer) (rewritten, error) {
	chunk, err := parse.Parse(paced{strings.NewReader(source), pace}, name)
	if err != nil {
		return rewritten{}, syntax(name, source, err)
	}
	return rewrite(chunk, p, pace), nil
}

// build goes from tree to program. The source is for errors.
func build(lib *library, name, source string, tree rewritten, bare bool, pace *pacer) (*lua.FunctionProto, error) {
	proto, err := lua.Compile(tree.chunk, name)
	if err != nil {
		return nil, syntax(name, source, err)
	}
	l := linker{guards: lib.guards, bare: bare, pacer: pace}
	if err := l.link(proto); err != nil {
		return nil, located(name, 0, err.Error())
	}
	proto.IsVarArg = 0 // called without arguments
	return proto, nil
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

// linker puts the guards into a program and takes out what would escape a limit:
//
//   - A tail call becomes a call. gopher-lua notes each in its frame and writes
//     them all into the trace of an error, so a loop of tail calls would take
//     memory that nothing counts. As a call it ends at the depth that all end at.
//   - The table `arg` that functions with `...` had in Lua 5.0 is not made.
//   - A program without an environment of its own must not write to the one it
//     shares with all others. The plan sees to that; this is to be sure.
//
// It also gives back the room that the compiler makes for functions longer than most,
// 12 KiB each.
type linker struct {
	guards map[string]*lua.LFunction
	bare   bool
	pacer  *pacer
}

func (k *linker) link(proto *lua.FunctionProto) error {
	if len(proto.DbgUpvalues) > upvaluesMax {
		return fmt.Errorf("a function uses %d locals from outside, at most %d", len(proto.DbgUpvalues), upvaluesMax)
	}
	for i, c := range proto.Constants {
		if s, ok := c.(lua.LString); ok && strings.HasPrefix(string(s), guardPrefix) {
			proto.Constants[i] = k.guards[string(s)]
		}
	}
	const opcodeShift = 26
	for i := 0; i < len(proto.Code); i++ {
		switch inst := proto.Code[i]; int(inst >> opcodeShift) {
		case lua.OP_TAILCALL:
			proto.Code[i] = inst&(1<<opcodeShift-1) | uint32(lua.OP_CALL)<<opcodeShift
		case lua.OP_SETGLOBAL:
			if k.bare {
				return errors.New("a global is assigned that was not seen before")
			}
		case lua.OP_CLOSURE:
			// What follows says where the upvalues come from and is not executed.
			const bx = 1<<18 - 1
			i += int(proto.FunctionPrototypes[inst&bx].NumUpvalues)
		}
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg
	proto.Code, proto.DbgSourcePositions = slices.Clone(proto.Code), slices.Clone(proto.DbgSourcePositions)
	k.pacer.pause()
	for _, p := range proto.FunctionPrototypes {
		if err := k.link(p); err != nil {
			return err
		}
	}
	return nil
}

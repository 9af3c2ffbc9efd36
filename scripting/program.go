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

	"github.com/faisca/fila/internal/hook"
)

// A source becomes a script in these steps, each of which may refuse it:
//
//	source ──checkDepth──▶ bounded nesting (depth.go)
//	       ──parse───────▶ syntax tree
//	       ──rewrite─────▶ tree that charges its allocations (rewrite.go), and a survey of it
//	       ──plan────────▶ tree that keeps globals in locals, if the survey allows (plan.go)
//	       ──Compile─────▶ gopher-lua's program
//	       ──link────────▶ program with the guards in place of their names
//
// For the plan, the source is parsed and rewritten a second time, since rewriting changes the tree.

// script is a compiled source. It is immutable, so any number of machines may run it
// concurrently.
type script struct {
	kind    hook.Kind
	source  string
	version string // SHA-1 of the source, in hexadecimal

	proto   *lua.FunctionProto
	cost    int            // bytes that one run of its top level allocates
	bare    bool           // needs no environment; the top level returns the hook
	hook    *lua.LFunction // the hook, if running the top level would only create it
	globals int            // number of globals that it assigns
}

// compile translates a source into a script without running it, and adds what that takes
// to work.
func compile(lib *library, kind hook.Kind, source string, sizeMax int, work *effort) (*script, error) {
	if len(source) > sizeMax {
		return nil, &Error{Text: fmt.Sprintf("%s: a script of %d bytes, at most %d", kind, len(source), sizeMax)}
	}
	work.steps += effortByte * len(source)
	proto, tree, bare, err := translate(lib, kind.String(), source, work)
	if err != nil {
		return nil, err
	}
	sum := sha1.Sum([]byte(source)) //nolint:gosec // see the import
	s := &script{
		kind: kind, source: source, version: hex.EncodeToString(sum[:]),
		proto: proto, cost: tree.cost, bare: bare, globals: len(tree.survey.globals),
	}
	if bare && tree.sole && proto.FunctionPrototypes[0].NumUpvalues == 0 {
		// Without upvalues a function has no state, so all machines may share it.
		s.hook = &lua.LFunction{Env: lib.globals, Proto: proto.FunctionPrototypes[0]}
	}
	return s, nil
}

// translate parses, rewrites and compiles a source. gopher-lua reports errors by
// panicking and also panics on unexpected trees; both become errors of the script.
func translate(lib *library, name, source string, work *effort) (proto *lua.FunctionProto, tree rewritten, bare bool, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case refusal:
			err = located(name, r.line, r.text)
		default:
			err = located(name, 0, fmt.Sprintf("cannot be compiled: %v", r))
		}
	}()
	checkDepth(source)
	tree, err = prepare(name, source, plan{hook: name}, work)
	if err != nil {
		return nil, tree, false, err
	}
	if p := planned(name, &tree.survey); len(p.locals) > 0 {
		fast, err := prepare(name, source, p, work)
		if err != nil {
			return nil, tree, false, err
		}
		// The optimised form may exceed the limit of locals; the plain form is
		// equivalent.
		if proto, err := build(lib, name, source, fast, true); err == nil {
			return proto, fast, true, nil
		}
	}
	proto, err = build(lib, name, source, tree, false)
	return proto, tree, false, err
}

// prepare parses and rewrites a source according to a plan. Refusals propagate as panics.
func prepare(name, source string, p plan, work *effort) (rewritten, error) {
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return rewritten{}, syntax(name, source, err)
	}
	return rewrite(chunk, p, work), nil
}

// build compiles and links a tree. source is needed for error positions.
func build(lib *library, name, source string, tree rewritten, bare bool) (*lua.FunctionProto, error) {
	proto, err := lua.Compile(tree.chunk, name)
	if err != nil {
		return nil, syntax(name, source, err)
	}
	l := linker{guards: lib.guards, bare: bare}
	if err := l.link(proto); err != nil {
		return nil, located(name, 0, err.Error())
	}
	proto.IsVarArg = 0 // called without arguments
	return proto, nil
}

// syntax words parse and compile errors as Lua does.
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

// linker inserts the guards into a compiled program and removes what would escape a
// limit:
//
//   - Tail calls become calls. gopher-lua counts tail calls in the frame and lists
//     each in an error's traceback, so a loop of them would use uncharged memory. As
//     a call it ends at the depth limit.
//   - The table `arg`, which Lua 5.0 gave functions with `...`, is not created.
//   - A program without its own environment must not assign globals, which would
//     write to the shared one. The plan guarantees that; the linker verifies it.
//
// It also shrinks the code arrays, for which the compiler reserves 12 KiB per function.
type linker struct {
	guards map[string]*lua.LFunction
	bare   bool
}

// link processes a function and, recursively, the functions in it.
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
			// The next NumUpvalues words describe upvalues and are not instructions.
			const bx = 1<<18 - 1
			i += int(proto.FunctionPrototypes[inst&bx].NumUpvalues)
		}
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg
	proto.Code, proto.DbgSourcePositions = slices.Clone(proto.Code), slices.Clone(proto.DbgSourcePositions)
	for _, p := range proto.FunctionPrototypes {
		if err := k.link(p); err != nil {
			return err
		}
	}
	return nil
}

package scripting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/faisca/fila/internal/hook"
)

// asked counts how often the compiler asks for its line.
type asked struct {
	ast.StmtBase

	times int
}

func (s *asked) Line() int {
	s.times++
	return s.StmtBase.Line()
}

// Yielding during a compilation relies on this: the compiler asks such a statement for its
// line once, and emits no code for it.
func TestTheCompilerAsksAStatementThatItDoesNotKnow(t *testing.T) {
	const source = "local a = f() while a do if a then break end local b = function() return a end a = b() end return a"
	compiled := func(with bool) (*lua.FunctionProto, []*asked) {
		chunk, err := parse.Parse(strings.NewReader(source), "x")
		if err != nil {
			t.Fatal(err)
		}
		var all []*asked
		if with {
			insert := func(stmts []ast.Stmt) []ast.Stmt {
				for i := 0; i <= len(stmts)-1; i += 2 {
					s := at(&asked{}, 1)
					all = append(all, s)
					stmt := pausePoint(1, nil, 0)
					stmt.(*ast.IfStmt).Then[0] = s
					stmts = slices.Insert(stmts, i, stmt)
				}
				return stmts
			}
			loop := chunk[1].(*ast.WhileStmt)
			loop.Stmts = insert(loop.Stmts)
			chunk = insert(chunk)
		}
		proto, err := lua.Compile(chunk, "x")
		if err != nil {
			t.Fatal(err)
		}
		return proto, all
	}
	want, _ := compiled(false)
	got, all := compiled(true)
	if !slices.Equal(got.Code, want.Code) || !slices.Equal(got.DbgSourcePositions, want.DbgSourcePositions) {
		t.Errorf("%v, want %v", got.Code, want.Code)
	}
	for i, s := range all {
		if s.times != 1 {
			t.Errorf("%d of %d was asked %d times", i, len(all), s.times)
		}
	}
	if len(all) < 5 {
		t.Errorf("only %d", len(all))
	}
}

// Loading a long source yields repeatedly.
func TestLoadingTakesTurns(t *testing.T) {
	s := sandbox(t)
	ways := 0
	s.slots = make(slots, 1)
	s.slots <- &slot{yield: func() { ways++ }}
	source := strings.Repeat("f(a, b, c) ", 4000)
	chunk, err := parse.Parse(strings.NewReader(source), "x")
	if err != nil {
		t.Fatal(err)
	}
	rests := 0
	for _, stmt := range rewrite(chunk, plan{hook: "on_enqueue"}, nil).chunk {
		if c, ok := stmt.(*ast.IfStmt); ok {
			if _, ok := c.Then[0].(*rest); ok {
				rests++
			}
		}
	}
	if rests < 50 {
		t.Errorf("the compiler rests %d times", rests)
	}
	load(t, s, hook.OnEnqueue, "local a, b, c local function f() end "+source+" function on_enqueue(msg) end")
	if ways < 20 {
		t.Errorf("it has given way %d times", ways)
	}
	if len(s.slots) != 1 {
		t.Error("it has kept its slot")
	}
}

// A statement that the compiler could not rest in is refused if it is too much, and
// says where. As many statements of a part of it are no trouble.
func TestAStatementHasABound(t *testing.T) {
	list := func(format string, from, to int) string {
		var b strings.Builder
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	s := sandbox(t)
	for name, c := range map[string]struct {
		source string
		line   int // 0: it is accepted
	}{
		"names and numbers": {"local t = {\n" + list("a%[1]d = %[1]d,\n", 0, 300) + "}", 0},
		"too many":          {"local t = {\n" + list("a%[1]d = %[1]d,\n", 0, 600) + "}", 450},
		"in parts":          {"local t = {} " + list("t.a%d = 1\n", 0, 600), 0},
		"functions":         {"local t = {" + strings.Repeat("function() end,", 200) + "}", 0},
		"too many of them":  {"local t = {" + strings.Repeat("function() end,", 300) + "}", 1},
	} {
		_, err := s.Load(hook.OnEnqueue, c.source+" function on_enqueue(msg) end")
		var e *Error
		switch {
		case c.line == 0 && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.line > 0 && (!errors.As(err, &e) || !strings.Contains(e.Text, "too long to compile") || e.Line < c.line-50 || e.Line > c.line+50):
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Limits of a whole script, from both sides.
func TestLimitsOfASource(t *testing.T) {
	s := sandbox(t)
	for text, source := range map[string]func(n int) string{
		"more than 500 functions":     func(n int) string { return "local f " + strings.Repeat("f = function() end ", 499+n) }, // and the hook
		"more than 100 operations":    func(n int) string { return "local x = 1 x = x" + strings.Repeat(" + x", 100+n) },
		"251 arguments, at most 250":  func(n int) string { return "local f function g(...) f(" + strings.Repeat("1,", 249+n) + "...) end" },
		"nested too deeply, at most ": func(n int) string { return strings.Repeat("do ", 390+20*n) + strings.Repeat("end ", 390+20*n) },
	} {
		if _, err := s.Load(hook.OnEnqueue, source(0)+" function on_enqueue(msg) end"); err != nil && strings.Contains(err.Error(), text) {
			t.Errorf("below: %v", err)
		}
		if _, err := s.Load(hook.OnEnqueue, source(1)+" function on_enqueue(msg) end"); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("want %q, got %v", text, err)
		}
	}
}

// What the parser would have to keep unfinished is bounded, and nothing else is.
func TestWhatIsPendingIsBounded(t *testing.T) {
	s := sandbox(t)
	const function = " function on_enqueue(msg) end"
	for name, source := range map[string]string{
		"parentheses": "local a = " + strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000),
		"tables":      "local a = " + strings.Repeat("{", 2000) + strings.Repeat("}", 2000),
		"functions":   strings.Repeat("function f() ", 2000) + strings.Repeat("end ", 2000),
		"blocks":      strings.Repeat("if a then while b do repeat ", 500) + strings.Repeat("until c end end ", 500),
		"concats":     "local a = ''" + strings.Repeat(" .. ''", 2000),
		"calls":       "local a = ''" + strings.Repeat(" .. f'' .. f{} .. f(1, 2)", 1000),
		"powers":      "local a = 1" + strings.Repeat(" ^ a.b", 2000),
		"signs":       "local a = 1" + strings.Repeat(" - -1", 2000),
		"nots":        "local a =" + strings.Repeat(" not", 2000) + " 1",
		"lengths":     "local a =" + strings.Repeat(" #", 2000) + " b",
		"never ends":  strings.Repeat("(", 2000),
	} {
		if _, err := s.Load(hook.OnEnqueue, source+function); err == nil || !strings.Contains(err.Error(), "on_enqueue:1: nested too deeply, or too many operators") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, source := range map[string]string{
		"assignments":    "local a, b " + strings.Repeat("a = a .. b ^ b ", 2000),
		"separated":      "local a, b " + strings.Repeat("a = #b; b = -a;", 2000),
		"calls":          "local f function g() " + strings.Repeat("f(-f) f{ not f } f'a' ", 700) + "end",
		"lists":          "local a = {" + strings.Repeat("-1, ", 2000) + "}",
		"brackets":       "local a function g() " + strings.Repeat("a[#a](-a) ", 1000) + "end",
		"blocks":         "local a " + strings.Repeat("if not a then elseif not a then else end ", 600) + strings.Repeat("repeat until not a while not a do break end for i = -1, -a do end ", 300),
		"sums":           "local a " + strings.Repeat("a = a - a * a - a ", 1000),
		"comments, text": "local a " + strings.Repeat("--((((\n a = '((((' --[[((((]] a = [[((((]] ", 800),
	} {
		if _, err := s.Load(hook.OnEnqueue, source+function); err != nil && strings.Contains(err.Error(), "operators") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is nested too deeply is told so, wherever it stands.
func TestNestingInFunctionsIsRefusedInItsWords(t *testing.T) {
	_, err := sandbox(t).Load(hook.OnEnqueue, strings.Repeat("function f() ", 500)+strings.Repeat("end ", 500))
	if err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Error(err)
	}
}

// After a long piece the compiler stays away for longer, and leaves the slot to others.
func TestALongPieceOfLoadingIsFollowedByARest(t *testing.T) {
	all := make(slots, 1)
	p := newPacer(all)
	p.slot = &slot{yield: func() {}}
	const steps = effortLong + 1
	stmt := pausePoint(1, p, steps).(*ast.IfStmt).Then[0]
	start := time.Now()
	stmt.Line()
	if took := time.Since(start); took < steps*effortStep*effortAway {
		t.Errorf("it was back after %v", took)
	}
	if p.slot == nil || len(all) != 0 {
		t.Error("it is back without a slot")
	}
	p.leave()
	if len(all) != 1 {
		t.Error("it has kept the slot")
	}
	if pausePoint(1, p, effortLong).(*ast.IfStmt).Then[0].(*rest).away > 0 {
		t.Error("a short piece is followed by a long rest")
	}
}

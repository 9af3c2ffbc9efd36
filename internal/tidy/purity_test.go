package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// clock lists the functions of package time that read a clock or wait. Types and constants are
// allowed: a time is a value.
func clock() []string {
	return []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}
}

// commandPackages are the commands and their support: they receive the time as a value, and run on
// the goroutines of connections.
func commandPackages() []string {
	return []string{"commands", "internal/command", "internal/events", "internal/glob", "internal/ops/telemetry"}
}

// decides reports whether a source is of the engine or of one of its rooms, and no test. What runs them, engine/loop,
// is on a floor of its own.
func decides(s source) bool {
	floor, _ := floorOf(s.pkg())
	return !s.test() && (floor == "engine" || floor == "rooms")
}

func TestATurnReadsNoClock(t *testing.T) {
	for _, s := range sources(t) {
		if decides(s) || in(s, commandPackages()...) {
			report(t, clockUse(s))
		}
	}
}

func TestATurnHasNoGoroutineLockOrChannel(t *testing.T) {
	for _, s := range sources(t) {
		switch {
		case decides(s):
			report(t, concurrency(s))
		case s.pkg() == "engine": // its tests step it; those in which goroutines meet are beside what has them
			report(t, goroutines(s))
		}
	}
}

// What tests see of the order of delivery lets them break it.
func TestOnlyTestsLookInsideTheOrder(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test() && s.path != "engine/dispatch/inside.go" {
			report(t, insides(s))
		}
	}
}

// insides finds uses of dispatch.Order.Inside.
func insides(s source) (complaints []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Inside" {
			complaints = append(complaints, fmt.Sprintf("%s: Inside: only tests may look at the order of delivery, and break it", s.line(n)))
		}
		return true
	})
	return complaints
}

// A session runs on the goroutines of its connection and starts none, which would have no defined
// end and no place in the order of replies.
func TestCommandsStartNoGoroutine(t *testing.T) {
	for _, s := range sources(t) {
		if in(s, commandPackages()...) && s.path != "internal/events/match.go" { // its goroutine ends when nothing waits
			report(t, goroutines(s))
		}
	}
}

func TestNothingHappensAtImport(t *testing.T) {
	for _, s := range sources(t) {
		if in(s, "adapters/gocloud") { // Go CDK finds drivers by what they register
			continue
		}
		report(t, inits(s))
	}
}

// A test that waits by sleeping is slow when it passes, and fails on a slower machine. In a
// synctest bubble Sleep advances the fake clock; in a loop it polls.
func TestATestSleepsOnlyInABubbleOrToPoll(t *testing.T) {
	for _, s := range sources(t) {
		report(t, naps(s))
	}
}

// in reports whether a source belongs to one of the packages and is not a test: tests have clocks
// and goroutines of their own.
func in(s source, pkgs ...string) bool {
	return !s.test() && slices.Contains(pkgs, s.pkg())
}

// naps finds sleeps in tests.
func naps(s source) []string {
	if _, bubble := s.imports()["testing/synctest"]; bubble || !s.test() {
		return nil
	}
	return timeUse(s, []string{"Sleep"}, "advance time, use a testing/synctest bubble, or poll in a loop that has a condition")
}

func clockUse(s source) []string {
	return timeUse(s, clock(), "the time is handed in, see Tx.Now")
}

// timeUse finds uses of functions of package time.
func timeUse(s source, functions []string, instead string) []string {
	name, ok := s.imports()["time"]
	if !ok {
		return nil
	}
	var complaints []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if loop, ok := n.(*ast.ForStmt); ok && loop.Cond != nil && s.test() {
			return false
		}
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == name && slices.Contains(functions, sel.Sel.Name) {
			complaints = append(complaints, fmt.Sprintf("%s: time.%s: %s", s.line(sel), sel.Sel.Name, instead))
		}
		return true
	})
	return complaints
}

func goroutines(s source) []string {
	var complaints []string
	ast.Inspect(s.file, func(n ast.Node) bool {
		if _, ok := n.(*ast.GoStmt); ok {
			complaints = append(complaints, fmt.Sprintf("%s: goroutine: only engine/loop and resp start some", s.line(n)))
		}
		return true
	})
	return complaints
}

func concurrency(s source) []string {
	complaints := goroutines(s)
	for p := range s.imports() {
		// sync/atomic is allowed: counters that are read from outside neither wait nor order
		// anything.
		if p == "sync" || p == "context" {
			complaints = append(complaints, fmt.Sprintf("%s: imports %s: a turn waits for nothing; what does belongs into engine/loop", s.path, p))
		}
	}
	complain := func(n ast.Node, what string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s: only engine/loop is concurrent", s.line(n), what))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ChanType:
			complain(n, "channel")
		case *ast.SelectStmt:
			complain(n, "select")
		case *ast.SendStmt:
			complain(n, "send")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				complain(n, "receive")
			}
		}
		return true
	})
	return complaints
}

func inits(s source) []string {
	var complaints []string
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			complaints = append(complaints, fmt.Sprintf("%s: init: what has to happen is called by whoever needs it", s.line(f)))
		}
	}
	return complaints
}

func TestThePurityRulesSeeABreach(t *testing.T) {
	file := func(text string) source { return parse(t, "engine/x.go", "package engine\n"+text) }
	for _, name := range clock() {
		wantBreach(t, clockUse(file("import \"time\"\nvar _ = time."+name)), "time."+name)
	}
	wantBreach(t, clockUse(file("import clock \"time\"\nvar _ = clock.Now()")), "time.Now")
	if c := clockUse(file("import \"time\"\nfunc f(now time.Time) bool { return now.After(now.Add(time.Second)) }")); c != nil {
		t.Error(c)
	}
	sleepy := "package engine\nimport \"time\"\nvar _ = time.Sleep"
	wantBreach(t, naps(parse(t, "engine/x_test.go", sleepy)), "time.Sleep")
	if c := naps(parse(t, "engine/x_test.go", sleepy+"\nfunc f() { for f() { time.Sleep(1) } }")); len(c) != 1 {
		t.Errorf("a poll was taken for a nap, or a nap for a poll: %q", c)
	}
	if c := naps(parse(t, "engine/x_test.go", strings.Replace(sleepy, "import", "import _ \"testing/synctest\"\nimport", 1))); c != nil {
		t.Error(c)
	}
	for want, text := range map[string]string{
		"imports sync": "import \"sync\"\nvar _ sync.Mutex",
		"goroutine":    "func f() { go f() }",
		"channel":      "func f(chan int) {}",
		"select":       "func f() { select {} }",
		"send":         "func f() { c <- 1 }",
		"receive":      "func f() { <-c }",
	} {
		wantBreach(t, concurrency(file(text)), want)
	}
	wantBreach(t, inits(file("func init() {}")), "init")
	wantBreach(t, insides(file("func f() { c.order.Inside().HideRoom() }")), "Inside")
	if c := inits(file("type t struct{}\nfunc (t) init() {}")); c != nil {
		t.Error(c)
	}
	if !decides(parse(t, "engine/lease.go", "package engine")) || decides(parse(t, "engine/loop/loop.go", "package loop")) {
		t.Error("the engine decides, and what runs it does not")
	}
}

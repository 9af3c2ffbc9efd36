package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// functionLinesMax bounds the lines of a function; golangci-lint limits them to 70. A file is as long as its
// subject.
const functionLinesMax = 100

// A limit bounds a measure. What exceeds it is listed with its present number, which may only fall: a test
// fails that finds more, and one that finds the limit kept and a number listed.
type limit struct {
	of     string
	most   int
	listed map[string]int
}

// limits are the bounds of what a reader has to hold in mind: of a package its lines and what it imports of
// ours beside what lies below it, of a type its methods, of a room of the engine what it exports.
func limits() (lines, imports, methods, exports limit) {
	return limit{"lines without tests", 8000, map[string]int{"engine": 16_496, "commands": 13_892}},
		limit{"imports of ours", 12, map[string]int{"commands": 17, "internal/broker": 24}},
		limit{"methods", 120, map[string]int{"engine.core": 279, "engine.Tx": 161, "engine/dispatch.Order": 151}},
		limit{"exported names", 70, map[string]int{"engine/dispatch": 98, "engine/figures": 126}}
}

// check returns a complaint for each measure that exceeds its limit, and for each listed one that does not any more.
func (l limit) check(measured map[string]int) (complaints []string) {
	for what, n := range measured {
		switch most, is := l.listed[what]; {
		case is && n > most:
			complaints = append(complaints, fmt.Sprintf("%s: %d %s, at most %d, which may only fall: move something to a package below it", what, n, l.of, most))
		case is && n <= l.most:
			complaints = append(complaints, fmt.Sprintf("%s: %d %s are within the limit of %d: take it from the list", what, n, l.of, l.most))
		case !is && n > l.most:
			complaints = append(complaints, fmt.Sprintf("%s: %d %s, at most %d", what, n, l.of, l.most))
		}
	}
	return complaints
}

func TestPackagesAndTypesCanBeHeldInMind(t *testing.T) {
	lines, imports, methods, exports := limits()
	length, of, methodsOf, exported := map[string]int{}, map[string]map[string]bool{}, map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if s.test() || strings.HasPrefix(s.pkg(), "integration/") || strings.HasPrefix(s.pkg(), "adapters/") {
			continue
		}
		pkg := s.pkg()
		length[pkg] += s.set.File(s.file.Pos()).LineCount()
		if of[pkg] == nil {
			of[pkg] = map[string]bool{}
		}
		for p := range s.imports() {
			if ours, is := strings.CutPrefix(p, module+"/"); is && !strings.HasPrefix(ours, pkg+"/") {
				of[pkg][ours] = true
			}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				methodsOf[pkg+"."+receiver(f)]++
			}
		}
		if strings.HasPrefix(pkg, "engine/") && s.path != "engine/dispatch/inside.go" {
			exported[pkg] += exportsOf(s)
		}
	}
	imported := map[string]int{}
	for pkg, names := range of {
		imported[pkg] = len(names)
	}
	if length["engine"] == 0 || imported["engine"] == 0 || methodsOf["engine.core"] == 0 || exported["engine/dispatch"] == 0 {
		t.Error("the engine was not measured")
	}
	report(t, lines.check(length))
	report(t, imports.check(imported))
	report(t, methods.check(methodsOf))
	report(t, exports.check(exported))
}

// branchesMost bounds the ways through a function: one, and one for each condition, loop, case and logical operator.
const branchesMost = 25

// branchy lists the functions that have more: each is one flat table of cases.
func branchy() map[string]int {
	return map[string]int{
		"engine/dispatch.class.check": 32, "engine/dispatch.Order.checkLines": 27,
		"scripting.inClass": 30, "scripting.matcher.match": 26,
	}
}

func TestFunctionsHaveFewBranches(t *testing.T) {
	ways := map[string]int{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				name := s.pkg() + "." + f.Name.Name
				if f.Recv != nil {
					name = s.pkg() + "." + receiver(f) + "." + f.Name.Name
				}
				ways[name] = max(ways[name], branches(f.Body))
			}
		}
	}
	report(t, limit{"branches", branchesMost, branchy()}.check(ways))
}

// branches counts the ways through a body.
func branches(body ast.Node) int {
	n := 1
	ast.Inspect(body, func(x ast.Node) bool {
		switch x := x.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// receiver returns the name of the type that a method belongs to.
func receiver(f *ast.FuncDecl) string {
	x := f.Recv.List[0].Type
	for {
		switch of := x.(type) {
		case *ast.StarExpr:
			x = of.X
		case *ast.IndexExpr:
			x = of.X
		case *ast.IndexListExpr:
			x = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
}

// exportsOf counts the functions, methods and types of a file that other packages see.
func exportsOf(s source) (n int) {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				n++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if of, ok := spec.(*ast.TypeSpec); ok && of.Name.IsExported() {
					n++
				}
			}
		}
	}
	return n
}

func TestTheLimitsSeeBothSides(t *testing.T) {
	l := limit{"lines", 10, map[string]int{"large": 20}}
	for what, n := range map[string]int{"large": 21, "other": 11} {
		wantBreach(t, l.check(map[string]int{what: n}), what)
	}
	wantBreach(t, l.check(map[string]int{"large": 10}), "take it from the list")
	if c := l.check(map[string]int{"large": 20, "other": 10}); c != nil {
		t.Error(c)
	}
	methods := parse(t, "engine/x.go", "package engine\nfunc (c *core) F() {}\nfunc (l list[T]) g() {}\nfunc (Order) H() {}\nfunc K() {}\ntype Key struct{}")
	if n := exportsOf(methods); n != 3 {
		t.Errorf("%d exported names, want H, K and Key", n)
	}
	if f, ok := methods.file.Decls[1].(*ast.FuncDecl); !ok || receiver(f) != "list" {
		t.Error("the receiver of a generic type was not found")
	}
}

func TestFunctionsCanBeRead(t *testing.T) {
	for _, s := range sources(t) {
		report(t, size(s))
	}
}

// size checks the functions of all but tests: tables of cases are long and easy to read.
func size(s source) []string {
	if s.test() {
		return nil
	}
	var complaints []string
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; n > functionLinesMax {
			complaints = append(complaints, fmt.Sprintf("%s: %s has %d lines, at most %d", s.line(f), f.Name.Name, n, functionLinesMax))
		}
	}
	return complaints
}

func TestTheSizeRuleSeesBothSides(t *testing.T) {
	function := func(lines int) source {
		return parse(t, "engine/x.go", "package engine\nfunc f() {\n"+strings.Repeat("f()\n", lines-2)+"}\n")
	}
	if c := size(function(functionLinesMax)); c != nil {
		t.Error(c)
	}
	wantBreach(t, size(function(functionLinesMax+1)), "f has 101 lines")
}

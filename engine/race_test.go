//go:build !race

package engine

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Most tests of the engine drive a core step by step, in one goroutine: the race detector finds nothing
// there and takes several times as long. Their files have the build constraint !race. The tests in which
// goroutines meet, those of a running Engine, are in files without it, and so are their helpers:
//
//	go test ./engine          runs all tests
//	go test -race ./engine    runs those in which goroutines meet
func TestTheRaceDetectorWatchesTheFilesWithGoroutines(t *testing.T) {
	names, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	watched := 0
	for _, name := range names {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		switch tests, concurrent := contents(f); {
		case leftOut(f) && concurrent:
			t.Errorf("%s starts goroutines: its constraint !race hides them from the race detector", name)
		case !leftOut(f) && tests && !concurrent:
			t.Errorf("%s starts no goroutine: it needs the line //go:build !race", name)
		case concurrent:
			watched++
		}
	}
	if watched < 5 {
		t.Errorf("goroutines meet in %d of %d files", watched, len(names))
	}
}

// leftOut reports whether a file is not compiled under the race detector.
func leftOut(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if expr, err := constraint.Parse(c.Text); err == nil {
				return !expr.Eval(func(tag string) bool { return tag == "race" })
			}
		}
	}
	return false
}

// contents reports whether a file has tests, and whether it starts goroutines: by itself, or by running an
// Engine with one of the helpers bubble and leading.
func contents(f *ast.File) (tests, concurrent bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			tests = tests || strings.HasPrefix(n.Name.Name, "Test")
		case *ast.GoStmt:
			concurrent = true
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok {
				concurrent = concurrent || id.Name == "bubble" || id.Name == "leading"
			}
		}
		return true
	})
	return tests, concurrent
}

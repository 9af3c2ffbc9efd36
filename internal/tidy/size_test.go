package tidy

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// functionLinesMax bounds the lines of a function; golangci-lint limits them to 70. A file is as long as its
// subject.
const functionLinesMax = 100

// folderFilesMax bounds the sources of a folder, and in the packages of commands the tests, too, so
// that readers can find code by file name.
const folderFilesMax = 66

func counted(s source) bool {
	return !s.test() || slices.Contains(append(commandPackages(), "internal/broker/compat"), s.pkg())
}

func TestAFolderHasNoMoreFilesThanReadersFind(t *testing.T) {
	files := map[string]int{}
	for _, s := range sources(t) {
		if counted(s) {
			files[s.pkg()]++
		}
	}
	if files["commands"] == 0 {
		t.Error("no file of commands was looked at")
	}
	for pkg, n := range files {
		if n > folderFilesMax {
			t.Errorf("%s has %d files, at most %d: join those of one family", pkg, n, folderFilesMax)
		}
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

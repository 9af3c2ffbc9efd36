package tidy

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// Maximum lines of a test file, of any other file, and of a function; golangci-lint limits
// functions to 70.
const (
	fileLinesMax     = 700
	sourceLinesMax   = 450
	functionLinesMax = 100
)

// folderFilesMax bounds the sources of a folder, and in the packages of commands the tests, too, so
// that readers can find code by file name.
const folderFilesMax = 60

func counted(s source) bool {
	return !s.test() || slices.Contains(append(commandPackages(), "internal/compat"), s.pkg())
}

func TestFoldersAndSourcesAreRooms(t *testing.T) {
	files := map[string]int{}
	for _, s := range sources(t) {
		if counted(s) {
			files[s.pkg()]++
		}
		report(t, room(s))
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

// room checks the length of a source.
func room(s source) []string {
	if n := s.set.Position(s.file.FileEnd).Line; n > sourceLinesMax && !s.test() {
		return []string{fmt.Sprintf("%s: %d lines, at most %d", s.path, n, sourceLinesMax)}
	}
	return nil
}

func TestFilesAndFunctionsCanBeRead(t *testing.T) {
	for _, s := range sources(t) {
		report(t, size(s))
	}
}

// size also checks test files, but not their functions: tables of cases are long and easy to read.
func size(s source) []string {
	var complaints []string
	if n := s.set.Position(s.file.FileEnd).Line; n > fileLinesMax {
		complaints = append(complaints, fmt.Sprintf("%s: %d lines, at most %d: it holds more than one noun", s.path, n, fileLinesMax))
	}
	if s.test() {
		return complaints
	}
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
	file := func(lines int) source { return parse(t, "engine/x.go", "package engine"+strings.Repeat("\n", lines)) }
	if c := size(file(fileLinesMax)); c != nil {
		t.Error(c)
	}
	wantBreach(t, size(file(fileLinesMax+1)), "701 lines")
	if c := room(file(sourceLinesMax)); c != nil {
		t.Error(c)
	}
	wantBreach(t, room(file(sourceLinesMax+1)), "at most 450")
}

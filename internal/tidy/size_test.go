package tidy

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// These are where a smell becomes a failure. What we aim for is less: files of
// 500 lines, and functions of 70, which golangci-lint holds to.
const (
	fileLinesMax     = 700
	functionLinesMax = 100
)

// Packages in which a folder has at most so many files, and a source at most so many
// lines: a reader finds the room of a thing by the name of its file.
const (
	folderFilesMax = 50
	sourceLinesMax = 450
)

func heldToRooms(pkg string) bool {
	return slices.Contains(append(commandPackages(), "internal/compat"), pkg)
}

func TestFoldersAndSourcesAreRooms(t *testing.T) {
	files := map[string]int{}
	for _, s := range sources(t) {
		if heldToRooms(s.pkg()) {
			files[s.pkg()]++
			report(t, room(s))
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

// room holds a source to its lines.
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

// size looks at the files of tests as well, but not at their functions: a table
// of cases is long and easy to read.
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

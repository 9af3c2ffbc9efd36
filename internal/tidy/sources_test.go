package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/faisca/fila"

// source is one Go file of the module.
type source struct {
	path string // relative to the root of the module, with slashes
	set  *token.FileSet
	file *ast.File
}

// pkg is the directory of the file; "main" for the root.
func (s source) pkg() string {
	if dir := path.Dir(s.path); dir != "." {
		return dir
	}
	return "main"
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.set.Position(n.Pos()).Line)
}

// imports maps each import path to its name in the file.
func (s source) imports() map[string]string {
	all := map[string]string{}
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		all[p] = name
	}
	return all
}

// parse parses a text as a source.
func parse(t *testing.T, path, text string) source {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return source{path: path, set: set, file: file}
}

// sources returns all Go files of the module, regardless of build tags: rules hold for every build.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	root := root(t)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case d.IsDir() && skipped(rel):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(rel, ".go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		all = append(all, parse(t, rel, string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found %d Go files: this is not the module", len(all))
	}
	return all
}

// skipped reports whether a directory is not part of the module.
func skipped(dir string) bool {
	name := path.Base(dir)
	return dir != "." && strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" ||
		dir == "tools" || dir == "bin" || dir == "data" || dir == "dist" || dir == "site"
}

// root returns the directory of go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// report fails the test once for each complaint.
func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}

// wantBreach fails unless a rule has exactly one complaint about a text.
func wantBreach(t *testing.T, complaints []string, about string) {
	t.Helper()
	if len(complaints) != 1 || !strings.Contains(complaints[0], about) {
		t.Errorf("complaints are %q, want one about %s", complaints, about)
	}
}

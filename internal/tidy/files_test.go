package tidy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTheLicenceIsThere(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"GNU AFFERO GENERAL PUBLIC LICENSE", "Version 3, 19 November 2007", "END OF TERMS AND CONDITIONS"} {
		if !strings.Contains(string(text), part) {
			t.Errorf("LICENSE does not say %q", part)
		}
	}
}

// Paths of the machine on which something was written are meaningless elsewhere.
func TestNoFileNamesAMachine(t *testing.T) {
	for _, name := range tracked(t) {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, but not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		report(t, machinePaths(name, text))
	}
}

// machinePaths finds paths of a build machine. The patterns are assembled here so that this file
// does not match.
func machinePaths(name string, text []byte) []string {
	var complaints []string
	for _, p := range []string{"/wor" + "k/", "/tmp/" + "fila", "/roo" + "t/", "/hom" + "e/"} {
		for i, line := range bytes.Split(text, []byte("\n")) {
			at := bytes.Index(line, []byte(p))
			if at < 0 || at > 0 && insidePath(line[at-1]) {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s:%d: %s is a path of one machine", name, i+1, p))
		}
	}
	return complaints
}

// insidePath reports whether a slash after c continues a path, which is then relative and so not a
// path of a machine.
func insidePath(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-/~}*", c) >= 0
}

// tracked returns the files of the project: those that git tracks or would add, or, outside a
// checkout, the sources and documents.
func tracked(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err == nil && len(out) > 0 {
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	}
	var names []string
	err = filepath.WalkDir(root(t), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root(t), p)
		switch rel = filepath.ToSlash(rel); {
		case d.IsDir() && skipped(rel):
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains([]string{".go", ".md", ".cc", ".h", ".proto", ".yaml"}, path.Ext(rel)):
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestTheRuleAboutPathsSeesABreach(t *testing.T) {
	wantBreach(t, machinePaths("x.md", []byte("fine\nsee /wor"+"k/main/go.mod\n")), "x.md:2")
	wantBreach(t, machinePaths("x.md", []byte("(/tmp/"+"fila-data)")), "x.md:1")
	if c := machinePaths("x.md", []byte("example.org/net"+"/wor"+"k/y and ./wor"+"k/")); c != nil {
		t.Error(c)
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/faisca/fila/integration/harness"
	"github.com/faisca/fila/integration/kit"
	"github.com/faisca/fila/internal/testkit"
)

// demo runs the demo over a tree and returns its output and exit code.
func demo(t *testing.T, tree string, env ...string) (string, int) {
	t.Helper()
	program, err := harness.Build(t.Context(), "demo", "./integration/demo")
	if err != nil {
		t.Fatal(err)
	}
	out, code, err := harness.Run(t.Context(), env, program, "-tree", tree, "-bin", kit.Binary(t), "-workers", "3", "-timeout", (5 * testkit.Patience()).String())
	if err != nil {
		t.Fatal(err)
	}
	return out, code
}

// library creates a small tree with every kind of entry.
func library(t *testing.T) (dir string, files int) {
	t.Helper()
	dir = t.TempDir()
	put := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files++
	}
	count := 400
	if testing.Short() {
		count = 120
	}
	for i := range count {
		put(filepath.Join(dir, fmt.Sprintf("package-%d", i%20), "deeper", fmt.Sprintf("file %d", i)), strings.Repeat("x", i*100))
	}
	put(filepath.Join(dir, "of no package"), "")
	put(filepath.Join(dir, "package-1")+"/a\nname\\with \xff all", "sorts of bytes")
	for link, target := range map[string]string{
		"to-a-file": "deeper/file 1", "to-nothing": "nosuch", "to-a-directory": "..", "to-itself": "to-itself",
	} {
		if err := os.Symlink(target, filepath.Join(dir, "package-1", link)); err != nil {
			t.Fatal(err)
		}
	}
	files++ // the first of these is a file
	if err := syscall.Mkfifo(filepath.Join(dir, "package-1", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, files
}

func TestDemoAccountsForEveryFile(t *testing.T) {
	tree, files := library(t)
	out, code := demo(t, tree)
	if code != 0 {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	for row, want := range map[string]string{
		"files": fmt.Sprint(files), "as sha256sum says": fmt.Sprint(files), `packages \(fairness keys\)`: "21", "other entries, left out": "4",
		"kills of the broker": "2", "missing": "0", "different": "0", "unreadable or gone": "0", "repeats": `\d+`,
	} {
		if !regexp.MustCompile(`(?m)^` + row + ` +` + want + `$`).MatchString(out) {
			t.Errorf("%s is not %s", row, want)
		}
	}
	if !strings.Contains(out, "verdict: every file is accounted for") || strings.Contains(out, "\x1b") || strings.Contains(out, "\r") {
		t.Error("no verdict, or a bar where there is no terminal")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestDemoSeesABrokerThatLosesMessages tests the test: with a broker that keeps nothing, the demo
// must fail.
func TestDemoSeesABrokerThatLosesMessages(t *testing.T) {
	tree, _ := library(t)
	if out, code := demo(t, tree, "FILA_STORAGE__ENGINE=memory"); code != 1 || strings.Contains(out, "every file is accounted for") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

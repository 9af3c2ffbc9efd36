package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build builds a program of the module for a test and returns its file. pkg is its package from the
// root of the module, "." for the broker; flags are those of go build. The file is the same on each
// call from one directory, so the Go tool leaves it alone while it is up to date; packages whose
// tests run at the same time have files of their own.
func Build(ctx context.Context, name, pkg string, flags ...string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	root, err := moduleRoot(dir)
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, ".cache", "test", filepath.Base(dir), name)
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"build", "-o", file}, flags...), pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return file, nil
}

// moduleRoot returns the directory of Fila's go.mod, from one below it.
func moduleRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New(dir + " is not within the module")
		}
	}
}

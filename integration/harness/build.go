package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// binaryVariable names a broker that the tests run instead of the one that they build, such as one
// built with other tags. It is relative to the root of the module.
const binaryVariable = "TEST_BROKER"

// Binary returns the broker to be tested: the file that TEST_BROKER names, else one that it builds.
func Binary(ctx context.Context) (string, error) {
	file := os.Getenv(binaryVariable)
	if file == "" {
		return Build(ctx, "fila", ".")
	}
	if !filepath.IsAbs(file) {
		root, err := moduleRoot(".")
		if err != nil {
			return "", err
		}
		file = filepath.Join(root, file)
	}
	if _, err := os.Stat(file); err != nil {
		return "", fmt.Errorf("%s: %w; build it first", binaryVariable, err)
	}
	return file, nil
}

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
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New(dir + " is not within the module")
		}
	}
}

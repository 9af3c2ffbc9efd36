package harness

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// binaryVariable names the environment variable with the broker to test, such as one built with
// other tags. The path is relative to the root of the module.
const binaryVariable = "TEST_BROKER"

// Binary returns the broker to test: the file named by TEST_BROKER, or one that it builds.
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

// Plain reports whether a broker was built with the tag plain, see internal/tuning.
func Plain(binary string) (bool, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "plain")
	}), nil
}

// Build builds a program of the module and returns its path. pkg is the package relative to the
// root of the module, "." for the broker; flags are passed to go build. Repeated calls from one
// directory return the same path, so the Go tool skips builds that are up to date. Packages tested
// concurrently use different paths.
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
	cmd.Dir, cmd.Env = root, os.Environ()
	if pkg == "." { // with its store, also where the tests are built without cgo
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return file, nil
}

// module is the first line of Fila's go.mod. Some tests are modules of their own below it.
const module = "module github.com/faisca/fila\n"

// moduleRoot returns the directory of Fila's go.mod, given a directory below it.
func moduleRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if text, err := os.ReadFile(filepath.Join(at, "go.mod")); err == nil && strings.HasPrefix(string(text), module) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New(dir + " is not inside the module")
		}
	}
}

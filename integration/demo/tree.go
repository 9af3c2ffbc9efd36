package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the work: the files below a directory.
type tree struct {
	files    []string // each once, sorted
	packages map[string]int
	skipped  int // entries that are no files: links to directories or to nothing, pipes, what cannot be looked at
}

// walk finds the files. A link to a file is a file like any other, as sha256sum
// has it; a link to a directory is not followed, it may lead round in a circle.
func walk(dir string) (*tree, error) {
	t := &tree{packages: map[string]int{}}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			t.skipped++
			return nil // a directory that is closed to us, or gone by now
		}
		if e.IsDir() {
			return nil
		}
		// A pipe would keep its reader waiting for ever: only files are work.
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			t.skipped++
			return nil //nolint:nilerr // a link to nothing, or gone by now
		}
		t.files = append(t.files, path)
		t.packages[pkg(dir, path)]++
		return nil
	})
	if err == nil && len(t.files) == 0 {
		err = fmt.Errorf("%s holds no files", dir)
	}
	slices.Sort(t.files)
	return t, err
}

// has tells whether path is one of the files.
func (t *tree) has(path string) bool {
	_, found := slices.BinarySearch(t.files, path)
	return found
}

// pkg is the first directory below dir on the way to path: the fairness key.
func pkg(dir, path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, filepath.Clean(dir)), string(filepath.Separator))
	first, _, deeper := strings.Cut(rest, string(filepath.Separator))
	if !deeper {
		return "." // a file of the directory itself
	}
	return first
}

// sha256sums is what the real sha256sum says of the files. What it cannot read is
// not in the answer.
func sha256sums(ctx context.Context, files []string) (map[string]string, error) {
	const batch = 500 // so many paths fit into a command line
	sums := make(map[string]string, len(files))
	for len(files) > 0 {
		n := min(batch, len(files))
		// With -z nothing in a path is escaped. It ends with 1 when a file could not
		// be read, and has answered for the others all the same.
		out, err := exec.CommandContext(ctx, "sha256sum", append([]string{"-z", "--"}, files[:n]...)...).Output()
		if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			return nil, fmt.Errorf("sha256sum: %w", err)
		}
		for line := range strings.SplitSeq(string(out), "\x00") {
			if sum, path, ok := strings.Cut(line, "  "); ok {
				sums[path] = sum
			}
		}
		files = files[n:]
	}
	return sums, nil
}

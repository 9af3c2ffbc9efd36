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
	files    []string // without duplicates, sorted
	packages map[string]int
	skipped  int // entries that are not files: links to directories, broken links, pipes, inaccessible entries
}

// walk finds the files. A link to a file counts as a file, as for sha256sum; links to directories
// are not followed, since they may form a cycle.
func walk(dir string) (*tree, error) {
	t := &tree{packages: map[string]int{}}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			if path == dir {
				return err
			}
			t.skipped++
			return nil // a directory without permission, or removed in the meantime
		}
		if e.IsDir() {
			return nil
		}
		// Reading a pipe could block forever, so only regular files are work.
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			t.skipped++
			return nil //nolint:nilerr // a broken link, or removed in the meantime
		}
		t.files = append(t.files, path)
		t.packages[pkg(dir, path)]++
		return nil
	})
	if err == nil && len(t.files) == 0 {
		err = fmt.Errorf("no files below %s", dir)
	}
	slices.Sort(t.files)
	return t, err
}

// has reports whether path is one of the files.
func (t *tree) has(path string) bool {
	_, found := slices.BinarySearch(t.files, path)
	return found
}

// pkg returns the first directory of path below dir: the fairness key.
func pkg(dir, path string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(path, filepath.Clean(dir)), string(filepath.Separator))
	first, _, deeper := strings.Cut(rest, string(filepath.Separator))
	if !deeper {
		return "." // a file directly in dir
	}
	return first
}

// sha256sums returns the output of sha256sum by file, without files that it cannot read.
func sha256sums(ctx context.Context, files []string) (map[string]string, error) {
	const batch = 500 // paths per command line
	sums := make(map[string]string, len(files))
	for len(files) > 0 {
		n := min(batch, len(files))
		// With -z paths are not escaped. An exit code of 1 means that a file could not be read; the
		// sums of the others are still printed.
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

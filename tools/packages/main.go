// Packages makes the packages of the adapters: a wheel and an sdist, npm tarballs, a gem, an archive for Composer, and
// a directory that serves Go modules as a GOPROXY.
//
//	packages [-o DIR] [ROOT]
//
// What a folder below adapters becomes is told by its manifest: pyproject.toml, package.json, *.gemspec, composer.json or
// go.mod. Manifests have the version 0.0.0; packages have that of the release, see version.go. A package contains the
// files of its folder that git does not ignore, without its tests. The same commit gives the same bytes with the same
// versions of setuptools, npm and RubyGems: files have the time of the commit, or SOURCE_DATE_EPOCH.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	to := flag.String("o", "dist/adapters", "the directory of the packages; what it contains is removed")
	flag.Parse()
	if err := build(context.Background(), cmp.Or(flag.Arg(0), "."), *to); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

// sums is the file with the SHA-256 of each package.
const sums = "SHA256SUMS"

// build makes all packages of the sources in root.
func build(ctx context.Context, root, to string) error {
	defer syscall.Umask(syscall.Umask(0o022)) // tools write the modes of files into packages
	rel, err := released(ctx, root)
	if err != nil {
		return err
	}
	if err := empty(to); err != nil {
		return err
	}
	to, err = filepath.Abs(to)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "packages")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	manifests, err := filepath.Glob(filepath.Join(root, "adapters", "*", "*"))
	if err != nil {
		return err
	}
	p := &packer{release: rel, root: root, to: to, work: work}
	made := 0
	for _, manifest := range manifests {
		pack := p.of(filepath.Base(manifest))
		if pack == nil {
			continue
		}
		name := filepath.Base(filepath.Dir(manifest))
		if err := pack(ctx, name); err != nil {
			return fmt.Errorf("adapters/%s: %w", name, err)
		}
		made++
	}
	if made == 0 {
		return fmt.Errorf("%s has no adapters: name the root of the repository", root)
	}
	return sum(to)
}

// of returns what packs a folder with this manifest; nil for a file that is none.
func (p *packer) of(manifest string) func(context.Context, string) error {
	switch {
	case manifest == "pyproject.toml":
		return p.packPython
	case manifest == "package.json":
		return p.packNpm
	case strings.HasSuffix(manifest, ".gemspec"):
		return p.packGem
	case manifest == "composer.json":
		return p.packComposer
	case manifest == "go.mod":
		return p.packModule
	}
	return nil
}

// empty makes an empty directory of one that has packages, or of none.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(dir, sums)); err != nil {
			return fmt.Errorf("%s contains something else than packages: remove it, or name another directory with -o", dir)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// One whose build has failed may be emptied as well.
	return os.WriteFile(filepath.Join(dir, sums), nil, 0o644)
}

// sum writes the sums of all files in a directory.
func sum(dir string) error {
	var lines []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == sums {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(strings.Join(lines, "")), 0o644)
}

// packer makes packages.
type packer struct {
	release

	root, to, work string
}

// stage copies the files of an adapter into a folder of their own. Tools leave files behind.
func (p *packer) stage(ctx context.Context, name string, tests bool) (string, error) {
	files, err := p.files(ctx, name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.work, name)
	for _, file := range files {
		if !tests && strings.HasPrefix(file, "tests/") {
			continue
		}
		if err := p.put(filepath.Join(p.root, "adapters", name, file), filepath.Join(dir, file)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// files returns the files of an adapter that git does not ignore, relative to its folder. Without git these are all but
// what tools leave behind.
func (p *packer) files(ctx context.Context, name string) ([]string, error) {
	dir := filepath.Join(p.root, "adapters", name)
	cmd := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	if out, err := cmd.Output(); err == nil {
		files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
		slices.Sort(files)
		return slices.Compact(files), nil
	}
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "node_modules" || d.Name() == "__pycache__":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		file, err := filepath.Rel(dir, path)
		files = append(files, filepath.ToSlash(file))
		return err
	})
	return files, err
}

// put copies a file, with the time of the release. One that is deleted and not committed is left out.
func (p *packer) put(from, to string) error {
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file: packages cannot contain it", from)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(to, data, mode); err != nil {
		return err
	}
	return os.Chtimes(to, p.time, p.time)
}

// edit changes a file that was staged.
func (p *packer) edit(change func(string) string, parts ...string) error {
	name := filepath.Join(parts...)
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, []byte(change(string(data))), 0o644); err != nil {
		return err
	}
	return os.Chtimes(name, p.time, p.time)
}

// unreleased is the version in the sources.
const unreleased = `"0.0.0"`

// version puts the version of a package into a file that was staged.
func (p *packer) version(version string, parts ...string) error {
	named := false
	err := p.edit(func(text string) string {
		named = strings.Contains(text, unreleased)
		return strings.ReplaceAll(text, unreleased, `"`+version+`"`)
	}, parts...)
	if err == nil && !named {
		return fmt.Errorf("%s does not have the version 0.0.0, in whose place that of the release is put", filepath.Join(parts[1:]...))
	}
	return err
}

// link is a relative link of a document.
var link = regexp.MustCompile(`\]\(([\w./-]+)(#[\w-]+)?\)`)

// linked makes the relative links of a README absolute: the pages of registries have no files beside it.
func (p *packer) linked(name string) func(string) string {
	return func(text string) string {
		return link.ReplaceAllStringFunc(text, func(s string) string {
			part := link.FindStringSubmatch(s)
			target := filepath.ToSlash(filepath.Join("adapters", name, part[1]))
			return "](https://github.com/faisca/fila/blob/" + p.ref + "/" + target + part[2] + ")"
		})
	}
}

// page stages an adapter whose README is the page of a registry.
func (p *packer) page(ctx context.Context, name string) (string, error) {
	dir, err := p.stage(ctx, name, false)
	if err != nil {
		return "", err
	}
	return dir, p.edit(p.linked(name), dir, "README.md")
}

// run runs a tool that makes a package.
func (p *packer) run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", p.time.Unix()), "TZ=UTC", "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

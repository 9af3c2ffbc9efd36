package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// pythonProgram has the build backend make both packages, as pip and build do. It is Debian's interpreter, which has
// Debian's setuptools.
const (
	pythonProgram = "/usr/bin/python3"
	pythonBuild   = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
)

func (p *packer) packPython(ctx context.Context, name string) error {
	dir, err := p.page(ctx, name)
	if err != nil {
		return err
	}
	if err := p.version(p.python(), dir, "pyproject.toml"); err != nil {
		return err
	}
	modules, err := filepath.Glob(filepath.Join(dir, "*", "__init__.py"))
	if err != nil || len(modules) != 1 {
		return fmt.Errorf("it has the packages %q, want one (%w)", modules, err)
	}
	if err := p.version(p.python(), filepath.Dir(modules[0]), "__init__.py"); err != nil {
		return err
	}
	title := filepath.Base(filepath.Dir(modules[0])) + "-" + p.python()
	out := filepath.Join(p.work, "python-"+name)
	if err := os.Mkdir(out, 0o700); err != nil {
		return err
	}
	if err := p.run(ctx, dir, pythonProgram, "-c", pythonBuild, out); err != nil {
		return fmt.Errorf("%w\nmake setup-tests installs setuptools and wheel; it takes setuptools 61", err)
	}
	made, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, file := range made {
		data, err := os.ReadFile(filepath.Join(out, file.Name()))
		if err != nil {
			return err
		}
		to := file.Name()
		if strings.HasSuffix(to, ".tar.gz") {
			to = title + ".tar.gz"
			if data, err = p.repacked(data, title); err != nil {
				return err
			}
		}
		if err := p.keep(data, to); err != nil {
			return err
		}
	}
	return nil
}

// keep writes a package.
func (p *packer) keep(data []byte, name ...string) error {
	file := filepath.Join(append([]string{p.to}, name...)...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// repacked returns an archive with its files in order, in a folder of this name, and without owners and times of this
// machine: setuptools heeds SOURCE_DATE_EPOCH in wheels alone, and before 69.3 names an sdist otherwise than PyPI does.
func (p *packer) repacked(archive []byte, title string) ([]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	type entry struct {
		tar.Header

		data []byte
	}
	var entries []entry
	in := tar.NewReader(unzipped)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, err
		}
		mode := int64(0o644)
		if h.FileInfo().Mode()&0o100 != 0 {
			mode = 0o755
		}
		_, inside, _ := strings.Cut(h.Name, "/")
		entries = append(entries, entry{tar.Header{Typeflag: h.Typeflag, Name: title + "/" + inside, Size: h.Size, Mode: mode, ModTime: p.time, Format: tar.FormatPAX}, data})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	var buf bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(zipped)
	for i := range entries {
		if err := out.WriteHeader(&entries[i].Header); err != nil {
			return nil, err
		}
		if _, err := out.Write(entries[i].data); err != nil {
			return nil, err
		}
	}
	err = errors.Join(out.Close(), zipped.Close())
	return buf.Bytes(), err
}

func (p *packer) packNpm(ctx context.Context, name string) error {
	dir, err := p.page(ctx, name)
	if err != nil {
		return err
	}
	if err := p.version(p.npm(), dir, "package.json"); err != nil {
		return err
	}
	return p.run(ctx, dir, "npm", "pack", "--ignore-scripts", "--loglevel=error", "--pack-destination", p.to)
}

func (p *packer) packGem(ctx context.Context, name string) error {
	dir, err := p.page(ctx, name)
	if err != nil {
		return err
	}
	specs, err := filepath.Glob(filepath.Join(dir, "*.gemspec"))
	if err != nil || len(specs) != 1 {
		return fmt.Errorf("it has the specifications %q, want one (%w)", specs, err)
	}
	if err := p.version(p.gem(), dir, filepath.Base(specs[0])); err != nil {
		return err
	}
	gem := strings.TrimSuffix(filepath.Base(specs[0]), ".gemspec") + "-" + p.gem() + ".gem"
	return p.run(ctx, dir, "gem", "build", filepath.Base(specs[0]), "--output", filepath.Join(p.to, gem))
}

// composer makes an archive for a repository of type artifact. There the version is in composer.json; Packagist has
// it from the tag.
func (p *packer) packComposer(ctx context.Context, name string) error {
	dir, err := p.page(ctx, name)
	if err != nil {
		return err
	}
	var title string
	err = p.edit(func(text string) string {
		first, rest, _ := strings.Cut(text, "\n")
		second, rest, _ := strings.Cut(rest, "\n")
		_, title, _ = strings.Cut(second, `"name": "`)
		title = strings.TrimSuffix(title, `",`)
		return first + "\n" + second + "\n    \"version\": \"" + p.composer() + "\",\n" + rest
	}, dir, "composer.json")
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	out := zip.NewWriter(&buf)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: filepath.ToSlash(inside), Method: zip.Deflate, Modified: p.time}
		h.SetMode(0o644)
		w, err := out.CreateHeader(h)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return p.keep(buf.Bytes(), strings.ReplaceAll(title, "/", "-")+"-"+p.composer()+".zip")
}

// module makes what a proxy serves of a module. The archive has the bytes that the Go command makes of the tag.
func (p *packer) packModule(ctx context.Context, name string) error {
	dir, err := p.stage(ctx, name, true)
	if err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	m := module.Version{Path: modfile.ModulePath(mod), Version: p.module()}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := modzip.CreateFromDir(&archive, m, dir); err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    string
	}{m.Version, p.time.Format("2006-01-02T15:04:05Z")})
	if err != nil {
		return err
	}
	list := m.Version + "\n"
	if p.commit != "" {
		list = "" // a list has no pseudo-versions: @latest names it
	}
	for file, data := range map[string][]byte{
		"@latest": info, "@v/list": []byte(list),
		"@v/" + m.Version + ".info": info, "@v/" + m.Version + ".mod": mod, "@v/" + m.Version + ".zip": archive.Bytes(),
	} {
		if err := p.keep(data, "goproxy", filepath.FromSlash(escaped), file); err != nil {
			return err
		}
	}
	return nil
}

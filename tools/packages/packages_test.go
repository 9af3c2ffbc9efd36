package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the repository.
const root = "../.."

// TestTwoBuildsGiveTheSameBytes builds the packages in two places, with other temporary folders, and looks into those of the first build.
func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	for _, tool := range []string{pythonProgram, "npm", "gem"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%v: make setup-tests installs it", err)
		}
	}
	old := exec.CommandContext(t.Context(), pythonProgram, "-c", "import setuptools; assert int(setuptools.__version__.split('.')[0]) >= 61, setuptools.__version__")
	if out, err := old.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "" && bytes.Contains(out, []byte("AssertionError")) {
			t.Skipf("left out: it needs setuptools 61\n%s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	if err := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Run(); err != nil {
		t.Setenv("SOURCE_DATE_EPOCH", "1764425870") // sources without git
	}
	first, second := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for _, to := range []string{first, second} {
		t.Setenv("TMPDIR", t.TempDir())
		before := syscall.Umask(0o077)
		err := build(t.Context(), root, to)
		syscall.Umask(before)
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := read(t, first, sums), read(t, second, sums)
	if !bytes.Equal(one, two) {
		t.Errorf("two builds differ:\n%s\n%s", one, two)
	}
	rel, err := released(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("contents", func(t *testing.T) { contents(t, first, rel) })
}

// holds is a package: the file, some of the files in it, and what others say.
type holds struct {
	name string
	has  []string
	says map[string][]string
}

// contents looks into the packages.
func contents(t *testing.T, dir string, rel release) {
	t.Helper()
	py, js, gem, php, mod := rel.python(), rel.npm(), rel.gem(), rel.composer(), rel.module()
	node := []string{`"version": "` + js + `"`, `"license": "Apache-2.0"`, `"keywords": [`, `"repository": {`, `"node": ">=18"`, `"types": "index.d.ts"`}
	python := []string{"\nVersion: " + py + "\n", "\nLicense: Apache-2.0\n", "\nKeywords: ", "\nProject-URL: Repository, https://", "\nRequires-Python: >=3.8\n", "\nDescription-Content-Type: text/markdown\n", "\n# Fila for "}
	all := []holds{
		{"fila_worker-" + py + "-py3-none-any.whl", []string{"fila_worker/__init__.py", "fila_worker/py.typed", "LICENSE"},
			map[string][]string{"fila_worker-" + py + ".dist-info/METADATA": python, "fila_worker/__init__.py": {`__version__ = "` + py + `"`}}},
		{"celery_fila-" + py + "-py3-none-any.whl", []string{"celery_fila/transport.py", "celery_fila/py.typed", "LICENSE"},
			map[string][]string{"celery_fila-" + py + ".dist-info/METADATA": python, "celery_fila/__init__.py": {`__version__ = "` + py + `"`}}},
		{"fila_worker-" + py + ".tar.gz", []string{"pyproject.toml", "LICENSE", "fila_worker/py.typed"}, map[string][]string{"PKG-INFO": python}},
		{"celery_fila-" + py + ".tar.gz", []string{"pyproject.toml", "LICENSE", "celery_fila/py.typed"}, map[string][]string{"PKG-INFO": python}},
		{"fila-worker-" + js + ".tgz", []string{"index.js", "index.d.ts", "LICENSE", "README.md"}, map[string][]string{"package.json": node}},
		{"fila-nestjs-" + js + ".tgz", []string{"index.js", "index.d.ts", "LICENSE", "README.md"}, map[string][]string{"package.json": append(node, `"fila-worker": "`+js+`"`)}},
		{"fila-activejob-" + gem + ".gem", []string{"lib/fila-activejob.rb", "exe/fila-activejob", "LICENSE", "README.md"},
			map[string][]string{"metadata": {"version: " + gem + "\n", "- Apache-2.0\n", "source_code_uri: https://", "version: '3.0'\n"}}},
		{"fila-messenger-" + php + ".zip", []string{"src/FilaTransport.php", "LICENSE", "README.md"},
			map[string][]string{"composer.json": {`"version": "` + php + `"`, `"license": "Apache-2.0"`, `"keywords": [`, `"source": "https://`, `"php": ">=8.1"`}}},
	}
	for _, name := range []string{"go", "watermill", "gocloud", "sqs", "postgres"} {
		all = append(all, holds{"goproxy/github.com/faisca/fila/adapters/" + name + "/@v/" + mod + ".zip", []string{"go.mod", "go.sum", "README.md"},
			map[string][]string{"LICENSE": {"Apache License"}, "go.mod": {"module github.com/faisca/fila/adapters/" + name + "\n"}}})
	}
	for _, h := range all {
		t.Run(path.Base(h.name), func(t *testing.T) {
			files := unpacked(t, read(t, dir, h.name), h.name)
			for name, parts := range h.says {
				for _, part := range parts {
					if !strings.Contains(files[name], part) {
						t.Errorf("%s does not say %q:\n%.1500s", name, part, files[name])
					}
				}
			}
			goes := strings.HasPrefix(h.name, "goproxy/")
			for name, text := range files {
				if !goes && strings.HasPrefix(name, "tests/") || strings.Contains(name, "node_modules") {
					t.Errorf("it has %s", name)
				}
				document := strings.HasSuffix(name, "README.md") || strings.HasSuffix(name, "METADATA") || strings.HasSuffix(name, "PKG-INFO")
				if s := link.FindString(text); document && !goes && s != "" {
					t.Errorf("%s has the relative link %s, which leads nowhere on the page of a registry", name, s)
				}
				if document && strings.Contains(text, unreleased) {
					t.Errorf("%s names %s", name, unreleased)
				}
			}
			for _, want := range h.has { // the licence of a wheel is in a folder of its metadata
				if !slices.ContainsFunc(slices.Collect(maps.Keys(files)), func(name string) bool {
					return name == want || want == "LICENSE" && strings.HasSuffix(name, "/"+want)
				}) {
					t.Errorf("it lacks %s", want)
				}
			}
		})
	}
}

// unpacked returns the texts of the files in a package, without the folder that all of them are in.
func unpacked(t *testing.T, data []byte, name string) map[string]string {
	t.Helper()
	files := map[string]string{}
	switch {
	case strings.HasSuffix(name, ".zip"), strings.HasSuffix(name, ".whl"):
		in, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range in.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			_, inside, module := strings.Cut(f.Name, "@")
			if _, rest, ok := strings.Cut(inside, "/"); module && ok {
				files[rest] = string(text)
			} else {
				files[f.Name] = string(text)
			}
		}
	case strings.HasSuffix(name, ".gem"):
		for part, text := range untarred(t, data, "") {
			switch part {
			case "metadata.gz":
				files["metadata"] = gunzipped(t, text)
			case "data.tar.gz":
				maps.Copy(files, untarred(t, []byte(gunzipped(t, text)), ""))
			}
		}
	case strings.HasSuffix(name, ".tgz"):
		files = untarred(t, []byte(gunzipped(t, string(data))), "package/")
	default:
		files = untarred(t, []byte(gunzipped(t, string(data))), strings.TrimSuffix(name, ".tar.gz")+"/")
	}
	return files
}

func gunzipped(t *testing.T, data string) string {
	t.Helper()
	r, err := gzip.NewReader(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func untarred(t *testing.T, data []byte, prefix string) map[string]string {
	t.Helper()
	files := map[string]string{}
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			files[strings.TrimPrefix(h.Name, prefix)] = string(text)
		}
	}
}

func read(t *testing.T, name ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The Go command takes the licence of the repository, which is another one, for a module that has none.
func TestEachAdapterHasItsLicence(t *testing.T) {
	want := read(t, root, "adapters", "LICENSE")
	manifests, err := filepath.Glob(filepath.Join(root, "adapters", "*", "README.md"))
	if err != nil || len(manifests) < 10 {
		t.Fatalf("there are the adapters %q, %v", manifests, err)
	}
	for _, m := range manifests {
		if !bytes.Equal(read(t, filepath.Dir(m), "LICENSE"), want) {
			t.Errorf("%s/LICENSE differs from adapters/LICENSE", filepath.Dir(m))
		}
	}
}

func TestAVersionIsWrittenAsItsRegistryOrdersIt(t *testing.T) {
	at := time.Date(2026, 11, 29, 14, 37, 50, 0, time.UTC)
	for _, c := range []struct {
		rel  release
		want []string
	}{
		{release{number: "0.1.1", time: at}, []string{"0.1.1", "0.1.1", "0.1.1", "0.1.1", "v0.1.1"}},
		{release{number: "0.1.1", candidate: "2", time: at}, []string{"0.1.1rc2", "0.1.1-rc.2", "0.1.1.rc.2", "0.1.1-RC2", "v0.1.1-rc.2"}},
		{release{number: "0.1.1", commit: "f65ff01e1e0712345678", time: at}, []string{
			"0.1.1.dev20261129143750", "0.1.1-dev.20261129143750", "0.1.1.dev.20261129143750", "0.1.1-dev", "v0.1.1-0.20261129143750-f65ff01e1e07",
		}},
	} {
		for i, got := range []string{c.rel.python(), c.rel.npm(), c.rel.gem(), c.rel.composer(), c.rel.module()} {
			if got != c.want[i] {
				t.Errorf("%+v: %s, want %s", c.rel, got, c.want[i])
			}
		}
	}
}

// Of a source archive, the time is to be named, and what tools leave behind is left out.
func TestSourcesWithoutGitArePacked(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "x") // it is put back
	if err := os.Unsetenv("SOURCE_DATE_EPOCH"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cli/version.go": "package cli\n\nconst next = \"0.3.0\"\n", "adapters/go/go.mod": "module m\n",
		"adapters/go/__pycache__/a.pyc": "", "adapters/go/tests/node_modules/a/b": "",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := released(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "set SOURCE_DATE_EPOCH") {
		t.Errorf("without a time: %v", err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	rel, err := released(t.Context(), dir)
	if err != nil || rel.python() != "0.3.0.dev20231114221320" || rel.ref != "main" {
		t.Errorf("it is %+v, %v", rel, err)
	}
	files, err := (&packer{root: dir}).files(t.Context(), "go")
	if err != nil || !slices.Equal(files, []string{"go.mod"}) {
		t.Errorf("files are %q, %v", files, err)
	}
}

func TestADirectoryWithOtherFilesIsNotEmptied(t *testing.T) {
	dir := t.TempDir()
	if err := empty(dir); err != nil {
		t.Fatal(err)
	}
	if err := empty(dir); err != nil {
		t.Fatalf("one whose build has failed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, sums)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := empty(dir); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("emptied it: %v", err)
	}
}

func TestRelativeLinksOfAPageBecomeAbsolute(t *testing.T) {
	p := &packer{release: release{ref: "v0.1.1"}}
	got := p.linked("node")("[a](../nestjs/README.md) [b](../../docs/README.md#how-to-guides) [c](https://example.org/d) [e](#f)")
	at := "https://github.com/faisca/fila/blob/v0.1.1/"
	want := "[a](" + at + "adapters/nestjs/README.md) [b](" + at + "docs/README.md#how-to-guides) [c](https://example.org/d) [e](#f)"
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

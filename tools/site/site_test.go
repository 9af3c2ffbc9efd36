package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// d keeps the names of pages that are only here apart from those of the project.
const d = "docs/"

// project writes files into a directory, and returns it.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func documents() map[string]string {
	return map[string]string{
		"README.md":          "# P\n\n[docs](docs/README.md) ![x](docs/x.svg) [s](a.go) [web](https://example.org/a.md)\n",
		"a.go":               "package a // <b>\n",
		"docs/README.md":     "# Documents\n\n[not in a list](how-to/b.md)\n\n## How\n\n- [b](how-to/b.md#one-two)\n",
		"docs/x.svg":         "<svg/>",
		d + "how-to/b.md":    "# Do `b`\n\n## One, two\n\nText of [the file](../../deploy/).\n\n```sh\nrun it\n```\n\n## One, two\n\n| a |\n|---|\n| cell |\n\n```console\n$ run <it>\nran\n```\n\n```text\n│─►\n```\n\n| | |\n|---|---|\n| no | head |\n",
		"deploy/c.yaml":      "kind: C\n",
		"docs/llms.txt":      "# P\n\n- [b](how-to/b.md)\n- [P](../README.md)\n",
		"docs/llms-full.txt": "# P\n\n- [b](how-to/b.md)\n\n<!-- b -->\n\n- [c](c.md)\n",
	}
}

func TestDocumentsSourcesAndFoldersBecomePages(t *testing.T) {
	s, err := collect(project(t, documents()))
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "site")
	if err := s.write(out); err != nil {
		t.Fatal(err)
	}
	for file, parts := range map[string][]string{
		"index.html":         {`href="docs/index.html"`, `src="docs/x.svg"`, `href="a.go.html"`, `href="https://example.org/a.md"`, `src="site.js"`},
		"a.go.html":          {`<span class="kn">package</span>`, `// &lt;b&gt;`},
		"docs/how-to/b.html": {`<span class="gp">$ </span><span class="command">run &lt;it&gt;</span>`, `class="drawing" style="--columns:3"`, `<aside`, `rel="prev" href="../index.html"`, "<table>\n<tbody>", `<h2 id="one-two">`, `<h2 id="one-two-1">`, `href="../../deploy/index.html"`, `href="../index.html"`, `aria-current="page">Do b</a>`, `src="../../site.js"`, "<td>cell</td>"},
		"deploy/index.html":  {`href="c.yaml.html"`},
		"deploy/c.yaml.html": {`<span class="nt">kind</span>`},
		"docs/x.svg":         {"<svg/>"},
		d + "how-to/b.md":    {"# Do `b`"},
		"llms.txt":           {"](" + d + "how-to/b.md)", "](README.md)"},
		"llms-full.txt":      {"](" + d + "how-to/b.md)", "- [c](c.md)"},
		"search.js":          {`["docs/how-to/b.html","Do b"]`, `,"one-two","One, two","Text of the file. run it"]`, `,"one-two-1","One, two","a cell $ run \u003cit\u003e ran │─► no head"]`},
	} {
		text, err := os.ReadFile(filepath.Join(out, filepath.FromSlash(file)))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s has no %s:\n%s", file, part, text)
			}
		}
	}
	// It may be made again, but in place of nothing else.
	if err := s.write(out); err != nil {
		t.Error(err)
	}
	if err := s.write(s.root); err == nil {
		t.Error("the site has replaced the documents")
	}
}

func TestWhatCannotBeASiteIsRefused(t *testing.T) {
	for change, files := range map[string]map[string]string{
		"no list of docs/README.md has " + d + "lost.md": {d + "lost.md": "# Lost\n"},
		"no such file": {"README.md": "# P\n\n[gone](gone.md)\n"},
	} {
		all := documents()
		for name, text := range files {
			all[name] = text
		}
		if _, err := collect(project(t, all)); err == nil || !strings.Contains(err.Error(), change) {
			t.Errorf("the error is %v, want one about %q", err, change)
		}
	}
}

package tidy

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Every relative link of a document leads to a file, and its fragment to a heading of that file.
// Where sources name a page of docs, in comments, help and errors, that page exists as well.
func TestLinksLeadSomewhere(t *testing.T) {
	headings := map[string][]string{} // by document
	anchor := func(file, fragment string) bool {
		if _, read := headings[file]; !read {
			headings[file] = anchors(document(t, file))
		}
		return slices.Contains(headings[file], fragment)
	}
	exists := func(file string) bool {
		_, err := os.Stat(filepath.Join(root(t), file))
		return err == nil
	}
	for _, name := range tracked(t) {
		text, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			continue // deleted, but not yet committed, or no text
		}
		if path.Ext(name) == ".md" {
			report(t, deadLinks(name, links(string(text)), exists, anchor))
		} else if path.Dir(name) != "internal/tidy" && bytes.Contains(text, []byte("docs/")) {
			report(t, deadLinks(name, named(string(text)), exists, anchor))
		}
	}
}

// deadLinks finds those of a file's links that lead nowhere.
func deadLinks(name string, links []string, exists func(file string) bool, anchor func(file, fragment string) bool) []string {
	var complaints []string
	for _, link := range links {
		file, fragment, _ := strings.Cut(link, "#")
		switch {
		case strings.HasPrefix(file, "/"):
			file = file[1:]
		case file == "":
			file = name
		default:
			file = path.Join(path.Dir(name), file)
		}
		switch {
		case !exists(file):
			complaints = append(complaints, fmt.Sprintf("%s: %s leads nowhere", name, link))
		case fragment != "" && path.Ext(file) == ".md" && !anchor(file, fragment):
			complaints = append(complaints, fmt.Sprintf("%s: %s has no heading #%s", name, file, fragment))
		}
	}
	return complaints
}

// links returns the relative links of a document.
func links(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(withoutBlocks(text), -1) {
		if !strings.Contains(m[1], ":") {
			all = append(all, m[1])
		}
	}
	return all
}

// named returns the pages of docs that a text names, from the root, with their fragments.
func named(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:^|[^\w-])(docs/[\w/-]+\.md(?:#[\w-]+)?)`).FindAllStringSubmatch(text, -1) {
		all = append(all, "/"+m[1])
	}
	return all
}

// anchors returns the fragments under which the headings of a document are found.
func anchors(text string) []string {
	var all []string
	for line := range strings.Lines(withoutBlocks(text)) {
		hashes, title, heading := strings.Cut(strings.TrimSpace(line), " ")
		if !heading || strings.Trim(hashes, "#") != "" {
			continue
		}
		title = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(title, "$1")
		slug := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))
		unique := slug
		for n := 1; slices.Contains(all, unique); n++ {
			unique = fmt.Sprintf("%s-%d", slug, n)
		}
		all = append(all, unique)
	}
	return all
}

// withoutBlocks removes blocks of code: their brackets and number signs mean something else.
func withoutBlocks(text string) string {
	var rest strings.Builder
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		} else if !code {
			rest.WriteString(line)
		}
	}
	return rest.String()
}

func TestTheRuleAboutLinksSeesABreach(t *testing.T) {
	got := links("see [a](docs/a.md#b), [b](#c),\n```\n[x](y)\n```\n[c](https://example.org/d) and [d](../e)")
	if !slices.Equal(got, []string{"docs/a.md#b", "#c", "../e"}) {
		t.Errorf("links are %q", got)
	}
	if got := named("see docs/a/b.md#c, x-docs/d.md"); !slices.Equal(got, []string{"/docs/a/b.md#c"}) {
		t.Errorf("named are %q", got)
	}
	if got := anchors("# A `b.c` d\n#no\n```\n# x\n```\n## A full disk\n## [A](x.md) full disk\n"); !slices.Equal(got, []string{"a-bc-d", "a-full-disk", "a-full-disk-1"}) {
		t.Errorf("anchors are %q", got)
	}
	exists := func(file string) bool { return file == "docs/a.md" || file == "docs/b/c.md" }
	anchor := func(file, fragment string) bool { return file == "docs/a.md" && fragment == "x" }
	wantBreach(t, deadLinks("docs/b/c.md", []string{"../e.md"}, exists, anchor), "docs/b/c.md: ../e.md leads nowhere")
	wantBreach(t, deadLinks("docs/b/c.md", []string{"../a.md#y"}, exists, anchor), "docs/a.md has no heading #y")
	wantBreach(t, deadLinks("docs/a.md", []string{"#y"}, exists, anchor), "docs/a.md has no heading #y")
	if c := deadLinks("docs/b/c.md", []string{"../a.md#x", "/docs/a.md#x", "../a.md"}, exists, anchor); c != nil {
		t.Error(c)
	}
}

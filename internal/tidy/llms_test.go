package tidy

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var writeLLMs = flag.Bool("llms", false, "write docs/llms.txt and docs/llms-full.txt")

// docs/llms.txt lists all pages for language models, by purpose. docs/llms-full.txt has the text of
// all of them; `make docs` writes it, and it is not kept in the repository.
func TestTheListForLanguageModelsHasEveryPage(t *testing.T) {
	list, full := forLanguageModels(pagesByPurpose(t), func(name string) string { return document(t, name) })
	if *writeLLMs {
		for name, text := range map[string]string{"docs/llms.txt": list, "docs/llms-full.txt": full} {
			if err := os.WriteFile(filepath.Join(root(t), name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if document(t, "docs/llms.txt") != list {
		t.Error("docs/llms.txt does not list each page by its title: make docs")
	}
}

// purpose is a heading of the list, with its pages.
type purpose struct {
	name  string
	pages []string
}

func pagesByPurpose(t *testing.T) []purpose {
	t.Helper()
	all := []purpose{
		{name: "Start", pages: []string{"README.md", "docs/README.md"}},
		{name: "Tutorials"}, {name: "How-to guides"}, {name: "Reference", pages: []string{"redis-compat.md"}}, {name: "Explanation"},
		{name: "Examples and adapters", pages: []string{"examples/README.md", "adapters/README.md"}},
		{name: "Development", pages: []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}},
	}
	for folder, i := range map[string]int{"tutorial": 1, "how-to": 2, "reference": 3, "explanation": 4, "internals": 6} {
		found, err := filepath.Glob(filepath.Join(root(t), "docs", folder, "*.md"))
		if err != nil || len(found) == 0 {
			t.Fatalf("docs/%s: found %q, %v", folder, found, err)
		}
		for _, f := range found {
			all[i].pages = append(all[i].pages, "docs/"+folder+"/"+filepath.Base(f))
		}
		slices.Sort(all[i].pages)
	}
	return all
}

// forLanguageModels returns the list of pages, and their text one after the other.
func forLanguageModels(purposes []purpose, read func(name string) string) (list, full string) {
	var names, texts strings.Builder
	names.WriteString("# Fila\n\n> A message broker that speaks the Redis protocol: fair scheduling among tenants, throttles, budgets,\n" +
		"> retries and dead letters, policy in Lua. Clients send `FILA.*` commands with any Redis library.\n")
	for _, p := range purposes {
		fmt.Fprintf(&names, "\n## %s\n\n", p.name)
		for _, page := range p.pages {
			text := read(page)
			fmt.Fprintf(&names, "- [%s](%s)\n", title(text), fromDocs(page))
			fmt.Fprintf(&texts, "<!-- %s -->\n\n%s\n", page, text)
		}
	}
	return names.String(), names.String() + "\n" + texts.String()
}

// fromDocs returns the path of a page as a link in docs.
func fromDocs(page string) string {
	if inside, ok := strings.CutPrefix(page, "docs/"); ok {
		return inside
	}
	return "../" + page
}

// title returns the first heading of a page.
func title(text string) string {
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			return strings.TrimSpace(heading)
		}
	}
	return ""
}

func TestTheListForLanguageModelsIsMadeOfTitles(t *testing.T) {
	list, full := forLanguageModels([]purpose{{"A", []string{"docs/a/b.md", "c.md"}}}, func(name string) string { return "<!-- x -->\n# Of " + name + "\n\ntext\n" })
	if !strings.HasSuffix(list, "\n## A\n\n- [Of docs/a/b.md](a/b.md)\n- [Of c.md](../c.md)\n") {
		t.Errorf("the list is\n%s", list)
	}
	if strings.Count(full, "\ntext\n") != 2 || !strings.Contains(full, "<!-- c.md -->") {
		t.Errorf("the text is\n%s", full)
	}
}

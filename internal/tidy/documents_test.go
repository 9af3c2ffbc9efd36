package tidy

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// described returns the documents that describe the code: each file and identifier that they name
// must exist.
func described() []string {
	return []string{
		"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "docs/reference/versions.md",
		"docs/internals/below-the-defaults.md", "docs/internals/bounds.md", "docs/internals/decisions.md", "docs/internals/jobs.md",
		packagesPage, "docs/internals/replication.md", "docs/internals/tests.md",
	}
}

// packagesPage is the page with the table of packages.
const packagesPage = "docs/internals/packages.md"

// foreign returns identifiers in these documents that are declared elsewhere: by Go, RocksDB or the
// protocol.
func foreign() []string {
	return []string{"CGO_ENABLED", "GOMAXPROCS", "SipHash", "WriteBatch"}
}

func TestDocumentsNameFilesThatExist(t *testing.T) {
	for _, name := range described() {
		text := document(t, name)
		report(t, missingFiles(name, text, func(pattern string) bool {
			found, err := filepath.Glob(filepath.Join(root(t), pattern))
			return err == nil && len(found) > 0
		}))
	}
}

// missingFiles finds sources that a document names and that do not exist. A name is the path
// from the root, or a pattern of such paths.
func missingFiles(name, text string, exists func(pattern string) bool) []string {
	var complaints []string
	file := regexp.MustCompile(`[\w./*-]+\.(?:go|cc|proto)\b`)
	for i, line := range strings.Split(text, "\n") {
		for _, at := range file.FindAllStringIndex(line, -1) {
			p, rest := line[at[0]:at[1]], line[at[1]:]
			before := line[:at[0]]
			domain := len(rest) > 1 && (rest[0] == '.' || rest[0] == '/') && rest[1] >= 'a' && rest[1] <= 'z'
			placeholder := strings.HasSuffix(before, ">") || strings.HasSuffix(before, "://")
			if !domain && !placeholder && !exists(p) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: there is no %s", name, i+1, p))
			}
		}
	}
	return complaints
}

func TestDocumentsNameIdentifiersThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, id := range declared(n) {
				known[id.Name] = true
			}
			return true
		})
	}
	for _, id := range foreign() {
		known[id] = true
	}
	reference := document(t, filepath.Join("docs", "reference", "configuration.md")) + document(t, "redis-compat.md")
	for _, name := range described() {
		report(t, missingIdentifiers(name, document(t, name), known, reference))
	}
}

// missingIdentifiers finds identifiers in code spans that are declared nowhere. Those with a
// dot are a member of something, or a setting or a command of the reference; those without one
// are recognized by a capital after a small letter.
func missingIdentifiers(name, text string, known map[string]bool, reference string) []string {
	var complaints []string
	span := regexp.MustCompile("`([A-Za-z]\\w*(?:\\.[A-Za-z]\\w*)*)(?:\\([^`]*\\))?`")
	mixed := regexp.MustCompile(`[a-z][A-Z]`)
	for i, line := range strings.Split(text, "\n") {
		for _, m := range span.FindAllStringSubmatch(line, -1) {
			parts := strings.Split(m[1], ".")
			last := parts[len(parts)-1]
			file := slices.Contains([]string{"go", "mod", "md", "txt", "cc", "proto", "toml", "json", "yml", "py"}, last)
			documented := strings.Contains(reference, "`"+m[1]+"`") || parts[0] == "FILA" && strings.Contains(reference, m[1])
			if file || documented || len(parts) == 1 && !mixed.MatchString(last) || known[last] {
				continue
			}
			complaints = append(complaints, fmt.Sprintf("%s:%d: nothing declares %s", name, i+1, m[1]))
		}
	}
	return complaints
}

// The tables of floors and of packages match the sources, without programs and tests outside the broker.
func TestTheFloorsInTheDocumentAreThoseOfTheTest(t *testing.T) {
	text := document(t, packagesPage)
	sees, on := map[string]string{}, map[string]string{}
	for name, f := range floors() {
		sees[name] = strings.Join(f.sees, ", ")
	}
	for _, s := range sources(t) {
		if top, _, _ := strings.Cut(s.pkg(), "/"); top != "integration" && top != "examples" {
			on[s.pkg()], _ = floorOf(s.pkg())
		}
	}
	report(t, differing("floor", lastCells(text, "| floor |"), sees))
	report(t, differing("package", lastCells(text, "| package |"), on))
}

// lastCells reads the table whose head begins with a text: the last cell of each row by its first one.
func lastCells(text, head string) map[string]string {
	rows := map[string]string{}
	_, table, _ := strings.Cut(text, "\n"+head)
	for i, line := range strings.Split(table, "\n") {
		if i < 2 {
			continue // the rest of the table's head
		}
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			break
		}
		rows[strings.Trim(cells[1], " `")] = strings.TrimSpace(cells[len(cells)-2])
	}
	return rows
}

func differing(what string, rows, want map[string]string) []string {
	var complaints []string
	for name, is := range want {
		if says, there := rows[name]; !there {
			complaints = append(complaints, fmt.Sprintf("%s: %s %s is not in the table", packagesPage, what, name))
		} else if says != is {
			complaints = append(complaints, fmt.Sprintf("%s: %s %s: the table says %q, it is %q", packagesPage, what, name, says, is))
		}
	}
	for name := range rows {
		if _, there := want[name]; !there {
			complaints = append(complaints, fmt.Sprintf("%s: there is no %s %s", packagesPage, what, name))
		}
	}
	return complaints
}

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheRulesAboutDocumentsSeeABreach(t *testing.T) {
	exists := func(p string) bool { return p == "engine/core.go" }
	wantBreach(t, missingFiles("x.md", "`engine/core.go`\nsee `told.go`\n", exists), "x.md:2: there is no told.go")
	if c := missingFiles("x.md", "see `commands/<name>.go`, https://vuln.go.dev and proxy.golang.org, pkg.go.dev", exists); c != nil {
		t.Error(c)
	}

	known := map[string]bool{"turn": true, "fairKey": true}
	reference := "| `storage.sync` |\n### FILA.GET\n"
	wantBreach(t, missingIdentifiers("x.md", "`core.turn` and\n`core.settle`", known, reference), "x.md:2: nothing declares core.settle")
	wantBreach(t, missingIdentifiers("x.md", "`fairKey` `unfairKey`", known, reference), "nothing declares unfairKey")
	wantBreach(t, missingIdentifiers("x.md", "`FILA.GET` `FILA.FETCH`", known, reference), "nothing declares FILA.FETCH")
	if c := missingIdentifiers("x.md", "`storage.sync` `go.mod` `MISCONF` `core.turn(now, tasks)` `a.go`", known, reference); c != nil {
		t.Error(c)
	}

	want := map[string]string{"engine": "rooms, store", "storage": ""}
	table := func(rows string) map[string]string {
		return lastCells("a\n| floor | sees |\n|---|---|\n"+rows+"\nend", "| floor |")
	}
	if c := differing("floor", table("| `engine` | rooms, store |\n| `storage` | |"), want); c != nil {
		t.Error(c)
	}
	wantBreach(t, differing("floor", table("| `engine` | store |\n| `storage` | |"), want), "it is \"rooms, store\"")
	wantBreach(t, differing("floor", table("| `engine` | rooms, store |"), want), "floor storage is not")
	wantBreach(t, differing("floor", table("| `engine` | rooms, store |\n| `storage` | |\n| `disk` | - |"), want), "no floor disk")
}
